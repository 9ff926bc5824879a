"""Sealed files: small text files with a magic word, a version and a checksum in the first line."""

from __future__ import annotations

import xxhash

from headrace.errors import CorruptCheckpoint, IncompatibleState

FORMAT = 1


def seal(magic: bytes, body: bytes) -> bytes:
    """The bytes of a sealed file."""
    checksum = xxhash.xxh3_64_hexdigest(body).encode()
    return b"%s %d %s\n%s\n" % (magic, FORMAT, checksum, body)


def unseal(magic: bytes, data: bytes, name: str) -> bytes:
    """The body of a sealed file, after its magic, version and checksum were checked."""
    head, _, rest = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[0] != magic or not words[1].isdigit():
        raise CorruptCheckpoint(
            f"{name} is not a {magic.decode()} file: it begins {data[:40]!r}; restore it from a "
            "copy, nothing of it has been used"
        )
    if int(words[1]) > FORMAT:
        raise IncompatibleState(
            f"{name} has format {int(words[1])}; this Headrace reads up to {FORMAT}: "
            "upgrade Headrace"
        )
    body = rest.removesuffix(b"\n")
    if xxhash.xxh3_64_hexdigest(body).encode() != words[2]:
        raise CorruptCheckpoint(
            f"{name} is damaged (checksum); restore it from a copy, nothing of it has been used"
        )
    return body
