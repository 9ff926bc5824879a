"""The contract of a state backend: where the fields and map entries of keys are kept.

An epoch's delta is always a segment, and the commit that names it is what makes it count. A
backend takes the cells over from committed segments. `segments` is the first one: there the
segments themselves are the state, and nothing is taken over. A key-value store (Redis, RocksDB,
HBase) is another: it holds what was applied, and the segments that were not applied yet lie over
it. Timers, holds and waiting records stay in segments under every backend, as they are found by
time.

What an implementation must keep:

1. It never holds anything of an epoch that is not committed: `apply` is called after the commit.
2. `apply` may be called again, late, and by a driver that no longer leads. A cell is written only
   over a cell of a lower epoch, compared and written in one step. A deletion leaves a stamped
   tombstone, so that an old value cannot come back.
3. `applied` rises only when all cells of an epoch, and of those before it, are in.
4. A view reads the deltas first, the newest first, then what was applied. So a merge of segments
   that lie over a store keeps their deletions: something older lies beneath them.
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
"""Key's index -> entry -> its bytes, or None where it was deleted. Keys without any are absent."""


class StoredMap(Protocol):
    """The stored entries of one map of one key: what a `Map` reads from."""

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        """(bytes, expires) of one entry."""
        ...

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Entries from `low` up to `high`, in no particular order, each once."""
        ...


class Stored:
    """What is stored for one key. By itself it is that of a key without state."""

    __slots__ = ("clock", "fields", "version")

    def __init__(self) -> None:
        self.fields: dict[str, tuple[bytes, int] | None] = {}
        """Field -> (bytes, expires), or None where it was deleted."""
        self.version = 0
        """The highest version of the class that wrote what is live, so merges do not change it."""
        self.clock = BEGINNING
        """The time of the first hook that will see it: what has expired by then is not migrated."""

    def map_of(self, key: bytes, name: str) -> StoredMap:
        """A map of the key; only where maps were asked for."""
        return NO_ENTRIES

    def map_names(self, key: bytes) -> list[str]:
        """The maps of the key that have or had entries."""
        return []


class StateView(ABC):
    """Fields and map entries of some slots of a computation, as one commit left them.

    Reads are multi-gets: all keys that a task will touch are looked up at once. Hashes are those
    of the keys (`model/values/keys.hash_key`).
    """

    @abstractmethod
    def fetch(self, keys: Sequence[bytes], hashes: Hashes, *, maps: bool) -> Sequence[Stored]:
        """What is stored for each key; its maps can be read only with `maps`."""

    @abstractmethod
    def fields(self, keys: Sequence[bytes], hashes: Hashes) -> Sequence[Stored]:
        """The stored fields of each key, to be read only: keys without any may share one."""

    @abstractmethod
    def entries(self, name: str, keys: Sequence[bytes], hashes: Hashes) -> Entries:
        """All entries of one map of each key, by the positions of the keys."""

    @abstractmethod
    def scan(self) -> Iterator[tuple[int, bytes]]:
        """(hash, key) of everything that has or had state here; a key may come twice."""


class StateBackend(ABC):
    """Where the fields and map entries of a checkpoint's keys are kept."""

    keeps_history: bool
    """Whether a past epoch can be opened again: `diff` and `replay` need it."""

    @abstractmethod
    def applied(self, computation: str) -> int:
        """The last epoch of which everything was taken over; 0 where nothing was."""

    @abstractmethod
    def open(self, computation: str, deltas: StateView) -> StateView:
        """The state of some slots: `deltas`, what was committed after `applied`, over the rest."""

    @abstractmethod
    def apply(self, computation: str, epoch: int, cells: Iterable[Cell]) -> None:
        """Takes over what a committed epoch changed in all slots of a computation.

        Of `cells` only fields and map entries count. Epochs are first applied in their order.
        """

    @abstractmethod
    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        """Removes what was taken over up to `epoch` for these keys, or for all.

        It is called when the log has said that this state is gone.
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
    """Segments are the state: a commit that names one has applied it."""

    keeps_history = True

    def applied(self, computation: str) -> int:
        return 0

    def open(self, computation: str, deltas: StateView) -> StateView:
        return deltas

    def apply(self, computation: str, epoch: int, cells: Iterable[Cell]) -> None:
        """Nothing to do: the manifest of the commit names the segment."""

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        """Nothing to do: the manifest names segments without these keys."""
