"""`Rows`: records of one stream, column by column.

Rows have one of two forms. *Columnar*: the value is a row of Arrow columns, and a hook sees a
dict. *Packed*: the value is anything, as one MessagePack cell. A stream may hold both forms;
`concat` then packs the columns.

Invariant: packing is exact, so a value does not depend on the other rows of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import dicts, lists_of, one_batch
from headrace.model.values.codec import decode_value, packed, packed_exactly
from headrace.model.values.schema import Schema

Timestamps = np.ndarray[Any, np.dtype[np.int64]]


class Rows:
    """Timestamps, values and, if a consumer is ordered, origins."""

    __slots__ = (
        "_columns",
        "coded",
        "encoded",
        "origins",
        "packed",
        "schema",
        "time_column",
        "timestamps",
    )

    def __init__(
        self,
        timestamps: Timestamps,
        *,
        columns: pa.RecordBatch | None = None,
        packed: pa.Array | None = None,
        origins: pa.Array | None = None,
        time_column: str | None = None,
        encoded: str | None = None,
        schema: Schema | None = None,
    ) -> None:
        self.encoded = encoded
        """A dictionary-encoded column that is decoded when `columns` is read."""
        self.coded: dict[str, Any] = {}
        """Columns of text as dictionaries, if their source has them so (`Reading.coded`)."""
        self.schema = schema
        """The stream's schema, with which `values` creates objects of a class."""
        self.time_column = time_column
        """A column that equals the timestamps cell by cell, so that it is sent only once."""
        self.timestamps = timestamps
        self._columns = columns
        self.packed = packed
        self.origins = origins

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def columns(self) -> pa.RecordBatch | None:
        """The value columns; None if values are packed."""
        if self.encoded is not None and self._columns is not None:
            at = self._columns.schema.get_field_index(self.encoded)
            plain = self._columns.column(at).dictionary_decode()
            self._columns = self._columns.set_column(at, self.encoded, plain)
            self.encoded = None
        return self._columns

    @property
    def stored(self) -> pa.RecordBatch | None:
        """The value columns as they are stored. One of them may be `encoded`."""
        return self._columns

    @staticmethod
    def of(values: Sequence[Any], timestamps: Sequence[int] | Timestamps) -> Rows:
        """Packed rows of Python values."""
        cells = pa.array([packed_exactly(value) for value in values], pa.binary())
        return Rows(np.asarray(timestamps, np.int64), packed=cells)

    @staticmethod
    def empty() -> Rows:
        """No rows."""
        return Rows(np.empty(0, np.int64), packed=pa.array([], pa.binary()))

    def take(self, indices: np.ndarray[Any, Any]) -> Rows:
        """The rows at `indices`, in that order."""
        chosen = pa.array(indices)
        timestamps = self.timestamps[indices]
        return Rows(
            timestamps,
            columns=self._taken(chosen, timestamps),
            packed=None if self.packed is None else self.packed.take(chosen),
            origins=None if self.origins is None else self.origins.take(chosen),
            time_column=self.time_column,
            encoded=self.encoded,
            schema=self.schema,
        )

    def _taken(self, chosen: pa.Array, timestamps: Timestamps) -> pa.RecordBatch | None:
        if self._columns is None:
            return None
        if self.time_column is None:
            return self._columns.take(chosen)
        arrays = [
            pa.array(timestamps) if name == self.time_column else column.take(chosen)
            for name, column in zip(self._columns.schema.names, self._columns.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns.schema)

    def slice(self, start: int, length: int) -> Rows:
        """A range of rows, without copying."""
        return Rows(
            self.timestamps[start : start + length],
            columns=None if self._columns is None else self._columns.slice(start, length),
            packed=None if self.packed is None else self.packed.slice(start, length),
            origins=None if self.origins is None else self.origins.slice(start, length),
            time_column=self.time_column,
            encoded=self.encoded,
            schema=self.schema,
        )

    def values(self) -> list[Any]:
        """The values as Python objects."""
        schema = self.schema
        if self.packed is not None:
            decode = decode_value if schema is None else schema.decode
            return [decode(cell) for cell in self.packed.to_pylist()]
        if schema is None or not schema.of_class:
            return dicts(self.columns)
        return schema.make(self.columns.schema.names, lists_of(self.columns))  # type: ignore[union-attr]

    def as_packed(self) -> Rows:
        """The same rows with MessagePack values."""
        if self.packed is not None:
            return self
        # With a schema the class decides how values decode, so text is enough.
        kinds: Any = () if self.schema is not None else self.columns.schema.types  # type: ignore[union-attr]
        pack = packed if all(map(_is_simple, kinds)) else packed_exactly
        cells = pa.array([pack(value) for value in self.values()], pa.binary())
        return Rows(self.timestamps, packed=cells, origins=self.origins, schema=self.schema)

    def column(self, name: str) -> pa.Array | None:
        """An Arrow column of columnar rows; None if there is no column of that name."""
        columns = self.columns
        if columns is None or name not in columns.schema.names:
            return None
        return columns.column(name)

    @property
    def nbytes(self) -> int:
        """The approximate size of these rows in bytes."""
        body = self._columns if self.packed is None else self.packed
        return int(self.timestamps.nbytes + body.nbytes)  # type: ignore[union-attr]

    @staticmethod
    def joined(parts: Sequence[Rows]) -> list[Rows]:
        """All rows of `parts`, in order and in their form. Neighbours of one form are joined."""
        found: list[list[Rows]] = []
        for part in parts:
            if len(part):
                if found and part._is_like(found[-1][0]):
                    found[-1].append(part)
                else:
                    found.append([part])
        return [Rows.concat(alike) for alike in found]

    def _is_like(self, other: Rows) -> bool:
        if self._columns is None or other._columns is None:
            return self._columns is other._columns
        return bool(self.columns.schema.equals(other.columns.schema))  # type: ignore[union-attr]

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """All rows of `parts`, in order, as one object."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return Rows.empty()
        if len(parts) == 1:
            return parts[0]
        timestamps = np.concatenate([part.timestamps for part in parts])
        with_origins = all(part.origins is not None for part in parts)
        origins = pa.concat_arrays([part.origins for part in parts]) if with_origins else None
        encoded = parts[0].encoded
        if any(part.encoded != encoded for part in parts):
            encoded = None
        batches = [part.columns if encoded is None else part.stored for part in parts]
        first, schema = batches[0], parts[0].schema
        if first is not None and all(
            batch is not None and batch.schema.equals(first.schema) for batch in batches
        ):
            table = pa.Table.from_batches(batches)
            if encoded is not None:
                table = table.unify_dictionaries()
            batch = one_batch(table)
            return Rows(timestamps, columns=batch, origins=origins, encoded=encoded, schema=schema)
        cells = pa.concat_arrays([part.as_packed().packed for part in parts])
        return Rows(timestamps, packed=cells, origins=origins, schema=schema)


_OWN = {b"headrace": b"own"}


def with_own(table: pa.Table, name: str, column: Any) -> pa.Table:
    """The table with one more column, of the engine, that is not part of the values."""
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return table.append_column(pa.field(name, array.type, metadata=_OWN), array)


def values_of(table: pa.Table) -> pa.Table:
    """A table of records without the columns that the engine added to the values."""
    own = [field.name for field in table.schema if (field.metadata or {}).items() >= _OWN.items()]
    return table.drop(own) if own else table


def _is_simple(kind: pa.DataType) -> bool:
    """Whether MessagePack can encode the cells of a column directly."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )  # fmt: skip
