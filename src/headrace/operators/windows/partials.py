"""Partial aggregates per (key, window), in columns: created from records, merged, stored, read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import IncompatibleState
from headrace.model.values.arrow import one_array, one_batch
from headrace.model.values.codec import decode_value, packed
from headrace.model.values.rows import Rows
from headrace.model.values.time import END
from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.columns.cells import Form, is_cells, joined, of_stored, to_stored
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.records import Records, Refuse, Refused
from headrace.operators.windows.window import Window

_SIGN = np.uint64(1 << 63)
"""The sign bit. It is flipped, so that negative numbers sort before the others."""

WINDOW_BYTES = 16
"""A window as bytes: its end and its start."""


@dataclass
class Partials:
    """A row per (key, window): key, window, number of records, number of records already emitted,
    newest time, and the cells of the accumulators."""

    key: Ints
    start: Ints
    end: Ints
    count: Ints
    emitted: Ints
    newest: Ints
    parts: list[pa.Array]

    def __len__(self) -> int:
        return len(self.key)

    def _numbers(self) -> tuple[Ints, ...]:
        return (self.key, self.start, self.end, self.count, self.emitted, self.newest)

    @staticmethod
    def _of(numbers: Sequence[Ints], parts: list[pa.Array]) -> Partials:
        key, start, end, count, emitted, newest = numbers
        return Partials(key, start, end, count, emitted, newest, parts)

    def take(self, rows: Any) -> Partials:
        """Some of the rows: positions or a mask."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        chosen = pa.array(rows)
        numbers = [column[rows] for column in self._numbers()]
        return Partials._of(numbers, [part.take(chosen) for part in self.parts])

    def to_rows(self) -> tuple[Ints, Rows]:
        """The rows in the form in which they are sent, with their keys. None was emitted yet.

        If a part is not a typed column, rows are packed in their stored form: together with rows of
        another task they may have to be packed, and then cells would lose their type.
        """
        if any(map(is_cells, self.parts)):
            numbers = [self.start.tolist(), self.end.tolist(), self.count.tolist()]
            rows = zip(*numbers, *map(to_stored, self.parts), strict=True)
            cells = [packed(dict(zip(self._names(), row, strict=True))) for row in rows]
            return self.key, Rows(self.newest, packed=pa.array(cells, pa.binary()))
        columns = [self.start, self.end, self.count, *self.parts]
        table = pa.table(dict(zip(self._names(), columns, strict=True)))
        return self.key, Rows(self.newest, columns=one_batch(table))

    def _names(self) -> list[str]:
        return ["start", "end", "count", *(f"part {i}" for i in range(len(self.parts)))]

    @staticmethod
    def from_rows(rows: Rows, key: Ints, forms: Sequence[Form]) -> Partials:
        """Partials from the rows of `to_rows`, of one task or several."""
        zeros = np.zeros(len(rows), np.int64)
        if rows.packed is None:
            table: Any = rows.columns
            times = [table.column(name).to_numpy() for name in ("start", "end", "count")]
            parts = [one_array(table.column(f"part {i}")) for i in range(len(forms))]
        else:
            values = [decode_value(cell) for cell in rows.packed.to_pylist()]
            times = [np.array([v[n] for v in values], np.int64) for n in ("start", "end", "count")]
            parts = [
                of_stored(form, [value[f"part {i}"] for value in values])
                for i, form in enumerate(forms)
            ]
        return Partials._of([key, *times, zeros, rows.timestamps], parts)

    def cells(self, maker: int) -> list[bytes]:
        """Each row's counts and accumulators in stored form, with the checksum of their maker."""
        columns = [self.count.tolist(), self.emitted.tolist(), self.newest.tolist()]
        columns += [to_stored(part) for part in self.parts]
        rows = zip([maker] * len(self), *columns, strict=True)
        return [packed(row, what="an accumulator") for row in rows]

    def windows(self) -> list[bytes]:
        """Each row's window as the key of a map: its end and start, as bytes in the same order."""
        pairs = np.stack([self.end, self.start], axis=1).view(np.uint64) ^ _SIGN
        raw = pairs.astype(">u8").tobytes()
        return [raw[at : at + WINDOW_BYTES] for at in range(0, len(raw), WINDOW_BYTES)]

    @staticmethod
    def of_cells(
        key: Sequence[int],
        windows: Sequence[bytes],
        cells: Sequence[bytes],
        forms: Sequence[Form],
        maker: int,
    ) -> Partials:
        """Partials from stored `windows` and `cells`. A cell of another maker is refused."""
        rows = [decode_value(cell) for cell in cells]
        if any(row[0] != maker for row in rows):
            raise IncompatibleState(
                "the open windows in the checkpoint were made by another window or by other "
                "aggregates than it has now. Let the old pipeline run until they have closed, or "
                'give the step another name, .named("..."), under which it starts without state'
            )
        columns = list(zip(*rows, strict=True))[1:] if rows else [()] * (3 + len(forms))
        numbers = [np.array(c, np.int64) for c in (key, *window_times(windows), *columns[:3])]
        parts = [of_stored(form, c) for form, c in zip(forms, columns[3:], strict=True)]
        return Partials._of(numbers, parts)

    def followed_by(self, other: Partials) -> Partials:
        """These rows, followed by others."""
        if not len(other):
            return self
        if not len(self):
            return other
        pairs = zip(self._numbers(), other._numbers(), strict=True)
        numbers = [np.concatenate(pair) for pair in pairs]
        parts = [joined(a, b) for a, b in zip(self.parts, other.parts, strict=True)]
        return Partials._of(numbers, parts)


