"""A slot's state at one epoch: its segments, newest first, each where it counts.

Reads are multi-gets: all keys that a task will touch are looked up at once. The hash only finds
candidates; every candidate is checked by the key's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.rings.classes import SegmentSlice, SlotClass, counting_in
from headrace.plan.rings.ring import NOWHERE, KeyInterval, SlotRecords
from headrace.state.backend import Entries, Hashes, StateView, Stored
from headrace.state.rows.facts import all_names
from headrace.state.segment import ENTRY, FIELD, TIMER, Segment
from headrace.store.store import Store

_ROWS_AT_ONCE = 4096

CellId = tuple[bytes, str, bytes]
"""(key, field, entry) within one kind."""


class SegmentStored(Stored):
    """The cells of one key in the segments."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[Segment, int, int]] = []
        """Rows of this key's hash, newest segment first."""

    def map_of(self, key: bytes, name: str) -> MapCells:
        return MapCells(self.ranges, key, name)

    def map_names(self, key: bytes) -> list[str]:
        found: dict[str, None] = {}
        for segment, low, high in self.ranges:
            for row in (np.flatnonzero(segment.kinds[low:high] == ENTRY) + low).tolist():
                owner, _, name, _ = segment.identity(row)
                if owner == key:
                    found[name] = None
        return list(found)

    def entries_version(self, key: bytes) -> int:
        highest = 0
        for segment, low, high in self.ranges:
            if not segment.has(ENTRY):
                continue
            if not segment.keys[low].as_py() == key == segment.keys[high - 1].as_py():
                low, high = (segment.bisect(low, high, (key, kind, "", b"")) for kind in (0, 99))
            versions = segment.versions[low:high][segment.kinds[low:high] == ENTRY]
            highest = max(highest, int(versions.max(initial=0)))
        return highest


