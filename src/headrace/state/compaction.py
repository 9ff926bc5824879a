"""Compaction: which run of a slot's segments to merge, and the merge itself.

Both are pure. The rules are C2's: a run is contiguous in the order of last
epochs and takes all entries of equal last epoch or none; its result covers the
run's hull, bears its largest last epoch and stands in its place; tombstones and
expired rows go only if nothing older lies under the hull.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.rows import one_batch
from headrace.model.time import END
from headrace.plan.epoch import Entry
from headrace.plan.ring import Interval
from headrace.state.segment import ENTRY, FIELD, SCHEMA, Segment

RUN_MIN = 8
"""Merge when this many segments of like size have piled up."""

GROWTH = 4
"""A segment joins a run if it is at most this many times as large as what is newer."""


SMALL_BYTES = 1 << 20
"""Segments below this size count as alike."""


def choose(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The newest run worth merging, newest first; () where there is none.

    Sizes grow geometrically from new to old, so a slot keeps a logarithmic number
    of segments and each row is rewritten a logarithmic number of times.
    """
    ordered = sorted(entries, key=lambda e: -e.last_epoch)
    for start in range(len(ordered) - RUN_MIN + 1):
        if start and ordered[start].last_epoch == ordered[start - 1].last_epoch:
            continue
        total, end = ordered[start].bytes, start + 1
        for end in range(start + 1, len(ordered)):
            if ordered[end].bytes > max(GROWTH * total, SMALL_BYTES):
                break
            total += ordered[end].bytes
        else:
            end = len(ordered)
        # Take all entries of equal last epoch or none.
        while start < end < len(ordered) and ordered[end].last_epoch == ordered[end - 1].last_epoch:
            end -= 1
        if end - start >= RUN_MIN:
            return tuple(ordered[start:end])
    return ()


def is_bottom(run: Sequence[Entry], entries: Sequence[Entry]) -> bool:
    """Whether nothing older than the run lies under its hull."""
    hull = hull_of(run)
    oldest = min(e.last_epoch for e in run)
    return not any(
        e.last_epoch < oldest and e.interval.overlap(hull) is not None
        for e in entries
        if e not in run
    )


def hull_of(run: Sequence[Entry]) -> Interval:
    """The smallest interval around a run."""
    return Interval(min(e.interval.low for e in run), max(e.interval.last for e in run))


def merge(
    parts: Sequence[tuple[Segment, Interval]], *, bottom: bool, expired_before: int
) -> pa.RecordBatch:
    """The newest version of every cell of `parts` (newest first), sorted.

    With `bottom`, tombstones and what expired before `expired_before` go.
    """
    tables = []
    for age, (segment, interval) in enumerate(parts):
        low, high = segment.between(interval.low, interval.high)
        batch = segment.batch.slice(low, high - low)
        ages = pa.array(np.full(high - low, age, np.int32))
        arrays = [*batch.columns, ages]
        tables.append(pa.Table.from_arrays(arrays, [*SCHEMA.names, "age"]))
    table = pa.concat_tables(tables)
    order = pc.sort_indices(
        table,
        sort_keys=[(n, "ascending") for n in ("hash", "key", "kind", "field", "entry", "age")],
    )
    table = table.take(order).combine_chunks()
    keep = _first_of_each(table)
    if bottom:
        gone = table.column("tombstone").to_numpy()
        state = np.isin(table.column("kind").to_numpy(), (FIELD, ENTRY))
        expires = table.column("expires").to_numpy()
        # END is never, also when the watermark is there.
        expired = state & (expires <= expired_before) & (expires != END)
        keep &= ~(gone | expired)
    kept = table.filter(pa.array(keep)).drop_columns(["age"])
    return one_batch(kept.cast(SCHEMA))


def _first_of_each(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """True for the first, that is newest, row of every cell."""
    n = table.num_rows
    same = np.ones(max(n - 1, 0), np.bool_)
    for name in ("hash", "key", "kind", "field", "entry"):
        column = table.column(name)
        equal = pc.equal(column.slice(1), column.slice(0, max(n - 1, 0)))
        same &= equal.to_numpy()
    return np.concatenate((np.ones(min(n, 1), np.bool_), ~same))
