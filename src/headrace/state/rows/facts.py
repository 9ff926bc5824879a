"""Facts about all fields in a segment, so that a look-up need not read columns that say one thing.

Most segments hold the fields of one class at one version, without tombstones and without a TTL. A
look-up then reads keys and values, and no more. It also knows when it has found all fields of a
key: older segments are not asked for it. Where all keys, or all values, have the same length, their
offsets are not read either.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import CorruptCheckpoint

_NAMES_MAX = 64


class FieldFacts(msgspec.Struct, array_like=True, frozen=True):
    """What holds for all rows that are fields. None: it differs, or is not known."""

    names: tuple[str, ...] | None = None
    """The names of all fields, sorted."""
    expires: int | None = None
    version: int | None = None
    tombstone: bool | None = None
    key_bytes: int | None = None
    """How long the key of every row is, of whatever kind the row is."""
    value_bytes: int | None = None
    """How long the value of every row is."""

    def width(self, column: str) -> int | None:
        """How long every row's bytes in a column are; None if they differ."""
        if column == "key":
            return self.key_bytes
        return self.value_bytes if column == "value" else None

    @property
    def is_plain(self) -> bool:
        """Whether all fields have one name, and differ only in keys and values of one length."""
        known = (self.expires, self.version, self.tombstone, self.key_bytes, self.value_bytes)
        return self.names is not None and len(self.names) == 1 and None not in known

    def constant(self, column: str) -> Any:
        """The value that all fields have in a column; None if they differ."""
        if column == "field":
            return self.names[0] if self.names is not None and len(self.names) == 1 else None
        return getattr(self, column, None)


UNKNOWN = FieldFacts()


def facts_of(batch: pa.RecordBatch, fields: Any) -> FieldFacts:
    """The facts about the rows `fields` of a batch."""
    found: dict[str, Any] = {
        f"{name}_bytes": _width_of(batch.column(name)) for name in ("key", "value")
    }
    if not len(fields):
        return FieldFacts((), **found)
    rows = slice(None) if len(fields) == batch.num_rows else fields
    chosen = batch.column("field")
    if len(fields) < batch.num_rows:
        chosen = chosen.take(pa.array(fields))
    names = chosen.unique()
    for column in ("expires", "version", "tombstone"):
        values = batch.column(column).to_numpy(zero_copy_only=False)[rows]
        found[column] = values[0].item() if (values == values[0]).all() else None
    return FieldFacts(
        tuple(sorted(names.to_pylist())) if len(names) <= _NAMES_MAX else None, **found
    )


def _width_of(column: pa.Array) -> int | None:
    """How long all items of a column of bytes are; None if they differ, or there are none."""
    if not len(column):
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    if column.offset == 0 and offsets[0] != 0:
        return None  # Arrow writes these offsets as they are; those of a slice begin with zero
    widths = np.diff(offsets[column.offset : column.offset + len(column) + 1])
    return int(widths[0]) if (widths == widths[0]).all() else None


def encode_facts(facts: FieldFacts) -> bytes:
    """As bytes."""
    return msgspec.msgpack.encode(facts)


def decode_facts(name: str, data: memoryview) -> FieldFacts:
    """The facts in a file; errors name the file."""
    try:
        return msgspec.msgpack.decode(bytes(data), type=FieldFacts)
    except msgspec.MsgspecError as error:
        raise CorruptCheckpoint(f"{name} has no facts about its fields: {error}") from None


def all_names(facts: list[FieldFacts]) -> frozenset[str] | None:
    """The names of all fields of some segments; None if they are not known."""
    found: set[str] = set()
    for each in facts:
        if each.names is None:
            return None
        found.update(each.names)
    return frozenset(found)
