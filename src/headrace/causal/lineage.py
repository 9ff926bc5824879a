"""Who caused what: identities that do not depend on how the input was cut into epochs.

A call that must not repeat is named by its cause, so that whoever meets that cause
again, in a rerun or in the successor of a voided plan, finds the call's answer. The
identity of a record is 16 bytes, the hash of its whole lineage (of a source's record, the
hash of its split, and its position):

    source record     (stream, split, position)
    timer             (clock, tag, time)
    production        (computation, key, its cause's identity, ordinal within the hook)
    row of a table    (stream, label, epoch, timestamp, value, how many equal ones before it)

The last is the exception: `process_table` sees an epoch at once, so which rows caused
an output row is unknown, and its identity holds for reruns of one plan only.

Where a stream feeds a computation that calls the outside, directly or not, records
carry their identity behind their origin, in one cell. An origin says where a record comes from,
and so in which order an ordered computation takes records of one instant (D8).
"""

from __future__ import annotations

import xxhash

from headrace.model.values.keys import encode_part

IDENTITY_BYTES = 16


def source_identity(stream: str, split: str, position: int) -> bytes:
    """The identity of a source's record."""
    return source_place(stream, split) + position.to_bytes(8, "big")


def source_place(stream: str, split: str) -> bytes:
    """How the identities of a split's records begin; their positions follow, in 8 bytes."""
    return xxhash.xxh3_64_digest(_joined(b"source", stream.encode(), split.encode()))


def timer_identity(clock: str, tag: bytes, at: int) -> bytes:
    """The identity of a timer that fires; its key is part of every call's name."""
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
    """The origin of a keyless production: its cause's, the input's index, its ordinal."""
    return cause + index.to_bytes(2, "big") + ordinal.to_bytes(4, "big")


def origin_part(cell: bytes) -> bytes:
    """The origin in a cell that carries an identity too."""
    return cell[:-IDENTITY_BYTES]


def identity_part(cell: bytes) -> bytes:
    """The identity in such a cell."""
    return cell[-IDENTITY_BYTES:]


def _digest(*parts: bytes) -> bytes:
    # Lengths first: ("ab", "c") and ("a", "bc") are two things.
    return xxhash.xxh3_128_digest(_joined(*parts))


def _joined(*parts: bytes) -> bytes:
    return b"".join([b"%d:%s" % (len(part), part) for part in parts])
