"""Rows of one side of a join, in columns: as they arrive, and in state, in chunks.

A side is *columnar* (a column per name) or, if its records do not all have the same columns and
types, a list of dicts; then pairs are combined one by one. Columns are *declared* if they arrived
as columns. Other columns were created here from records of one form, and a null in them has no
type.

A chunk has the rows of one key (and window, or time range) in one epoch: the rows' times, their
shape, and a list of cells per column, as MessagePack. Columns of types that MessagePack does not
know are stored inside as Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import dicts, ipc_batch, ipc_bytes
from headrace.model.values.codec import packed, packed_exactly
from headrace.model.values.extensions import from_extension
from headrace.model.values.rows import Rows
from headrace.operators.columns.groups import Groups, Ints, runs

_PLAIN = (int, float, str, bytes, bool)
_SIMPLE = {
    str(kind): kind
    for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(),
        pa.binary(), pa.large_binary(), pa.null(),
    )
}  # fmt: skip

_chunks = msgspec.msgpack.Decoder(tuple[list[int], msgspec.Raw, list[Any]], ext_hook=from_extension)
_shapes = msgspec.msgpack.Decoder(tuple[bool, list[tuple[str, str]]] | None)
_TIME, _ARROW = "time ", "arrow "
_OBJECTS = msgspec.Raw(msgspec.msgpack.encode(None))


@dataclass
class SideRows:
    """Rows: their keys, their times, and their content as `columns` or as `objects`."""

    key: Ints
    time: Ints
    columns: dict[str, pa.Array] | None
    objects: Sequence[Mapping[str, Any]] = ()
    declared: bool = True
    """Whether the rows arrived as columns, with types."""

    def __len__(self) -> int:
        return len(self.key)

    @staticmethod
    def empty() -> SideRows:
        """No rows, without known columns."""
        return SideRows(np.zeros(0, np.int64), np.zeros(0, np.int64), {})

    @staticmethod
    def of(key: Any, rows: Rows, as_row: Callable[[Any], Mapping[str, Any]]) -> SideRows:
        """Rows that arrived."""
        key = np.asarray(key, np.int64)
        if rows.columns is not None:
            batch = rows.columns
            decoded = map(_without_dictionary, batch.columns)
            arrays = dict(zip(batch.schema.names, decoded, strict=True))
            if arrays:
                return SideRows(key, rows.timestamps, arrays)
        return SideRows.of_objects(key, rows.timestamps, [as_row(value) for value in rows.values()])

    @staticmethod
    def of_objects(key: Any, time: Ints, objects: Sequence[Mapping[str, Any]]) -> SideRows:
        """Rows that are given one by one."""
        columns = uniform(objects)
        kept = () if columns else objects
        return SideRows(np.asarray(key, np.int64), time, columns, kept, declared=False)

    def take(self, rows: Any) -> SideRows:
        """Some of the rows: positions or a mask."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        columns = self.taken(rows)
        objects = () if columns is not None else [self.objects[i] for i in rows.tolist()]
        return SideRows(self.key[rows], self.time[rows], columns, objects, self.declared)

    def taken(self, rows: Ints) -> dict[str, pa.Array] | None:
        """The columns of some rows."""
        if self.columns is None:
            return None
        chosen = pa.array(rows)
        return {name: array.take(chosen) for name, array in self.columns.items()}

    def dicts(self) -> Sequence[Mapping[str, Any]]:
        """The rows one by one."""
        if self.columns is None:
            return self.objects
        return dicts(pa.table(self.columns)) if len(self) else []

    def names(self) -> dict[str, pa.DataType]:
        """The columns that are known, with their types."""
        if self.columns is not None:
            return {name: array.type for name, array in self.columns.items()}
        return {name: pa.null() for row in self.objects for name in row}

    @staticmethod
    def concat(parts: Sequence[SideRows]) -> SideRows:
        """All rows, in order; columnar if they all have the same columns."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else SideRows.empty()
        key = np.concatenate([part.key for part in parts])
        time = np.concatenate([part.time for part in parts])
        columns = _united([part.columns for part in parts])
        if columns is not None:
            declared = all(part.declared for part in parts)
            return SideRows(key, time, columns, declared=declared)
        return SideRows(key, time, None, list(chain.from_iterable(p.dicts() for p in parts)))

    # State ----------------------------------------------------------------

    def chunks(self, groups: Groups) -> tuple[Ints, list[bytes]]:
        """The position of one row of each group, and the group's rows as a chunk."""
        order = np.argsort(groups.of, kind="stable")
        starts = runs(groups.of[order])
        ends = [*starts[1:].tolist(), len(order)]
        times = self.time[order].tolist()
        spans = list(zip(starts.tolist(), ends, strict=True))
        encode = packed
        if self.columns is None:
            rows = [msgspec.Raw(packed_exactly(self.objects[i])) for i in order.tolist()]
            return order[starts], [encode((times[a:b], _OBJECTS, rows[a:b])) for a, b in spans]
        chosen = pa.array(order)
        arrays = [array.take(chosen) for array in self.columns.values()]
        names = [(name, _name(array.type)) for name, array in self.columns.items()]
        shape = msgspec.Raw(encode((self.declared, names)))
        cells = [_cells(array) for array in arrays]
        return order[starts], [
            encode((times[a:b], shape, [_part(column, a, b) for column in cells])) for a, b in spans
        ]

    @staticmethod
    def of_chunks(key: Sequence[int], data: Sequence[bytes]) -> tuple[SideRows, Ints]:
        """The rows of chunks, and the chunk of each row."""
        shaped: dict[bytes, list[tuple[int, list[int], list[Any]]]] = {}
        for i, chunk in enumerate(data):
            times, raw, cells = _chunks.decode(chunk)
            shaped.setdefault(bytes(raw), []).append((i, times, cells))
        parts, origins = [], []
        owners = np.asarray(key, np.int64)
        for shape, found in shaped.items():
            lengths = [len(times) for _, times, _ in found]
            origin = np.repeat(np.array([i for i, _, _ in found], np.int64), lengths)
            time = np.array(list(chain.from_iterable(t for _, t, _ in found)), np.int64)
            origins.append(origin)
            known = _shapes.decode(shape)
            if known is None:
                rows = list(chain.from_iterable(cells for _, _, cells in found))
                parts.append(SideRows(owners[origin], time, None, rows))
                continue
            columns = {
                name: _array([cells[at] for _, _, cells in found], kind)
                for at, (name, kind) in enumerate(known[1])
            }
            parts.append(SideRows(owners[origin], time, columns, declared=known[0]))
        if not parts:
            return SideRows.empty(), np.zeros(0, np.int64)
        return SideRows.concat(parts), np.concatenate(origins)