def records_in(rows: Rows) -> int:
    """How many records the rows of `Partials.to_rows` stand for."""
    if rows.packed is None:
        table: Any = rows.columns
        return int(table.column("count").to_numpy().sum())
    return sum(decode_value(cell)["count"] for cell in rows.packed.to_pylist())


def window_times(windows: Sequence[bytes]) -> tuple[Ints, Ints]:
    """The starts and ends from the bytes of `Partials.windows`."""
    pairs = np.frombuffer(b"".join(windows), ">u8").astype(np.uint64).reshape(-1, 2) ^ _SIGN
    times = pairs.view(np.int64)
    return times[:, 1], times[:, 0]


def forms_of(aggregates: Sequence[Aggregate]) -> tuple[Form, ...]:
    """The parts that all accumulators of a row have."""
    return tuple(form for a in aggregates for form in a.forms)


def merge(
    aggregates: Sequence[Aggregate],
    rows: Partials,
    groups: Groups,
    failed: Callable[[Partials, int, Exception], None],
) -> Partials:
    """One row per group. The windows of a group are equal, or they touch and their kind merges.

    If a user function fails for a row, `failed` is called with that row.
    """
    if groups.count == len(rows):
        order = np.empty(len(rows), np.int64)
        order[groups.of] = np.arange(len(rows))
        return rows.take(order)
    one = groups.one_row()
    merged = Partials(
        rows.key[one],
        -groups.newest(-rows.start),
        groups.newest(rows.end),
        groups.sums(rows.count),
        groups.sums(rows.emitted),
        groups.newest(rows.newest),
        [],
    )
    at = 0
    for aggregate in aggregates:
        merged.parts += aggregate.merge(
            rows.parts[at : at + aggregate.parts], groups, partial(failed, merged)
        )
        at += aggregate.parts
    return merged


def start(
    aggregates: Sequence[Aggregate],
    window: Window,
    records: Records,
    by_time: bool,
    refuse: Refuse,
) -> tuple[Partials, Groups, Ints]:
    """One row per (key, window), the group of each record, and the positions of accepted records.

    Each record is judged alone: `refuse` is called with the position of a record that cannot be
    accepted, and the other records are processed without it.

    Without `by_time` all records of a key are one group: their window is known later. Windows that
    overlap are cut into pieces here; `spread` assigns the pieces to the windows.
    """
    while True:
        try:
            rows, groups = _started(aggregates, window, records, by_time)
            return rows, groups, records.positions
        except Refused as refused:
            for row, error in sorted(refused.errors.items()):
                refuse(int(records.positions[row]), error)
            records = records.without(refused.errors)


def _started(
    aggregates: Sequence[Aggregate], window: Window, records: Records, by_time: bool
) -> tuple[Partials, Groups]:
    if by_time:
        groups, starts, ends = window.cut(records)
    else:
        groups = group([records.key])
        starts, ends = np.zeros(groups.count, np.int64), np.full(groups.count, END)
    parts = [part for a in aggregates for part in a.start(records, groups)]
    count = np.bincount(groups.of, minlength=groups.count)
    newest = groups.newest(records.times)
    zeros = np.zeros(groups.count, np.int64)
    key_of = records.key[groups.one_row()]
    return Partials(key_of, starts, ends, count, zeros, newest, parts), groups


def touching(rows: Partials) -> Groups:
    """Groups of windows of one key that overlap, directly or through other windows."""
    size = len(rows)
    order = np.lexsort((rows.start, rows.key))
    key, starts, ends = rows.key[order], rows.start[order], rows.end[order]
    # The running maximum of ends, separately for each key: ranks of ends, plus an offset per key.
    values, rank = np.unique(ends, return_inverse=True)
    span = len(values)
    highest = np.maximum.accumulate((key - key.min()) * span + rank)
    reach = values[highest % span]
    begins = np.ones(size, np.bool_)
    begins[1:] = (np.diff(key) != 0) | (starts[1:] >= reach[:-1])
    of = np.empty(size, np.int64)
    of[order] = np.cumsum(begins) - 1
    return Groups(of, int(begins.sum()))


def spread(rows: Partials, window: Window) -> Partials:
    """Assigns pieces to all windows that contain them."""
    of, starts, ends = window.windows_of(rows.start)
    found = rows.take(of)
    found.start, found.end = starts, ends
    return found
