"""An entry of the epoch log as bytes: a line of JSON, and the riders behind it.

    headrace-log 2 <checksum>
    {"kind": "commit", "generation": 3, "nonce": "...", "body": {...}, "riders": {...}}
    <the bytes of the riders, one after the other>

A rider is a small file, named by its content, that has no file of its own (protocol M1). `riders`
says where each lies in the tail: its name -> offset, length. The checksum covers all of it.

The tail is compressed where that saves something: a small Arrow file is mostly its schema. Then
`tail_bytes` is its length before. Names of riders stand for their bytes as they were, so different
versions of zstd may meet.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from headrace.errors import CorruptCheckpoint
from headrace.log.sealed import seal, unseal_with_tail

GENERATION, PLAN, COMMIT, VOID = "generation", "plan", "commit", "void"
ACCEPT, DROP = "accept", "drop"
HANDOVER, CONFIRM, LAPSE = "handover", "confirm", "lapse"
CONTROL, RESTORE, CHECKPOINT = "control", "restore", "checkpoint"

_MAGIC = b"headrace-log"
_WORTH_PACKING = 0.9

Places = dict[str, tuple[int, int]]
"""Rider -> its offset and length in the tail."""


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry, without its tail; `body` is JSON of a kind that this room does not know."""

    kind: str
    generation: int
    nonce: str
    body: msgspec.Raw
    riders: Places = {}
    tail_bytes: int = 0
    """The length of the tail before it was compressed; 0 if it was not."""


class _Directory(msgspec.Struct):
    """What a reader of riders decodes of an entry."""

    riders: Places = {}
    tail_bytes: int = 0


def places_of(riders: Mapping[str, bytes]) -> Places:
    """Where each rider lies in the tail, in which they follow each other."""
    found: Places = {}
    offset = 0
    for name, data in riders.items():
        found[name] = (offset, len(data))
        offset += len(data)
    return found


def encode_entry(entry: LogEntry, tail: bytes) -> bytes:
    """The bytes of an entry."""
    packed = pa.compress(tail, "zstd", asbytes=True) if tail else tail
    if len(packed) < len(tail) * _WORTH_PACKING:
        entry = msgspec.structs.replace(entry, tail_bytes=len(tail))
        tail = packed
    return seal(_MAGIC, msgspec.json.encode(entry), tail)


def decode_entry(data: bytes, where: str) -> LogEntry:
    """The entry of some bytes. It does not keep the tail in memory."""
    body, _ = unseal_with_tail(_MAGIC, data, where)
    try:
        return msgspec.json.decode(body, type=LogEntry)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{where} cannot be decoded: {error}") from None


class EntryTail:
    """The riders of one entry, over the bytes of the whole entry."""

    def __init__(self, data: pa.Buffer, where: str) -> None:
        body, self._tail = unseal_with_tail(_MAGIC, data, where)
        try:
            said = msgspec.json.decode(body, type=_Directory)
            if said.tail_bytes:
                self._tail = memoryview(
                    pa.decompress(self._tail, said.tail_bytes, "zstd", asbytes=True)
                )
        except (msgspec.DecodeError, pa.ArrowException) as error:
            raise CorruptCheckpoint(f"{where} cannot be decoded: {error}") from None
        self._places = said.riders
        self.bytes = len(data) + said.tail_bytes
        """The size of the whole entry, which is held in memory or mapped."""

    def get(self, name: str) -> pa.Buffer | None:
        """A copy of a rider, so that it is aligned and does not hold the entry; None if absent."""
        place = self._places.get(name)
        if place is None:
            return None
        offset, length = place
        return pa.py_buffer(bytes(self._tail[offset : offset + length]))