def matching(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """All pairs of positions whose numbers are equal, sorted by left position."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    return expand(
        np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right"), order
    )


def expand(low: Ints, high: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Pairs of position i with each position of `order[low[i]:high[i]]`."""
    counts = np.maximum(high - low, 0)
    left = np.repeat(np.arange(len(low)), counts)
    at = np.arange(len(left)) + np.repeat(low - np.cumsum(counts) + counts, counts)
    return left, order[at]


def new_pairs(
    find: Callable[[Ints, Ints], tuple[Ints, Ints]], left: tuple[int, int], right: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Pairs with at least one new row. `left` and `right` are (stored rows, new rows after them).

    `find` returns the pairs among some left and some right positions, as indexes of those.
    """
    stored_left, all_left = np.arange(left[0]), np.arange(sum(left))
    all_right = np.arange(sum(right))
    new_left, new_right = all_left[left[0] :], all_right[right[0] :]
    found = []
    for lefts, rights in ((new_left, all_right), (stored_left, new_right)):
        if len(lefts) and len(rights):
            a, b = find(lefts, rights)
            found.append((lefts[a], rights[b]))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def uniform(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array] | None:
    """Columns of dicts, if all have the same names, and each column one plain type; else None."""
    names = tuple(rows[0]) if rows else ()
    if not names or any(tuple(row) != names for row in rows):
        return None
    if not all(type(name) is str for name in names):
        return None  # names in dicts may be other than text, names of columns may not
    columns: dict[str, pa.Array] = {}
    for name in names:
        cells = [row[name] for row in rows]
        kinds = set(map(type, cells)) - {type(None)}
        if len(kinds) > 1 or not kinds <= set(_PLAIN):
            return None
        try:
            columns[name] = pa.array(cells)
        except (pa.ArrowException, OverflowError, UnicodeError):
            return None  # for example a number that is too large
        if kinds == {int} and columns[name].type != pa.int64():
            return None
    return columns


def _united(parts: Sequence[dict[str, pa.Array] | None]) -> dict[str, pa.Array] | None:
    """Concatenates the parts of each column, if their types agree. A part may be all nulls."""
    if any(part is None for part in parts):
        return None
    given: list[dict[str, pa.Array]] = [part for part in parts if part is not None]
    if any(list(part) != list(given[0]) for part in given):
        return None
    columns = {}
    for name in given[0]:
        arrays = [part[name] for part in given]
        kinds = {array.type for array in arrays if not pa.types.is_null(array.type)}
        if len(kinds) > 1:
            return None
        kind = kinds.pop() if kinds else pa.null()
        columns[name] = pa.concat_arrays([a if a.type == kind else a.cast(kind) for a in arrays])
    return columns


def _without_dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _name(kind: pa.DataType) -> str:
    """The name of a type in a shape."""
    if pa.types.is_timestamp(kind):
        return f"{_TIME}{kind.unit} {kind.tz or ''}"
    return str(kind) if str(kind) in _SIMPLE else f"{_ARROW}{kind}"


def _cells(array: pa.Array) -> Any:
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif str(kind) not in _SIMPLE:
        return array
    if array.null_count and not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False).tolist()


def _part(column: Any, start: int, end: int) -> Any:
    if isinstance(column, list):
        return column[start:end]
    batch = pa.record_batch([column.slice(start, end - start)], names=[""])
    return ipc_bytes(batch)


def _array(parts: list[Any], kind: str) -> pa.Array:
    if kind.startswith(_ARROW):
        found = [ipc_batch(part) for part in parts]
        return pa.concat_arrays([batch.column(0) for batch in found])
    cells = list(chain.from_iterable(parts))
    if kind in _SIMPLE:
        return pa.array(cells, _SIMPLE[kind])
    _, unit, zone = kind.split(" ", 2)
    return pa.array(cells, pa.int64()).cast(pa.timestamp(unit, zone or None))
