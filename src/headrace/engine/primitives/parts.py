"""A part of a computation's state: cut by key intervals, joined again, spilled to files, trimmed.

A part is the cells of one computation inside some intervals of the key space, at one epoch: fields,
map entries, timers, holds and waiting records. Cutting and joining copy nothing: a part is a choice
of rows in open segments, as a slot is. So `merge(part.partition(n))` is the part itself.

A part is a reader's own. Nothing of it counts in a checkpoint, and the pipeline may run meanwhile:
open segments stay readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.engine.primitives.epoch_state import State, plain_state, scan_view
from headrace.errors import CorruptCheckpoint, InvalidPipeline
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.sealed import seal, unseal
from headrace.model.values.keys import HASH_SPACE, encode_key, hash_key
from headrace.model.values.time import BEGINNING
from headrace.plan.rings.ring import NOWHERE, KeyInterval
from headrace.state.compaction import SegmentPart, merge_run
from headrace.state.segment import Cell, Segment
from headrace.state.view import SlotView
from headrace.store.location import checkpoint_store
from headrace.store.store import Store

WHOLE = (KeyInterval.between(0, HASH_SPACE),)

_MAGIC = b"headrace-part"
_HEAD = "PART"


class _Spilled(msgspec.Struct, frozen=True):
    """The file that says which files are a part."""

    computation: str
    epoch: int
    clock: int
    intervals: tuple[KeyInterval, ...]
    segments: tuple[str, ...]


class StatePart:
    """Cells of one computation inside some intervals of the key space, at one epoch."""

    def __init__(
        self,
        computation: str,
        epoch: int,
        clock: int,
        view: SlotView,
        intervals: Sequence[KeyInterval] = WHOLE,
    ) -> None:
        self.computation, self.epoch, self.clock = computation, epoch, clock
        self.intervals = tuple(intervals)
        """In order, disjoint, and not touching each other."""
        self._view = view

    def __repr__(self) -> str:
        shown = ", ".join(f"[{each.low:#x}, {each.high:#x})" for each in self.intervals)
        return f"StatePart({self.computation!r}, epoch {self.epoch}, {self.rows:,} rows, {shown})"

    @property
    def rows(self) -> int:
        """How many versions of cells it has, live or not."""
        return self._view.rows

    def get(self, key: Any) -> State | None:
        """The state of one key; None if it has none here."""
        encoded = encode_key(key)
        hashes = np.array([hash_key(encoded)], np.uint64)
        stored = self._view.fetch([encoded], hashes, maps=True)[0]
        return plain_state(stored, encoded, self.clock) or None

    def scan(self) -> Iterator[tuple[Any, State]]:
        """(key, state) of every key, in the order of hashes."""
        return scan_view(self._view, self.clock)

    def cells(self) -> Iterator[Cell]:
        """The live version of every cell, in the order of segments; TTLs are not looked at."""
        return live_cells(self._view.parts)

    # Cutting and joining --------------------------------------------------

    def partition(self, into: int | Sequence[KeyInterval]) -> list[StatePart]:
        """Cuts it into so many parts with about equally many keys, or by the given intervals.

        A key is never cut. Intervals must be disjoint; what lies in none of them is in no part.
        """
        if isinstance(into, int):
            if into < 1:
                raise InvalidPipeline(f"state is cut into 1 or more parts, not {into}")
            bounds = self._bounds(into)
            chosen = [KeyInterval.between(low, high) for low, high in pairwise(bounds)]
        else:
            chosen = list(into)
            _require_disjoint(chosen, "partition")
        return [self._inside(each) for each in chosen]

    @staticmethod
    def merge(parts: Sequence[StatePart]) -> StatePart:
        """Joins parts of one computation and epoch that do not overlap."""
        if not parts:
            raise InvalidPipeline("merge joins one part or more, not none")
        first = parts[0]
        for each in parts[1:]:
            if (each.computation, each.epoch) != (first.computation, first.epoch):
                raise InvalidPipeline(
                    f"parts of {first.computation!r} at epoch {first.epoch} and of "
                    f"{each.computation!r} at epoch {each.epoch} cannot be merged: cut one state"
                )
        together = [interval for part in parts for interval in part.intervals]
        _require_disjoint(together, "merge")
        view = SlotView([], NOWHERE, [], {})
        for part in parts:
            view.join(part._view)
        joined = _touching(sorted(together))
        return StatePart(first.computation, first.epoch, first.clock, view, joined)

    def _inside(self, interval: KeyInterval) -> StatePart:
        own = [
            KeyInterval(max(each.low, interval.low), min(each.last, interval.last))
            for each in self.intervals
            if each.low <= interval.last and interval.low <= each.last
        ]
        view = self._view.inside(interval)
        return StatePart(self.computation, self.epoch, self.clock, view, own)

    def _bounds(self, count: int) -> list[int]:
        """Where to cut: at hashes with equally many keys between them, if there are enough."""
        low, high = self.intervals[0].low if self.intervals else 0, HASH_SPACE
        high = self.intervals[-1].high if self.intervals else high
        hashes = [segment.hashes[a:b] for segment, a, b in self._view.parts]
        distinct = np.unique(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64)
        if len(distinct) > count:
            at = [int(distinct[len(distinct) * n // count]) for n in range(1, count)]
        else:
            at = [low + (high - low) * n // count for n in range(1, count)]
        return [low, *at, high]

    # Writing and rewriting ------------------------------------------------

    def trim(self, before: int | None = None) -> StatePart:
        """A part without what nobody can read any more: old versions, deleted and expired cells.

        `before`: cells that had expired at this time are left out; by default, at the part's own
        time. The new part lies in memory: `spill` it if it is large.
        """
        clock = self.clock if before is None else before
        view = SlotView([], NOWHERE, [], {})
        for number, merged in enumerate(
            merge_run(self._parts(), bottom=True, expired_before=clock)
        ):
            name = self._name(number, digest_of(merged.data))
            view.join(SlotView.of_whole(Segment(name, pa.py_buffer(merged.data))))
        return StatePart(self.computation, self.epoch, self.clock, view, self.intervals)

    def spill(self, place: str | os.PathLike[str] | Store) -> StatePart:
        """Writes it to files of its own; returns the part that reads them, mapped, not in memory.

        `place` is an empty directory or URL. `StatePart.open` finds it there again, in any process.
        """
        store = checkpoint_store(place)
        if store.list(""):
            raise InvalidPipeline(f"{store.where()} is not empty: spill into a place of its own")
        store.make_directory("")
        names: list[str] = []
        for number, merged in enumerate(
            merge_run(self._parts(), bottom=False, expired_before=BEGINNING)
        ):
            name = self._name(number, digest_of(merged.data))
            store.write(name, merged.data)
            names.append(name)
        head = _Spilled(self.computation, self.epoch, self.clock, self.intervals, tuple(names))
        store.write(_HEAD, seal(_MAGIC, msgspec.json.encode(head)))
        return StatePart.open(store)

    @staticmethod
    def open(place: str | os.PathLike[str] | Store) -> StatePart:
        """A part that was spilled."""
        store = checkpoint_store(place)
        try:
            data = store.read(_HEAD)
        except FileNotFoundError:
            raise InvalidPipeline(
                f"{store.where()} holds no spilled part: there is no {_HEAD} file; an interrupted "
                "spill leaves none"
            ) from None
        where = store.where(_HEAD)
        try:
            head = msgspec.json.decode(unseal(_MAGIC, data, where), type=_Spilled)
        except msgspec.DecodeError as error:
            raise CorruptCheckpoint(f"{where} cannot be decoded: {error}") from None
        view = SlotView([], NOWHERE, [], {})
        for name in head.segments:
            view.join(SlotView.of_whole(Segment(name, _mapped(store, name))))
        return StatePart(head.computation, head.epoch, head.clock, view, head.intervals)

    def _name(self, number: int, digest: str) -> str:
        label = f"{self.computation}~{number or ''}"
        return paths.content_name(self.epoch, label, digest, ".arrow")

    def _parts(self) -> list[SegmentPart]:
        return _as_run(self._view.parts)


def live_cells(rows: Sequence[tuple[Segment, int, int]]) -> Iterator[Cell]:
    """The live version of every cell of some rows of segments, newest segment first, in order."""
    for data, _ in merge_run(_as_run(rows), bottom=True, expired_before=BEGINNING):
        name = paths.content_name(0, "merged", digest_of(data), ".arrow")
        batch = Segment(name, pa.py_buffer(data)).batch
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Cell(*row)


def _as_run(rows: Sequence[tuple[Segment, int, int]]) -> list[SegmentPart]:
    return [
        SegmentPart(segment, np.array([low]), np.array([high]), segment.batch.nbytes)
        for segment, low, high in rows
    ]


def _mapped(store: Store, name: str) -> pa.Buffer:
    try:
        return store.map(name)
    except FileNotFoundError:
        raise CorruptCheckpoint(f"{store.where(name)} is missing: spill the part again") from None


def _require_disjoint(intervals: Sequence[KeyInterval], what: str) -> None:
    for one, other in pairwise(sorted(intervals)):
        if other.low <= one.last:
            raise InvalidPipeline(
                f"{what}: the intervals [{one.low:#x}, {one.high:#x}) and [{other.low:#x}, "
                f"{other.high:#x}) overlap: a key belongs to one part"
            )


def _touching(intervals: Sequence[KeyInterval]) -> list[KeyInterval]:
    """Sorted intervals, where those that touch are one."""
    found: list[KeyInterval] = []
    for each in intervals:
        if found and found[-1].high == each.low:
            found[-1] = KeyInterval(found[-1].low, each.last)
        else:
            found.append(each)
    return found
