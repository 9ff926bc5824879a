"""Identities of causes, which do not depend on how the input was cut into epochs.

A call that must not repeat is named by its cause. So a hook with the same cause, in a rerun or in
the successor of a voided plan, finds the answer of the call. The identity of a record is 16 bytes:
the hash of its whole lineage (for a source record: the hash of its split, then its position):

    source record     (stream, split, position)
    timer             (clock, tag, time)
    production        (computation, key, its cause's identity, ordinal within the hook)
    row of a table    (stream, label, epoch, timestamp, value, how many equal ones before it)

The last one is an exception: `process_table` sees a whole epoch, so it is unknown which rows
caused an output row. Its identity is the same only in reruns of one plan.

If a stream feeds, directly or not, a computation that calls outside services, its records carry
their identity after their origin, in one cell. An origin says where a record comes from, and so
decides the order in which an ordered computation takes records of the same time (D8).
"""

from __future__ import annotations

import xxhash

from headrace.model.values.keys import encode_part

IDENTITY_BYTES = 16


def source_identity(stream: str, split: str, position: int) -> bytes:
    """The identity of a source's record."""
    return source_place(stream, split) + position.to_bytes(8, "big")


def source_place(stream: str, split: str) -> bytes:
    """The first bytes of the identities of a split's records; 8 bytes of position follow."""
    return xxhash.xxh3_64_digest(_joined(b"source", stream.encode(), split.encode()))


def timer_identity(clock: str, tag: bytes, at: int) -> bytes:
    """The identity of a timer that fires. It needs no key: call names include the key."""
    return _digest(b"timer", clock.encode(), tag, b"%d" % at)


def production_identity(computation: str, key: bytes, cause: bytes, ordinal: int) -> bytes:
    """The identity of the hook's production number `ordinal`."""
    return _digest(b"production", computation.encode(), key, cause, b"%d" % ordinal)


def row_identity(
    stream: str, label: str, epoch: int, timestamp: int, value: bytes, nth: int
) -> bytes:
    """The identity of a row whose cause is unknown."""
    place = b"%d %d %d" % (epoch, timestamp, nth)
    return _digest(b"row", stream.encode(), label.encode(), place, value)


def source_origin(split: str, position: int) -> bytes:
    """The origin of a source's record: (split, position)."""
    return encode_part(split) + position.to_bytes(8, "big")


def keyed_origin(computation: str, key: bytes) -> bytes:
    """The origin of a keyed production: (computation, key)."""
    return encode_part(computation) + key


def keyless_origin(cause: bytes, index: int, ordinal: int) -> bytes:
    """The origin of a keyless production: (origin of its cause, index of the input, ordinal)."""
    return cause + index.to_bytes(2, "big") + ordinal.to_bytes(4, "big")


def origin_part(cell: bytes) -> bytes:
    """The origin in a cell that holds an origin and an identity."""
    return cell[:-IDENTITY_BYTES]


def identity_part(cell: bytes) -> bytes:
    """The identity in a cell that holds an origin and an identity."""
    return cell[-IDENTITY_BYTES:]


def _digest(*parts: bytes) -> bytes:
    # Hash the lengths too: ("ab", "c") and ("a", "bc") must differ.
    return xxhash.xxh3_128_digest(_joined(*parts))


def _joined(*parts: bytes) -> bytes:
    return b"".join([b"%d:%s" % (len(part), part) for part in parts])
