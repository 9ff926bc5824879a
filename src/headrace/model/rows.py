"""`Rows`: records of one stream, column by column.

Two forms travel through the house. *Columnar*: the value is a row of Arrow
columns, and a hook sees a dict. *Packed*: the value is anything, as one
MessagePack cell. A stream may hold both; `concat` then packs the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.codec import decode_value, packed

Timestamps = np.ndarray[Any, np.dtype[np.int64]]


class Rows:
    """Timestamps, values and, where a consumer is ordered, origins."""

    __slots__ = ("columns", "origins", "packed", "time_column", "timestamps")

    def __init__(
        self,
        timestamps: Timestamps,
        *,
        columns: pa.RecordBatch | None = None,
        packed: pa.Array | None = None,
        origins: pa.Array | None = None,
        time_column: str | None = None,
    ) -> None:
        self.time_column = time_column
        """A column that equals the timestamps cell by cell: it need not travel twice."""
        self.timestamps = timestamps
        self.columns = columns
        self.packed = packed
        self.origins = origins

    def __len__(self) -> int:
        return len(self.timestamps)

    @staticmethod
    def of(values: Sequence[Any], timestamps: Sequence[int] | Timestamps) -> Rows:
        """Rows of Python values."""
        cells = pa.array([packed(value) for value in values], pa.binary())
        return Rows(np.asarray(timestamps, np.int64), packed=cells)

    @staticmethod
    def empty() -> Rows:
        """No rows."""
        return Rows(np.empty(0, np.int64), packed=pa.array([], pa.binary()))

    def take(self, indices: np.ndarray[Any, Any]) -> Rows:
        """The rows at `indices`, in that order."""
        chosen = pa.array(indices)
        return Rows(
            self.timestamps[indices],
            columns=None if self.columns is None else self.columns.take(chosen),
            packed=None if self.packed is None else self.packed.take(chosen),
            origins=None if self.origins is None else self.origins.take(chosen),
            time_column=self.time_column,
        )

    def slice(self, start: int, length: int) -> Rows:
        """A run of rows, without copying."""
        return Rows(
            self.timestamps[start : start + length],
            columns=None if self.columns is None else self.columns.slice(start, length),
            packed=None if self.packed is None else self.packed.slice(start, length),
            origins=None if self.origins is None else self.origins.slice(start, length),
            time_column=self.time_column,
        )

    def values(self) -> list[Any]:
        """The values as Python objects."""
        if self.packed is not None:
            return [decode_value(cell) for cell in self.packed.to_pylist()]
        return dicts(self.columns)

    def as_packed(self) -> Rows:
        """The same rows with MessagePack values."""
        if self.packed is not None:
            return self
        cells = pa.array([packed(value) for value in self.values()], pa.binary())
        return Rows(self.timestamps, packed=cells, origins=self.origins)

    def column(self, name: str) -> pa.Array | None:
        """An Arrow column of columnar rows, or None where there is none of that name."""
        if self.columns is None or name not in self.columns.schema.names:
            return None
        return self.columns.column(name)

    @property
    def nbytes(self) -> int:
        """About how many bytes these rows take."""
        body = self.columns if self.packed is None else self.packed
        return int(self.timestamps.nbytes + body.nbytes)  # type: ignore[union-attr]

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """All rows of `parts`, in order."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return Rows.empty()
        if len(parts) == 1:
            return parts[0]
        timestamps = np.concatenate([part.timestamps for part in parts])
        with_origins = all(part.origins is not None for part in parts)
        origins = pa.concat_arrays([part.origins for part in parts]) if with_origins else None
        first = parts[0].columns
        if first is not None and all(
            part.columns is not None and part.columns.schema.equals(first.schema) for part in parts
        ):
            table = pa.Table.from_batches([part.columns for part in parts])
            return Rows(timestamps, columns=one_batch(table), origins=origins)
        cells = pa.concat_arrays([part.as_packed().packed for part in parts])
        return Rows(timestamps, packed=cells, origins=origins)


def dicts(columns: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows of Arrow columns as dicts."""
    names = columns.schema.names
    lists = [python_list(columns.column(i)) for i in range(len(names))]
    return zipped(names, lists) if names else [{} for _ in range(columns.num_rows)]


def zipped(names: Sequence[str], lists: Sequence[list[Any]]) -> list[dict[str, Any]]:
    """Columns as dicts. Dict displays are twice as fast as `dict(zip())`, hence the short cases."""
    match len(names):
        case 1:
            (a,), (va,) = names, lists
            return [{a: x} for x in va]
        case 2:
            (a, b), (va, vb) = names, lists
            return [{a: x, b: y} for x, y in zip(va, vb, strict=True)]
        case 3:
            (a, b, c), (va, vb, vc) = names, lists
            return [{a: x, b: y, c: z} for x, y, z in zip(va, vb, vc, strict=True)]
        case 4:
            (a, b, c, d), (va, vb, vc, vd) = names, lists
            return [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(va, vb, vc, vd, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


_OWN = {b"headrace": b"own"}


def with_own(table: pa.Table, name: str, column: Any) -> pa.Table:
    """The table with a column that is not part of the values."""
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return table.append_column(pa.field(name, array.type, metadata=_OWN), array)


def values_of(table: pa.Table) -> pa.Table:
    """A table of records without the columns that the engine put beside the values."""
    own = [field.name for field in table.schema if (field.metadata or {}).items() >= _OWN.items()]
    return table.drop(own) if own else table


def python_list(column: pa.Array) -> list[Any]:
    """The cells of a column as Python objects; numbers without nulls take the fast way."""
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return [_plain(cell) for cell in column.to_pylist()]
    return column.to_pylist()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one record batch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    arrays = [pa.concat_arrays([b.column(i) for b in batches]) for i in range(table.num_columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _plain(cell: Any) -> Any:
    return cell.to_pydatetime() if hasattr(cell, "to_pydatetime") else cell