class SlotView(StateView):
    """The segments of a slot as one sorted map of cells."""

    def __init__(
        self,
        entries: Sequence[SegmentSlice],
        records: SlotRecords,
        classes: Sequence[SlotClass],
        segments: dict[str, Segment],
    ) -> None:
        """`records`: the intervals of the slot. Segments count by the classes of these (J2)."""
        self.segments: list[tuple[Segment, Any, Any]] = []
        """Each segment, newest first, with the ranges of its rows that count, as arrays."""
        self._parts: list[tuple[Segment, int, int]] | None = None
        counting = Counting(records, classes)
        for entry in sorted(entries, key=lambda e: -e.last_epoch):
            segment = segments[entry.segment]
            lows, highs = counting.rows(entry, segment)
            if len(lows):
                self.segments.append((segment, lows, highs))

    @staticmethod
    def of_whole(segment: Segment) -> SlotView:
        """A view of all rows of one segment."""
        found = SlotView([], NOWHERE, [], {})
        if len(segment.hashes):
            found.segments.append((segment, np.array([0]), np.array([len(segment.hashes)])))
        return found

    @property
    def parts(self) -> list[tuple[Segment, int, int]]:
        """Ranges of rows that count, newest segment first."""
        if self._parts is None:
            self._parts = [
                (segment, low, high)
                for segment, lows, highs in self.segments
                for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
            ]
        return self._parts

    @property
    def timed_rows(self) -> int:
        """How many rows of timed cells it has at most, deleted ones included."""
        return sum(segment.index.timed for segment, _, _ in self.segments)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(int((highs - lows).sum()) for _, lows, highs in self.segments)

    @property
    def size(self) -> int:
        """About how many bytes its rows have, as if the rows of a segment were equally large."""
        return sum(
            segment.size * int((highs - lows).sum()) // segment.count
            for segment, lows, highs in self.segments
        )

    def newest_keys(self) -> Iterator[bytes]:
        """Keys that have or had state here, those of the newest segments first. A key may appear
        again."""
        for segment, low, high in self.parts:
            for first in range(low, high, _ROWS_AT_ONCE):
                count = min(_ROWS_AT_ONCE, high - first)
                yield from dict.fromkeys(segment.keys.slice(first, count).to_pylist())

    def join(self, other: SlotView) -> None:
        """Adds the segments of another slot of the same computation."""
        self.segments += other.segments
        self._parts = None

    def ranges(self, hashes: Hashes) -> Iterator[tuple[Segment, Any, Any, Any]]:
        """The rows of these hashes, newest segment first: (index of the hash, from row, to row)."""
        for segment, firsts, lasts in self.segments:
            owners, lows, highs = segment.find(hashes, firsts, lasts)
            if len(owners):
                yield segment, owners, lows, highs

    def fetch(self, keys: Sequence[bytes], hashes: Hashes, *, maps: bool) -> Sequence[Stored]:
        if not maps:
            return self._fields(keys, hashes)
        found = [SegmentStored() for _ in keys]
        for segment, owners, lows, highs in self.ranges(hashes):
            self._collect_fields(segment, owners, lows, highs, keys, found)
            for owner, low, high in zip(
                owners.tolist(), lows.tolist(), highs.tolist(), strict=True
            ):
                found[owner].ranges.append((segment, low, high))
        return found

    def fields(self, keys: Sequence[bytes], hashes: Hashes) -> Sequence[Stored]:
        if any(segment.has(FIELD) for segment, _, _ in self.segments):
            return self._fields(keys, hashes)
        return [Stored()] * len(keys)

    def _fields(self, keys: Sequence[bytes], hashes: Hashes) -> list[Stored]:
        """The fields of some keys. A key of which all fields were found is not searched on."""
        found = [Stored() for _ in keys]
        asked = [each for each in self.segments if each[0].has(FIELD)]
        names = all_names([segment.facts for segment, _, _ in asked])
        left = hashes.argsort()  # in the order of the rows, so neighbours are read together
        hashes = hashes[left]
        for segment, firsts, lasts in asked:
            owners, lows, highs = segment.find(hashes, firsts, lasts, ascending=True)
            if not len(owners):
                continue
            mine = left[owners]
            self._collect_fields(segment, mine, lows, highs, keys, found)
            if names is not None:
                keep = np.ones(len(left), np.bool_)
                keep[owners] = [len(found[one].fields) < len(names) for one in mine.tolist()]
                left, hashes = left[keep], hashes[keep]
                if not len(left):
                    break
        return found

    def entries(self, name: str, keys: Sequence[bytes], hashes: Hashes) -> Entries:
        found: Entries = {}
        asked = pa.array(keys, pa.binary())
        for segment, candidates, lows, highs in self.ranges(hashes):
            rows, owners = rows_and_owners(candidates, lows, highs)
            chosen = segment.kinds[rows] == ENTRY
            rows, owners = rows[chosen], owners[chosen]
            if not len(rows):
                continue
            # The hash only finds candidates. Entries of other maps are not turned into objects.
            key, field = segment.keys.take(pa.array(rows)), segment.fields.take(pa.array(rows))
            same = pc.and_(pc.equal(field, name), pc.equal(key, asked.take(pa.array(owners))))
            chosen = same.to_numpy(zero_copy_only=False)
            columns = segment.rows(rows[chosen], "entry", "value", "tombstone")
            for owner, entry, value, gone in zip(owners[chosen].tolist(), *columns, strict=True):
                # Parts come newest first, so the first version of an entry counts.
                if owner in found:
                    found[owner].setdefault(entry, None if gone else value)
                else:
                    found[owner] = {entry: None if gone else value}
        return found

    @staticmethod
    def _collect_fields(
        segment: Segment,
        owners: np.ndarray[Any, Any],
        lows: np.ndarray[Any, Any],
        highs: np.ndarray[Any, Any],
        keys: Sequence[bytes],
        found: Sequence[Stored],
    ) -> None:
        rows, row_owners = rows_and_owners(owners, lows, highs)
        if (plain := segment.plain) is not None:
            name, expires, version = plain.name, plain.expires, plain.version
            for owner, value in plain.read(rows, row_owners, keys):
                stored = found[owner]
                if name not in stored.fields:
                    stored.fields[name] = None if plain.gone else (value, expires)
                    if not plain.gone and stored.version < version:
                        stored.version = version
            return
        if segment.index.kinds != 1 << FIELD:
            fields = segment.kinds[rows] == FIELD
            rows, row_owners = rows[fields], row_owners[fields]
        columns = segment.of_fields(
            rows, "key", "field", "value", "expires", "version", "tombstone"
        )
        for owner, key, field, value, expires, version, gone in zip(
            row_owners.tolist(), *columns, strict=True
        ):
            if key != keys[owner]:
                continue
            stored = found[owner]
            if field not in stored.fields:
                stored.fields[field] = None if gone else (value, expires)
                if not gone:
                    stored.version = max(stored.version, version)

    def timed(
        self, parts: Sequence[tuple[Segment, int, int]] | None = None
    ) -> Iterator[tuple[int, CellId, tuple[int, int] | None]]:
        """(kind, cell, (time, expires) or None if removed) of all timed cells, newest first.

        Older versions of the same cell may follow: the first version counts.
        """
        for segment, low, high in self.parts if parts is None else parts:
            rows = np.flatnonzero(segment.kinds[low:high] >= TIMER) + low
            if not len(rows):
                continue
            columns = segment.rows(
                rows, "kind", "key", "field", "entry", "time", "expires", "tombstone"
            )
            for kind, key, field, entry, time, expires, gone in zip(*columns, strict=True):
                yield kind, (key, field, entry), None if gone else (time, expires)

    def waiting(self, since: int, until: int) -> Iterator[tuple[CellId, bytes]]:
        """(cell, bytes) of waiting records with since <= time <= until, newest version first, live
        or not."""
        for segment, lows, highs in self.segments:
            rows = segment.waiting(since, until)
            rows = rows[counting(rows, lows, highs)]
            if len(rows):
                columns = segment.rows(rows, "key", "field", "entry", "value")
                for key, field, entry, value in zip(*columns, strict=True):
                    yield (key, field, entry), value

    def inside(self, interval: KeyInterval) -> SlotView:
        """The part of this view in an interval of hashes. No file is opened."""
        found = SlotView([], NOWHERE, [], {})
        for segment, lows, highs in self.segments:
            low, high = segment.between(interval.low, interval.high)
            firsts, lasts = np.maximum(lows, low), np.minimum(highs, high)
            some = firsts < lasts
            if some.any():
                found.segments.append((segment, firsts[some], lasts[some]))
        return found

    def scan(self) -> Iterator[tuple[int, bytes]]:
        for segment, low, high in self.parts:
            column = segment.keys.slice(low, high - low)
            if not len(column):
                continue
            changes = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
            firsts = np.concatenate(([0], np.flatnonzero(changes.to_numpy(False)) + 1))
            keys = column.take(pa.array(firsts)).to_pylist()
            yield from zip(segment.hashes[firsts + low].tolist(), keys, strict=True)


