"""The state stores of the benchmark behind one small face: fill, write durably, read, open again.

`segments` has no store: an epoch's changes are one segment, written and synced as a task does it,
and reads open the segments that the manifest names.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from headrace.bench.backends.workload import COMPUTATION, FIELD_NAME, FILLED, KeySet
from headrace.bench.servers.processes import ServerProcess
from headrace.log.content import digest_of
from headrace.model.values.time import BEGINNING
from headrace.plan.rings.classes import SegmentSlice, SlotClass
from headrace.plan.rings.ring import Ring
from headrace.state.backend import Hashes, StateBackend
from headrace.state.cache import WorkerCache
from headrace.state.compaction import merge_run, parts_of
from headrace.state.segment import Cell, encode_segment
from headrace.state.view import SlotView
from headrace.store.disk import DiskStore

FILL_CELLS = 20_000
FILL_SEGMENTS = 8
"""As many as eight slots would have."""


class MeasuredStore(ABC):
    """A state store that is measured."""

    promise: str
    """What durable means there."""

    @abstractmethod
    def fill(self, keys: KeySet) -> None:
        """Writes all keys, as the first epoch."""

    @abstractmethod
    def write(self, epoch: int, cells: Sequence[Cell]) -> None:
        """Makes the changes of an epoch durable."""

    @abstractmethod
    def read(self, names: Sequence[bytes], hashes: Hashes) -> list[bytes | None]:
        """The values of some keys."""

    @abstractmethod
    def open_again(self, name: bytes, where: int) -> float:
        """Opens the store as a process does after a crash; seconds until a key was read."""

    def tidy(self) -> None:
        """Puts itself in order, as upkeep does in the background of a pipeline."""

    def settle(self) -> None:
        """Ends what it still does in the background: another store has its turn."""

    def close(self) -> None:
        """Frees what is held."""


class MeasuredSegments(MeasuredStore):
    """No store: the segments are the state."""

    promise = "every segment is synced"

    def __init__(self, directory: Path) -> None:
        self._store = DiskStore(directory)
        self._store.make_directory(f"state/{COMPUTATION}")
        self._slices: list[SegmentSlice] = []
        self._cache, self._records = WorkerCache(), Ring.even(1).records(0)

    def fill(self, keys: KeySet) -> None:
        order = np.argsort(keys.hashes)
        for part in np.array_split(order, min(FILL_SEGMENTS, len(order))):
            self._add(FILLED, [keys.cell(int(index), FILLED) for index in part])

    def write(self, epoch: int, cells: Sequence[Cell]) -> None:
        self._add(epoch, cells)

    def read(self, names: Sequence[bytes], hashes: Hashes) -> list[bytes | None]:
        found = self._view().fields(names, hashes)
        cells = [each.fields.get(FIELD_NAME) for each in found]
        return [None if cell is None else cell[0] for cell in cells]

    def open_again(self, name: bytes, where: int) -> float:
        started = time.perf_counter()
        self._cache = WorkerCache()
        self.read([name], np.array([where], np.uint64))
        return time.perf_counter() - started

    def tidy(self) -> None:
        """Merges what was written since the store was filled."""
        run = tuple(one for one in self._slices if one.last_epoch > FILLED)
        parts = parts_of(self._store, run, self._records, (SlotClass(0, 0),))
        merged = list(merge_run(parts, bottom=False, expired_before=BEGINNING))
        self._slices = [one for one in self._slices if one not in run]
        for data, rows in merged:
            self._put(run[0].last_epoch, data, rows)

    def _add(self, epoch: int, cells: Sequence[Cell]) -> None:
        self._put(epoch, encode_segment(cells), len(cells))

    def _put(self, epoch: int, data: bytes, rows: int) -> None:
        name = f"state/{COMPUTATION}/{epoch:012d}-{len(self._slices)}-{digest_of(data)}.arrow"
        self._store.write(name, data)
        if epoch > FILLED:
            self._cache.keep(self._store, name, data)
        self._slices.insert(0, SegmentSlice(name, epoch, rows, len(data)))

    def _view(self) -> SlotView:
        opened = {one.segment: self._cache.segment(self._store, one) for one in self._slices}
        return SlotView(self._slices, self._records, (SlotClass(0, 0),), opened)


class MeasuredBackend(MeasuredStore):
    """A store to which committed epochs are applied."""

    def __init__(
        self,
        opened: Callable[[], StateBackend],
        promise: str,
        *,
        fills_unsynced: bool = False,
        server: ServerProcess | None = None,
    ) -> None:
        """`opened` opens the store as another process would."""
        self._opened, self.promise = opened, promise
        self._fills_unsynced, self._server = fills_unsynced, server
        self._backend = opened()
        self._generation = 0
        self._lead()

    def fill(self, keys: KeySet) -> None:
        with _without_syncs(self._fills_unsynced):
            for first in range(0, len(keys.names), FILL_CELLS):
                some = range(first, min(first + FILL_CELLS, len(keys.names)))
                cells = ((COMPUTATION, keys.cell(index, FILLED)) for index in some)
                self._backend.write(FILLED, cells)
            self._mark(FILLED)

    def write(self, epoch: int, cells: Sequence[Cell]) -> None:
        self._backend.write(epoch, ((COMPUTATION, cell) for cell in cells))
        self._mark(epoch)

    def read(self, names: Sequence[bytes], hashes: Hashes) -> list[bytes | None]:
        found = self._backend.read_fields(COMPUTATION, names, hashes)
        cells = [each.get(FIELD_NAME) for each in found]
        return [None if cell is None else cell.value for cell in cells]

    def open_again(self, name: bytes, where: int) -> float:
        """The old one is not closed: it had no time to put anything in order."""
        started = time.perf_counter()
        place = self._backend.place()
        self._backend = self._opened()
        self._lead(place)
        self.read([name], np.array([where], np.uint64))
        return time.perf_counter() - started

    def settle(self) -> None:
        if self._server is not None:
            self._server.settle()

    def close(self) -> None:
        self._backend.close()

    def _lead(self, place: str = "") -> None:
        self._generation += 1
        self._backend.lead(self._generation, place)
        self._backend.follow(self._backend.place())

    def _mark(self, epoch: int) -> None:
        if not self._backend.raise_applied(epoch, self._backend.marks().run):
            raise RuntimeError("the store restarted during the benchmark")
        self._backend.sync()


@contextmanager
def _without_syncs(chosen: bool) -> Iterator[None]:
    """Files are written and not synced, while a store is filled that syncs each of them."""
    if not chosen:
        yield
        return
    real = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = real
