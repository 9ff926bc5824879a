"""Compaction: which run of a slot's segments to merge, and the merge itself.

Both are pure. The rules are C2's: a run is contiguous in the order of last
epochs and takes all entries of equal last epoch or none; its result covers the
run's hull, bears its largest last epoch and stands in its place; tombstones and
expired rows go only if nothing older lies under the hull. A large run is merged in
pieces of its hull, so that no merge needs more memory than a piece takes; the pieces
share their last epoch, and so are taken together by whatever merges them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.limits import LIMITS, Limits
from headrace.model.values.arrow import one_batch
from headrace.model.values.time import BEGINNING, END
from headrace.plan.epoch import SegmentSlice
from headrace.plan.ring import KeyInterval
from headrace.state.segment import ENTRY, FIELD, SCHEMA, Segment, encode_batch
from headrace.store.store import Store

GROWTH = 4
"""A segment joins a run if it is at most this many times as large as what is newer."""


SMALL_BYTES = 1 << 20
"""Segments below this size count as alike."""

ChooseRun = Callable[[Sequence[SegmentSlice]], tuple[SegmentSlice, ...]]
"""Which segments of a slot to merge, newest first; () for none."""


def choose(
    entries: Sequence[SegmentSlice], segments_min: int = LIMITS.merge_segments_min
) -> tuple[SegmentSlice, ...]:
    """The newest run worth merging, newest first; () where there is none.

    Sizes grow geometrically from new to old, so a slot keeps a logarithmic number
    of segments and each row is rewritten a logarithmic number of times. Entries of equal
    last epoch, pieces of one merge for instance, count as one: all are taken or none.
    """
    ordered = sorted(entries, key=lambda e: -e.last_epoch)
    groups = [tuple(group) for _, group in groupby(ordered, key=lambda e: e.last_epoch)]
    sizes = [total_bytes(group) for group in groups]
    for start in range(len(groups) - segments_min + 1):
        total, end = sizes[start], start + 1
        while end < len(groups) and sizes[end] <= max(GROWTH * total, SMALL_BYTES):
            total += sizes[end]
            end += 1
        if end - start >= segments_min:
            return tuple(entry for group in groups[start:end] for entry in group)
    return ()


def total_bytes(entries: Iterable[SegmentSlice]) -> int:
    """How large the segments of some entries are; several entries may share one."""
    return sum({entry.segment: entry.bytes for entry in entries}.values())


def pieces(
    run: Sequence[SegmentSlice], segments: Mapping[str, Segment], limits: Limits = LIMITS
) -> list[KeyInterval]:
    """The hull of a run, cut so that about as much of it lies in each piece.

    A key is never cut: where one alone is larger than a piece, so is its piece.
    """
    hull = hull_of(run)
    if total_bytes(run) <= limits.merge_piece_bytes:
        return [hull]
    samples = []
    for entry in run:
        segment = segments[entry.segment]
        low, high = segment.between(entry.interval.low, entry.interval.high)
        share = entry.bytes * (high - low) // max(len(segment.hashes), 1)
        samples_of = 1 + share // limits.merge_sample_bytes
        rows = np.linspace(low, high, samples_of, endpoint=False).astype(np.int64)
        samples.append(segment.hashes[rows] if low < high else segment.hashes[:0])
    hashes = np.sort(np.concatenate(samples))
    step = limits.merge_piece_bytes // limits.merge_sample_bytes
    cuts = sorted({*hashes[step::step].tolist()} - {hull.low})
    return [KeyInterval.between(low, high) for low, high in pairwise([hull.low, *cuts, hull.high])]


def is_bottom(run: Sequence[SegmentSlice], entries: Sequence[SegmentSlice]) -> bool:
    """Whether nothing older than the run lies under its hull."""
    hull = hull_of(run)
    oldest = min(e.last_epoch for e in run)
    return not any(
        e.last_epoch < oldest and e.interval.overlap(hull) is not None
        for e in entries
        if e not in run
    )


def hull_of(run: Sequence[SegmentSlice]) -> KeyInterval:
    """The smallest interval around a run."""
    return KeyInterval(min(e.interval.low for e in run), max(e.interval.last for e in run))


class Merged(NamedTuple):
    """A merged part of a run's hull, as a file that is not written yet."""

    interval: KeyInterval
    data: bytes
    rows: int


def merge_run(
    store: Store,
    run: Sequence[SegmentSlice],
    *,
    bottom: bool,
    expired_before: int,
    limits: Limits = LIMITS,
) -> Iterator[Merged]:
    """Merges a run, newest first, in pieces. Only the last one of all may have no rows."""
    segments = {entry.segment: Segment.open(store, entry.segment) for entry in run}
    intervals = pieces(run, segments, limits)
    some = False
    for number, interval in enumerate(intervals, 1):
        parts = [
            (segments[entry.segment], shared)
            for entry in run
            if (shared := entry.interval.overlap(interval)) is not None
        ]
        batch = merge(parts, bottom=bottom, expired_before=expired_before)
        if not batch.num_rows and (some or number < len(intervals)):
            continue  # one entry is enough to say that the run is gone
        some = True
        yield Merged(interval, encode_batch(batch), batch.num_rows)


def merge_without(
    store: Store, entries: Sequence[SegmentSlice], keys: set[bytes]
) -> tuple[bytes, int, dict[bytes, int]]:
    """All of a slot's segments (newest first) as one file without some keys, its rows, and how
    many live cells each of the keys had."""
    parts = [(Segment.open(store, e.segment), e.interval) for e in entries]
    # Nothing lies beneath all of them: deletions need not be kept.
    merged = merge(parts, bottom=True, expired_before=BEGINNING)
    named = pc.is_in(merged.column("key"), pa.array(sorted(keys), pa.binary()))
    counts = {
        row["values"]: row["counts"]
        for row in pc.value_counts(merged.column("key").filter(named)).to_pylist()
    }
    kept = merged.filter(pc.invert(named))
    return encode_batch(kept), kept.num_rows, counts


_LARGE = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
_WIDE = pa.schema(
    [*(pa.field(f.name, _LARGE.get(f.type, f.type), False) for f in SCHEMA), ("age", pa.int32())]
)
"""While rows are moved about, a column may be larger than the 2 GiB that a segment's may be."""


def merge(
    parts: Sequence[tuple[Segment, KeyInterval]], *, bottom: bool, expired_before: int
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
        tables.append(pa.Table.from_arrays(arrays, [*SCHEMA.names, "age"]).cast(_WIDE))
    everything = pa.concat_tables(tables)
    table = everything.drop_columns(["value"])  # moved only where it stays
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
    rows = order.to_numpy()[keep]
    stays = np.zeros(len(order), np.bool_)
    stays[rows] = True
    # To take from several parts copies all of them first; to filter does not.
    kept = everything.filter(pa.array(stays)).drop_columns(["age"])
    return one_batch(kept.take(pa.array((np.cumsum(stays) - 1)[rows])).cast(SCHEMA))


def _first_of_each(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """True for the first, that is newest, row of every cell."""
    n = table.num_rows
    same = np.ones(max(n - 1, 0), np.bool_)
    for name in ("hash", "key", "kind", "field", "entry"):
        column = table.column(name)
        equal = pc.equal(column.slice(1), column.slice(0, max(n - 1, 0)))
        same &= equal.to_numpy()
    return np.concatenate((np.ones(min(n, 1), np.bool_), ~same))
