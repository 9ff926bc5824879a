"""A slot's state at one epoch: its segments, newest first, cut to their intervals.

Reads are multi-gets: all keys that a task will touch are looked up at once. The
hash only finds candidates; every hit compares the key's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.values.time import BEGINNING
from headrace.plan.epoch import SegmentSlice
from headrace.plan.ring import KeyInterval
from headrace.state.segment import ENTRY, FIELD, TIMER, WAITING, Segment

CellId = tuple[bytes, str, bytes]
"""(key, field, entry) within one kind."""


class Stored:
    """What lies in the segments for one key."""

    __slots__ = ("clock", "fields", "runs", "version")

    def __init__(self) -> None:
        self.fields: dict[str, tuple[bytes, int] | None] = {}
        """Field -> (bytes, expires), or None where it was deleted."""
        self.runs: list[tuple[Segment, int, int]] = []
        """Rows of this key's hash, newest segment first."""
        self.version = 0
        """The highest version of the class that wrote what is live, so merges do not change it."""
        self.clock = BEGINNING
        """The time of the first hook that will see it: what has expired by then is not migrated."""


class SlotView:
    """The segments of a slot as one sorted map of cells."""

    def __init__(
        self,
        entries: Sequence[SegmentSlice],
        intervals: Sequence[KeyInterval],
        segments: dict[str, Segment],
    ) -> None:
        self.parts: list[tuple[Segment, int, int]] = []
        for entry in sorted(entries, key=lambda e: -e.last_epoch):
            segment = segments[entry.segment]
            for interval in intervals:
                shared = entry.interval.overlap(interval)
                if shared is not None:
                    low, high = segment.between(shared.low, shared.high)
                    if low < high:
                        self.parts.append((segment, low, high))

    def runs(
        self, hashes: np.ndarray[Any, np.dtype[np.uint64]]
    ) -> Iterator[tuple[Segment, Any, Any, Any]]:
        """Where rows of these hashes lie, newest segment first: which of them, from row, to row."""
        for segment, first, last in self.parts:
            candidates = np.flatnonzero(segment.bloom.may_have(hashes))
            if not len(candidates):
                continue
            wanted = hashes[candidates]
            window = segment.hashes[first:last]
            lows = np.searchsorted(window, wanted, "left") + first
            highs = np.searchsorted(window, wanted, "right") + first
            present = np.flatnonzero(highs > lows)
            if len(present):
                yield segment, candidates[present], lows[present], highs[present]

    def fetch(
        self, keys: Sequence[bytes], hashes: np.ndarray[Any, np.dtype[np.uint64]], *, maps: bool
    ) -> list[Stored]:
        """What is stored for each key; `maps` also remembers where map entries lie."""
        found = [Stored() for _ in keys]
        for segment, owners, lows, highs in self.runs(hashes):
            self._collect_fields(segment, owners, lows, highs, keys, found)
            if maps:
                for owner, low, high in zip(
                    owners.tolist(), lows.tolist(), highs.tolist(), strict=True
                ):
                    found[owner].runs.append((segment, low, high))
        return found

    def fields(
        self, keys: Sequence[bytes], hashes: np.ndarray[Any, np.dtype[np.uint64]]
    ) -> Sequence[Stored]:
        """The stored fields of each key, to be read only: keys without any may share one."""
        if any((part.kinds[low:high] == FIELD).any() for part, low, high in self.parts):
            return self.fetch(keys, hashes, maps=False)
        return [Stored()] * len(keys)

    @staticmethod
    def _collect_fields(
        segment: Segment,
        owners: np.ndarray[Any, Any],
        lows: np.ndarray[Any, Any],
        highs: np.ndarray[Any, Any],
        keys: Sequence[bytes],
        found: list[Stored],
    ) -> None:
        counts = highs - lows
        starts = np.repeat(lows - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        rows = starts + np.arange(int(counts.sum()))
        row_owners = np.repeat(owners, counts)
        fields = segment.kinds[rows] == FIELD
        rows, row_owners = rows[fields], row_owners[fields]
        columns = segment.rows(rows, (1, 3, 5, 7, 8, 9))
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
        """(kind, cell, (time, expires) or None where it is gone) of all timed cells, newest first.

        The same cell may come again, older: the first one counts.
        """
        for segment, low, high in self.parts if parts is None else parts:
            rows = np.flatnonzero(segment.kinds[low:high] >= TIMER) + low
            if not len(rows):
                continue
            columns = segment.rows(rows, (2, 1, 3, 4, 6, 7, 9))
            for kind, key, field, entry, time, expires, gone in zip(*columns, strict=True):
                yield kind, (key, field, entry), None if gone else (time, expires)

    def waiting(self, until: int) -> Iterator[tuple[CellId, bytes]]:
        """(cell, bytes) of waiting records with time <= until, newest version first, live or
        not."""
        for segment, low, high in self.parts:
            wanted = (segment.kinds[low:high] == WAITING) & (segment.times[low:high] <= until)
            rows = np.flatnonzero(wanted) + low
            if len(rows):
                for key, field, entry, value, gone in zip(
                    *segment.rows(rows, (1, 3, 4, 5, 9)), strict=True
                ):
                    if not gone:
                        yield (key, field, entry), value

    def all_keys(self) -> Iterator[tuple[int, bytes]]:
        """(hash, key) of everything that has or had state here; a key may come twice."""
        for segment, low, high in self.parts:
            column = segment.batch.column(1).slice(low, high - low)
            if not len(column):
                continue
            changes = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
            firsts = np.concatenate(([0], np.flatnonzero(changes.to_numpy(False)) + 1))
            keys = column.take(pa.array(firsts)).to_pylist()
            yield from zip(segment.hashes[firsts + low].tolist(), keys, strict=True)


class MapCells:
    """The stored entries of one map of one key: what a `Map` reads from."""

    __slots__ = ("field", "key", "runs")

    def __init__(self, stored: Stored, key: bytes, field: str) -> None:
        self.runs = stored.runs
        self.key = key
        self.field = field

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        """(bytes, expires) of one entry."""
        identity = (self.key, ENTRY, self.field, entry)
        for segment, low, high in self.runs:
            row = segment.bisect(low, high, identity)
            if row < high and segment.identity(row) == identity:
                if segment.batch.column(9)[row].as_py():
                    return None
                return segment.batch.column(5)[row].as_py(), int(segment.expires[row])
        return None

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Entries from `low` up to `high`, in no particular order, each once.

        The entries of a map lie together in a segment, so each segment gives its run at once.
        """
        merged: dict[bytes, tuple[bytes, int] | None] = {}
        begin = (self.key, ENTRY, self.field, low or b"")
        # No field's name comes between one and the same with a zero behind it.
        end = (
            (self.key, ENTRY, self.field + "\0", b"")
            if high is None
            else (self.key, ENTRY, self.field, high)
        )
        for segment, first, last in reversed(self.runs):
            row = segment.bisect(first, last, begin)
            rows = segment.bisect(row, last, end) - row
            if not rows:
                continue
            names, values, gone = (
                segment.batch.column(c).slice(row, rows).to_pylist() for c in (4, 5, 9)
            )
            cells = zip(values, segment.expires[row : row + rows].tolist(), strict=True)
            merged.update(zip(names, cells, strict=True))
            if any(gone):
                merged.update((n, None) for n, is_gone in zip(names, gone, strict=True) if is_gone)
        for entry, cell in merged.items():
            if cell is not None:
                yield entry, cell
