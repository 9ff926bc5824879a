"""Sealed files: a line with magic word, version and checksum, a line of text, perhaps a tail.

The checksum covers everything behind the first line. Entries of the log and manifests of sinks may
have a tail: bytes behind the text.
"""

from __future__ import annotations

import re

import pyarrow as pa
import xxhash

from headrace.errors import CorruptCheckpoint, IncompatibleState

FORMAT = 3
"""2: rings have versions and change by moves. 3: the chains of a slot are one text."""

_LINE_END = re.compile(rb"\n")


def seal(magic: bytes, body: bytes, tail: bytes = b"") -> bytes:
    """The bytes of a sealed file; `body` is one line."""
    rest = b"%s\n%s" % (body, tail)
    checksum = xxhash.xxh3_64_hexdigest(rest).encode()
    return b"%s %d %s\n%s" % (magic, FORMAT, checksum, rest)


def check_seal(data: bytes, name: str) -> None:
    """Checks version and checksum of a sealed file of any kind."""
    magic = data.partition(b" ")[0]
    unseal_with_tail(magic, data, name)


def unseal(magic: bytes, data: bytes, name: str) -> bytes:
    """The body of a sealed file, after its magic, version and checksum were checked."""
    return unseal_with_tail(magic, data, name)[0]


def unseal_with_tail(magic: bytes, data: bytes | pa.Buffer, name: str) -> tuple[bytes, memoryview]:
    """The body, and the tail, which is not copied."""
    view = memoryview(data)
    head, rest = _cut(view)
    words = bytes(head).split(b" ")
    if len(words) != 3 or words[0] != magic or not words[1].isdigit():
        raise CorruptCheckpoint(
            f"{name} is not a {magic.decode()} file: it begins {bytes(view[:40])!r}; restore it "
            "from a copy, nothing of it has been used"
        )
    if int(words[1]) > FORMAT:
        raise IncompatibleState(
            f"{name} has format {int(words[1])}; this Headrace reads up to {FORMAT}: "
            "upgrade Headrace"
        )
    if int(words[1]) < FORMAT:
        raise IncompatibleState(
            f"{name} has format {int(words[1])}, of a Headrace before its first release; this one "
            f"reads format {FORMAT}: begin with a new checkpoint"
        )
    if xxhash.xxh3_64_hexdigest(rest).encode() != words[2]:
        raise CorruptCheckpoint(
            f"{name} is damaged (checksum); restore it from a copy, nothing of it has been used"
        )
    body, tail = _cut(rest)
    return bytes(body), tail


def _cut(view: memoryview) -> tuple[memoryview, memoryview]:
    """The first line and what lies behind it."""
    found = _LINE_END.search(view)
    return (view, view[:0]) if found is None else (view[: found.start()], view[found.end() :])
