"""`dedup`: the first record of each id within a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.state import state
from headrace.model.values.time import END
from headrace.operators.columns.groups import Ints
from headrace.operators.steps.stateless import record_times

if TYPE_CHECKING:
    from headrace.model.context import TableContext


@dataclass
class Passed:
    """The times of records that were passed on: sorted, key after key."""

    times: Ints
    counts: Ints

    @property
    def starts(self) -> Ints:
        """The position at which the times of each key begin."""
        return np.cumsum(self.counts) - self.counts

    @staticmethod
    def of_cells(cells: Sequence[bytes]) -> Passed:
        """The times from the bytes of `cells`."""
        counts = np.fromiter(map(len, cells), np.int64, len(cells)) // 8
        return Passed(np.frombuffer(b"".join(cells), "<i8").astype(np.int64), counts)

    def cells(self) -> list[bytes]:
        """The times of each key in stored form."""
        raw = self.times.astype("<i8").tobytes()
        ends = (np.cumsum(self.counts) * 8).tolist()
        return [raw[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def with_more(self, owners: Ints, times: Ints, *, since: int) -> Passed:
        """These times and others, without times before `since`."""
        size = len(self.counts)
        whose = np.concatenate([np.repeat(np.arange(size), self.counts), owners])
        every = np.concatenate([self.times, times])
        kept = every >= since
        whose, every = whose[kept], every[kept]
        order = np.lexsort((every, whose))
        return Passed(every[order], np.bincount(whose, minlength=size))

    def newest(self) -> Ints:
        """The newest time of each key; 0 if it has none."""
        last = np.where(self.counts > 0, np.cumsum(self.counts) - 1, 0)
        return np.where(self.counts > 0, self.times[last] if len(self.times) else 0, 0)


ROUNDS_MAX = 16
"""If more records of an id than this pass in one epoch, the others are handled one by one."""


class DedupWithin(Computation):
    """Passes on the first record of an id; further ones within the time are dropped and counted.

    "First" means the first to arrive. A record is a duplicate if a record of its id was passed on
    whose time differs by at most `within_us`. So results do not depend on how the input is cut. The
    times of passed records are remembered as long as a duplicate may arrive. A record that is older
    than the watermark by more than `within_us` is not checked; it is dropped as late.
    """

    reads_values = False
    prompt = True
    passed: bytes = state(b"")
    """The times of records that were passed on, in eight bytes each."""

    def __init__(self, within_us: int) -> None:
        self.within_us = within_us

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Passes on the first records of a slot's ids."""
        owners = table.column("key_index").to_numpy().astype(np.int64)
        times = record_times(table)
        old = times < ctx.watermark - self.within_us
        known = Passed.of_cells(ctx.read().column("passed").to_pylist())
        left = self._apart_from(known, np.flatnonzero(~old), owners, times)
        chosen = self._first_of_each(left, owners, times)
        for metric, n in (("late", old.sum()), ("duplicates", (~old).sum() - len(chosen))):
            if n:
                ctx.count(metric, int(n))
        reach = min(2 * self.within_us, END // 2)
        known = known.with_more(owners[chosen], times[chosen], since=ctx.watermark - reach)
        ctx.write(passed=known.cells())
        keys = np.unique(owners[chosen])
        # After this time, every duplicate of the newest record is too late itself.
        until = np.minimum(known.newest()[keys], END - reach - 1) + reach + 1
        ctx.set_timers(keys, until, hold=np.full(len(keys), END))
        ctx.pass_on(chosen)

    def _apart_from(self, known: Passed, rows: Ints, owners: Ints, times: Ints) -> Ints:
        """The rows that are not duplicates of records passed on in earlier epochs."""
        for nth in range(int(known.counts.max(initial=0))):
            mine = owners[rows]
            has = known.counts[mine] > nth
            other = known.times[np.where(has, known.starts[mine] + nth, 0)]
            rows = rows[~(has & (np.abs(times[rows] - other) <= self.within_us))]
        return rows

    def _first_of_each(self, rows: Ints, owners: Ints, times: Ints) -> Ints:
        """The rows among these that are passed on, in the order of arrival."""
        chosen: list[Ints] = []
        for _ in range(ROUNDS_MAX):
            if not len(rows):
                break
            keys, firsts = np.unique(owners[rows], return_index=True)
            first = rows[firsts]
            chosen.append(first)
            known = np.zeros(int(keys[-1]) + 1, np.int64)
            known[keys] = times[first]
            rows = rows[np.abs(times[rows] - known[owners[rows]]) > self.within_us]
        chosen.append(np.array(self._one_by_one(rows, owners, times), np.int64))
        return np.sort(np.concatenate(chosen))

    def _one_by_one(self, rows: Ints, owners: Ints, times: Ints) -> list[int]:
        """The same, row by row, for ids of which many records have passed in this epoch."""
        chosen: list[int] = []
        cells: dict[int, dict[int, int]] = {}
        size = self.within_us + 1
        for i, owner, time in zip(
            rows.tolist(), owners[rows].tolist(), times[rows].tolist(), strict=True
        ):
            # At most one passed record is in each cell of time, so a near one is in the same
            # cell or in a neighbour.
            known, cell = cells.setdefault(owner, {}), time // size
            around = (known.get(cell + step) for step in (-1, 0, 1))
            if all(other is None or abs(other - time) > self.within_us for other in around):
                known[cell] = time
                chosen.append(i)
        return chosen

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Forgets the id: no duplicate can arrive any more."""
        passed = ctx.read().column("passed").to_pylist()
        for key in np.unique(table.column("key_index").to_numpy()).tolist():
            passed[key] = b""
        ctx.write(passed=passed)
