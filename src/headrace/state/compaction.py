"""Compaction: chooses the segments of a slot to merge (a range of segments), and merges them.

Both are pure functions. The rules of C2 and J5: the chosen segments are contiguous in the order of
last epochs, and include all entries of an equal last epoch or none of them. Each is read only in
the classes where it counts. The result has the largest last epoch, and replaces the range.
Tombstones and expired rows are dropped only if the slot has no older segment. With a state store,
fields and map entries of segments up to the log's mark are dropped, because the store has them, and
those above it are all kept, because older versions may be in the store (O). A large range is
merged in pieces of the key space, so that no merge needs more memory than one piece. The pieces
have the same last epoch, so a later merge takes all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import gt
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.limits import LIMITS, Limits
from headrace.model.values.arrow import one_batch
from headrace.model.values.keys import HASH_SPACE
from headrace.model.values.time import BEGINNING, END
from headrace.plan.rings.classes import SegmentSlice, SlotClass
from headrace.plan.rings.ring import KeyInterval, SlotRecords
from headrace.state.merge_order import order_of
from headrace.state.segment import ENTRY, FIELD, SCHEMA, Segment, encode_batch
from headrace.state.view import Counting
from headrace.store.store import Store

GROWTH = 4
"""A segment is merged too if it is at most this many times as large as all newer ones."""


SMALL_BYTES = 1 << 20
"""Segments below this size count as equally large."""

ChooseRun = Callable[[Sequence[SegmentSlice]], tuple[SegmentSlice, ...]]
"""Which segments of a slot to merge, newest first; () for none."""


def choose(
    entries: Sequence[SegmentSlice], segments_min: int = LIMITS.merge_segments_min
) -> tuple[SegmentSlice, ...]:
    """The newest range of segments that is worth a merge, newest first; () if there is none.

    Sizes grow geometrically from new to old, so a slot keeps a logarithmic number of segments,
    and each row is rewritten a logarithmic number of times. Entries of an equal last epoch (for
    example pieces of one merge) count as one: either all are taken or none.
    """
    if len(entries) < segments_min:
        return ()  # most slots in most epochs
    groups = _groups(entries)
    sizes = [g[0].bytes if len(g) == 1 else total_bytes(g) for g in groups]
    for start in range(len(groups) - segments_min + 1):
        total, end = sizes[start], start + 1
        while end < len(groups) and sizes[end] <= max(GROWTH * total, SMALL_BYTES):
            total += sizes[end]
            end += 1
        if end - start >= segments_min:
            return tuple(entry for group in groups[start:end] for entry in group)
    return ()


def choose_old_riders(entries: Sequence[SegmentSlice], before: int) -> tuple[SegmentSlice, ...]:
    """The segments to merge, newest first, if one rides at a log position below `before`; or ().

    A segment that rides keeps its entry of the log, and all later ones, from being trimmed (M1).
    Chosen are the one that has been riding for longest and those that ride next to it.
    """
    oldest = min((entry.at for entry in entries if entry.at), default=before)
    if oldest >= before:
        return ()
    groups = _groups(entries)
    riding = [any(entry.at for entry in group) for group in groups]
    start = next(i for i, group in enumerate(groups) if any(e.at == oldest for e in group))
    end = start + 1
    while start > 0 and riding[start - 1]:
        start -= 1
    while end < len(groups) and riding[end]:
        end += 1
    return tuple(entry for group in groups[start:end] for entry in group)


def _newest_first(entries: Sequence[SegmentSlice]) -> list[SegmentSlice]:
    return sorted(entries, key=lambda e: -e.last_epoch)


def _groups(entries: Sequence[SegmentSlice]) -> list[tuple[SegmentSlice, ...]]:
    """Entries by their last epochs, newest first."""
    epochs = [entry.last_epoch for entry in entries]
    if all(map(gt, epochs, epochs[1:])):  # as almost all manifests are
        return [(entry,) for entry in entries]
    return [tuple(group) for _, group in groupby(_newest_first(entries), key=_last_epoch)]


def _last_epoch(entry: SegmentSlice) -> int:
    return entry.last_epoch


def total_bytes(entries: Iterable[SegmentSlice]) -> int:
    """The total size of the segments of some entries. Several entries may share a segment."""
    return sum({entry.segment: entry.bytes for entry in entries}.values())


def pieces(parts: Sequence[SegmentPart], limits: Limits = LIMITS) -> list[KeyInterval]:
    """The key space, cut into pieces that hold about equally much of some segments.

    A key is never cut. If one key is larger than a piece, its piece is larger too.
    """
    whole = KeyInterval.between(0, HASH_SPACE)
    if sum({part.segment.name: part.bytes for part in parts}.values()) <= limits.merge_piece_bytes:
        return [whole]
    samples = []
    for part in parts:
        hashes = part.segment.hashes
        for low, high in zip(part.lows.tolist(), part.highs.tolist(), strict=True):
            share = part.bytes * (high - low) // max(len(hashes), 1)
            samples_of = 1 + share // limits.merge_sample_bytes
            rows = np.linspace(low, high, samples_of, endpoint=False).astype(np.int64)
            samples.append(hashes[rows])
    if not samples:
        return [whole]
    hashes = np.sort(np.concatenate(samples))
    step = limits.merge_piece_bytes // limits.merge_sample_bytes
    cuts = sorted({*hashes[step::step].tolist()} - {0})
    return [KeyInterval.between(low, high) for low, high in pairwise([0, *cuts, HASH_SPACE])]


def drops_applied(run: Sequence[SegmentSlice], applied: int | None) -> bool:
    """Whether a merge of the range drops cells because the state store has them."""
    return applied is not None and any(entry.last_epoch <= applied for entry in run)


def is_bottom(run: Sequence[SegmentSlice], entries: Sequence[SegmentSlice]) -> bool:
    """Whether the slot has no older segment than those of the range."""
    oldest = min(e.last_epoch for e in run)
    return not any(e.last_epoch < oldest for e in entries)


def later_classes(run: Sequence[SegmentSlice], classes: Sequence[SlotClass]) -> tuple[int, ...]:
    """The classes that began after the range, and in which one of its segments counts (J5)."""
    last = max(e.last_epoch for e in run)
    named = {e.of for e in run}
    return tuple(one.id for one in classes if one.since > last and one.id in named)


class SegmentPart(NamedTuple):
    """A segment of a range, and the ranges of its rows that count in the slot."""

    segment: Segment
    lows: Any
    highs: Any
    bytes: int
    last_epoch: int = 0


def parts_of(
    store: Store,
    run: Sequence[SegmentSlice],
    records: SlotRecords,
    classes: Sequence[SlotClass],
    known: Mapping[str, Segment] | None = None,
) -> list[SegmentPart]:
    """Opens the segments of a range, newest first, each where it counts (J5).

    `known`: segments that are open already.
    """
    counting = Counting(records, classes)
    opened = dict(known or {})
    found: list[SegmentPart] = []
    for entry in _newest_first(run):
        if entry.segment not in opened:
            opened[entry.segment] = Segment.open(store, entry.segment, entry.at)
        segment = opened[entry.segment]
        rows = counting.rows(entry, segment)
        found.append(SegmentPart(segment, *rows, entry.bytes, entry.last_epoch))
    return found


class Merged(NamedTuple):
    """A merged piece of the key space, as a file that is not written yet."""

    data: bytes
    rows: int


def merge_run(
    parts: Sequence[SegmentPart],
    *,
    bottom: bool,
    expired_before: int,
    applied: int | None = None,
    limits: Limits = LIMITS,
) -> Iterator[Merged]:
    """Merges segments, given newest first, in pieces. Only the very last piece may have no rows.

    `applied`: the log's mark, if there is a state store.
    """
    intervals = pieces(parts, limits)
    some = False
    for number, interval in enumerate(intervals, 1):
        inside = [_clipped(part, interval) for part in parts]
        batch = merge(inside, bottom=bottom, expired_before=expired_before, applied=applied)
        if not batch.num_rows and (some or number < len(intervals)):
            continue  # skip an empty piece: one entry is enough to replace the range
        some = True
        yield Merged(encode_batch(batch), batch.num_rows)


def _clipped(part: SegmentPart, interval: KeyInterval) -> SegmentPart:
    """A part inside an interval of hashes."""
    low, high = part.segment.between(interval.low, interval.high)
    lows, highs = np.maximum(part.lows, low), np.minimum(part.highs, high)
    some = lows < highs
    return SegmentPart(part.segment, lows[some], highs[some], part.bytes, part.last_epoch)


def merge_without(
    parts: Sequence[SegmentPart], keys: set[bytes]
) -> tuple[bytes, int, dict[bytes, int]]:
    """Merges all segments of a slot (newest first) into one file without some keys.

    Returns the file, its number of rows, and the number of live cells of each removed key.
    """
    # There is no older segment, so tombstones need not be kept.
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
"""During a merge a column may be larger than 2 GiB, the limit of a segment's column."""


