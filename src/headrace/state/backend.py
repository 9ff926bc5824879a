"""The contract of a state backend: where the fields and map entries of keys are kept.

The delta of an epoch is always a segment. It takes effect with the commit that names it. A
backend copies the cells of committed segments. `segments` is the first backend: there the segments
themselves are the state, and nothing is copied. A key-value store (Redis, RocksDB, HBase) would be
another: it holds the applied cells, and a view puts the segments that are not applied yet on top.
Timers, holds and waiting records stay in segments under every backend, because they are found by
time.

Invariants of every implementation:

1. It holds no data of an epoch that is not committed: `apply` is called after the commit.
2. `apply` may be called again, late, and by a driver that no longer leads. A cell is written only
   over a cell of a lower epoch, compared and written in one atomic step. A deletion leaves a
   tombstone with its epoch, so that an old value cannot come back.
3. `applied` rises to an epoch only when all cells of that epoch, and of all epochs before it, are
   stored.
4. A view reads the deltas first, from new to old, then the applied cells. So a merge of segments
   on top of a store must keep their tombstones, because older values may be in the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from headrace.model.values.time import BEGINNING
from headrace.state.segment import Cell

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

Entries = dict[int, dict[bytes, bytes | None]]
"""Key's index -> entry -> its bytes, or None if deleted. Keys without entries are absent."""


class StoredMap(Protocol):
    """The stored entries of one map of one key. A `Map` reads from it."""

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        """(bytes, expires) of one entry."""
        ...

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Entries from `low` up to `high`, in no particular order, each once."""
        ...


class Stored:
    """The stored cells of one key. The base class stands for a key without state."""

    __slots__ = ("clock", "fields", "version")

    def __init__(self) -> None:
        self.fields: dict[str, tuple[bytes, int] | None] = {}
        """Field -> (bytes, expires), or None if it was deleted."""
        self.version = 0
        """The highest class version that wrote a live cell. Dead cells do not count, so merges do
        not change it."""
        self.clock = BEGINNING
        """The time of the first hook of the key. Values that expired before are not migrated."""

    def map_of(self, key: bytes, name: str) -> StoredMap:
        """A map of the key. Only allowed if `fetch` was called with `maps`."""
        return NO_ENTRIES

    def map_names(self, key: bytes) -> list[str]:
        """The maps of the key that have or had entries."""
        return []


class StateView(ABC):
    """Fields and map entries of some slots of a computation, at one commit.

    Reads are multi-gets: all keys that a task will touch are looked up at once. `hashes` are the
    hashes of the keys (`model/values/keys.hash_key`).
    """

    @abstractmethod
    def fetch(self, keys: Sequence[bytes], hashes: Hashes, *, maps: bool) -> Sequence[Stored]:
        """The stored cells of each key. Its maps can be read only with `maps`."""

    @abstractmethod
    def fields(self, keys: Sequence[bytes], hashes: Hashes) -> Sequence[Stored]:
        """The stored fields of each key. Read-only: keys without fields may share one object."""

    @abstractmethod
    def entries(self, name: str, keys: Sequence[bytes], hashes: Hashes) -> Entries:
        """All entries of one map of each key, by the positions of the keys."""

    @abstractmethod
    def scan(self) -> Iterator[tuple[int, bytes]]:
        """(hash, key) of all keys that have or had state here. A key may appear twice."""


class StateBackend(ABC):
    """Where the fields and map entries of a checkpoint's keys are kept."""

    keeps_history: bool
    """Whether a past epoch can be opened again: `diff` and `replay` need it."""

    @abstractmethod
    def applied(self, computation: str) -> int:
        """The last epoch whose cells were all applied; 0 if there is none."""

    @abstractmethod
    def open(self, computation: str, deltas: StateView) -> StateView:
        """The state of some slots: `deltas`, committed after `applied`, over the applied cells."""

    @abstractmethod
    def apply(self, computation: str, epoch: int, cells: Iterable[Cell]) -> None:
        """Applies the changes of a committed epoch in all slots of a computation.

        Of `cells` only fields and map entries count. The first calls for epochs come in the order
        of epochs.
        """

    @abstractmethod
    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        """Removes the cells that were applied up to `epoch` for these keys, or for all keys.

        It is called after the log has recorded the removal of this state.
        """


class _NoEntries:
    """A map without entries."""

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        return None

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        return iter(())


NO_ENTRIES = _NoEntries()


class SegmentBackend(StateBackend):
    """The segments are the state: a commit that names a segment has applied it."""

    keeps_history = True

    def applied(self, computation: str) -> int:
        return 0

    def open(self, computation: str, deltas: StateView) -> StateView:
        return deltas

    def apply(self, computation: str, epoch: int, cells: Iterable[Cell]) -> None:
        """Nothing to do: the manifest of the commit names the segment."""

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        """Nothing to do: the manifest names segments without these keys."""