class MapCells:
    """The entries of one map of one key, in segments."""

    __slots__ = ("_field", "_key", "_ranges")

    def __init__(self, ranges: list[tuple[Segment, int, int]], key: bytes, field: str) -> None:
        """`ranges` are the rows of the key's hash, newest segment first."""
        self._ranges, self._key, self._field = ranges, key, field

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        """(bytes, expires) of one entry."""
        found = self.version(entry)
        return None if found is None else found[0]

    def version(self, entry: bytes) -> tuple[tuple[bytes, int] | None] | None:
        """The newest version of one entry, (None,) if it was deleted; None if there is none."""
        identity = (self._key, ENTRY, self._field, entry)
        for segment, low, high in self._ranges:
            row = segment.bisect(low, high, identity)
            if row < high and segment.identity(row) == identity:
                value, expires, gone = segment.rows(
                    np.array([row]), "value", "expires", "tombstone"
                )
                return (None,) if gone[0] else ((value[0], expires[0]),)
        return None

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Entries from `low` up to `high`, in no particular order, each once."""
        for entry, cell in self.versions(low, high).items():
            if cell is not None:
                yield entry, cell

    def versions(
        self, low: bytes | None, high: bytes | None
    ) -> dict[bytes, tuple[bytes, int] | None]:
        """Entries from `low` up to `high`; deleted ones as None.

        The entries of a map lie together in a segment, so each segment gives its part at once.
        """
        merged: dict[bytes, tuple[bytes, int] | None] = {}
        begin = (self._key, ENTRY, self._field, low or b"")
        # No name sorts between a name and the same name with a zero byte appended.
        end = (
            (self._key, ENTRY, self._field + "\0", b"")
            if high is None
            else (self._key, ENTRY, self._field, high)
        )
        for segment, first, last in reversed(self._ranges):
            row = segment.bisect(first, last, begin)
            rows = segment.bisect(row, last, end) - row
            if not rows:
                continue
            names, values, expires, gone = segment.rows(
                np.arange(row, row + rows), "entry", "value", "expires", "tombstone"
            )
            merged.update(zip(names, zip(values, expires, strict=True), strict=True))
            if any(gone):
                merged.update((n, None) for n, is_gone in zip(names, gone, strict=True) if is_gone)
        return merged


class Counting:
    """Where the segments of a slot count, by its intervals and their classes."""

    def __init__(self, records: SlotRecords, classes: Sequence[SlotClass]) -> None:
        self._records, self._classes = records, classes
        self._known: dict[tuple[int, ...], SlotRecords] = {}

    def rows(self, entry: SegmentSlice, segment: Segment) -> tuple[Any, Any]:
        """The ranges of rows of a segment that count: from rows, to rows."""
        ids = tuple(counting_in(entry, self._classes))
        if ids not in self._known:
            every = sum(len(one.ids) for one in self._classes) == len(ids)
            self._known[ids] = self._records if every else self._records.of(ids)
        return segment.inside(self._known[ids])


def open_view(
    store: Store,
    entries: Sequence[SegmentSlice],
    records: SlotRecords,
    classes: Sequence[SlotClass],
) -> SlotView:
    """Opens the segments of a slot's manifest as a view of its cells."""
    segments = {
        entry.segment: Segment.open(store, entry.segment, entry.at, in_parts=not entry.written)
        for entry in entries
    }
    return SlotView(entries, records, classes, segments)


def counting(rows: Any, lows: Any, highs: Any) -> Any:
    """A mask of the rows that lie in some ranges."""
    at = np.searchsorted(lows, rows, "right") - 1
    return (at >= 0) & (rows < highs[np.maximum(at, 0)])


def rows_and_owners(owners: Any, lows: Any, highs: Any) -> tuple[Any, Any]:
    """All rows of some ranges, and for each row the owner of its range."""
    counts = highs - lows
    if not len(counts) or counts.max() == 1:  # mostly a key has one field
        return lows, owners
    starts = np.repeat(lows - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return starts + np.arange(int(counts.sum())), np.repeat(owners, counts)