def merge(
    parts: Sequence[SegmentPart], *, bottom: bool, expired_before: int, applied: int | None = None
) -> pa.RecordBatch:
    """The newest version of every cell of `parts` (newest first), sorted.

    With `bottom`, tombstones and rows that expired before `expired_before` are dropped. `applied`
    is the log's mark, if there is a state store: then see the head of this module.
    """
    tables = []
    for age, part in enumerate(parts):
        for low, high in zip(part.lows.tolist(), part.highs.tolist(), strict=True):
            batch = part.segment.batch.slice(low, high - low)
            if applied is not None and part.last_epoch <= applied:
                timed = part.segment.kinds[low:high] > ENTRY
                batch = batch.filter(pa.array(timed))
            ages = pa.array(np.full(batch.num_rows, age, np.int32))
            arrays = [*batch.columns, ages]
            tables.append(pa.Table.from_arrays(arrays, [*SCHEMA.names, "age"]).cast(_WIDE))
    if not tables:
        return one_batch(SCHEMA.empty_table())
    everything = pa.concat_tables(tables)
    order, keep = order_of(everything)
    if bottom:
        gone, kinds, expires = (
            everything.column(name).to_numpy()[order] for name in ("tombstone", "kind", "expires")
        )
        state = np.isin(kinds, (FIELD, ENTRY))
        # END means "never expires", even if the watermark is END.
        expired = state & (expires <= expired_before) & (expires != END)
        dropped = gone | expired
        keep &= ~(dropped if applied is None else dropped & ~state)
    rows = order[keep]
    stays = np.zeros(len(order), np.bool_)
    stays[rows] = True
    # `take` on several parts first copies all of them; `filter` does not.
    kept = everything.filter(pa.array(stays)).drop_columns(["age"])
    return one_batch(kept.take(pa.array((np.cumsum(stays) - 1)[rows])).cast(SCHEMA))
