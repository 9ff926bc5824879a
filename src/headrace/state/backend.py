"""The contract of a state backend: where the fields and map entries of keys are kept.

The delta of an epoch is always a segment. It takes effect with the commit that names it. A
backend is a store into which the cells of committed segments are copied, *applied*; a view puts
the segments that are not applied yet on top (`state/backends/applied_view.py`). With
`state="segments"`, the default, there is no backend: the segments themselves are the state. Timers,
holds and waiting records stay in segments under every backend, because they are found by time (O1).

A cell is named by (checkpoint's id, computation, key, kind, field, entry), and bears the epoch that
wrote it, its *stamp*. A store has, for each checkpoint, two numbers and a name of its own
(`StoreMarks`): `applied`, `floor` and `run`.

Invariants of every implementation:

1. It holds no data of an epoch that is not committed: `write` is called after the commit.
2. `write` may be called again, late, and by a driver that no longer leads. A cell is written only
   over a lower stamp, and over nothing only if its epoch is above the floor; compared and written
   in one atomic step per cell (O2). A deletion is a cell without a value, a tombstone.
3. `applied` is raised, never lowered, and only when all cells of that epoch, and of all epochs
   before it, are stored (O4).
4. `floor` is raised, never lowered, and never above `applied`. Tombstones with a stamp at or below
   it may go, others may not (O3).
5. `run` changes whenever cells or marks may have been lost: with each start of a server, and where
   an older copy was put in place (O5).
6. What was written before `sync` returned outlives a crash of the machine, if `run` is the same
   before and after it (O4).
7. A view reads the deltas first, from new to old, then the applied cells. So a merge of segments
   above the log's mark must keep their tombstones, because older values may be in the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from headrace.errors import StoreError
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

    def versions(
        self, low: bytes | None, high: bytes | None
    ) -> Mapping[bytes, tuple[bytes, int] | None]:
        """Entries from `low` up to `high`; also deleted ones, as None, where that is known."""
        ...

    def version(self, entry: bytes) -> tuple[tuple[bytes, int] | None] | None:
        """One entry, or (None,) if it is known to be deleted; None if nothing is known of it."""
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

    def entries_version(self, key: bytes) -> int:
        """The highest class version that wrote an entry of a map of the key; 0 if there is none.

        Deleted entries may count: a migration writes all entries again, so no entry of an older
        version lives beside one of a newer version. Only allowed if `fetch` was called with
        `maps`.
        """
        return 0


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


class StoreMarks(NamedTuple):
    """What a store says of itself, read in one step."""

    applied: int
    """The last epoch of which all cells are stored, with all epochs before it; 0: none."""
    floor: int
    """Below and at this epoch, deletions may have been removed; nothing so old is written again."""
    run: str
    """A name that changes when the store may have lost something."""


class AppliedCell(NamedTuple):
    """A cell as a store has it."""

    stamp: int
    """The epoch that wrote it."""
    value: bytes | None
    """None if it was deleted."""
    expires: int
    version: int


class PlaceGone(StoreError):
    """A commit has named another place, and what was read is removed: read again from there."""


class StateBackend(ABC):
    """Where the fields and map entries of one checkpoint's keys are kept.

    A StoreError means that the same call may succeed later. All methods may be called by several
    threads and processes at once. One that is given many keys or cells makes few requests of them.
    """

    name: str
    """As `state=` calls it: "files", "redis"."""
    keeps_history: bool = False
    """Whether a past epoch can be opened again: `diff` and `replay` need it."""

    # What the store says of itself ----------------------------------------

    @abstractmethod
    def marks(self) -> StoreMarks:
        """The marks of this checkpoint, read in one atomic step."""

    @abstractmethod
    def raise_applied(self, epoch: int, run: str) -> bool:
        """Raises `applied` to an epoch, if it is lower, and if the store's run is still `run`.

        False if the run has changed: what was written since may be lost. One atomic step.
        """

    @abstractmethod
    def sync(self) -> None:
        """Makes durable all that was written before, by whomever."""

    @abstractmethod
    def purge(self, upto: int) -> None:
        """Raises `floor` to `upto`, but never above `applied`; removes tombstones up to the floor.

        The floor is raised before a tombstone is removed, and which ones may go is decided by the
        floor that the store has when each is removed. A store may remove fewer, or none.
        """

    def lost(self) -> str | None:
        """What is lost of all that was stored, in words; "" if nothing is. None: it is not known.

        For `verify`: a cell that is not there looks as if it had never been. It may read all names
        of cells. A store that goes on all the time may answer None.
        """
        return None

    # Cells ----------------------------------------------------------------

    @abstractmethod
    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        """Writes (computation, cell) of a committed epoch, each if it may be written (O2).

        Only fields and map entries are given. The first calls for epochs come in the order of
        epochs; later ones come at any time.
        """

    @abstractmethod
    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        """Replaces every cell with a stamp up to `epoch`, of these keys or of all, by a tombstone.

        The tombstone has the stamp `epoch`. It is called after the log has recorded the removal.
        """

    @abstractmethod
    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        """The fields of each key, with deleted ones as far as the store has them."""

    def read_entries(
        self, computation: str, name: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[bytes, AppliedCell]]:
        """All entries of one map of each key, with deleted ones as far as the store has them."""
        return [dict(self.read_range(computation, name, key, None, None)) for key in keys]

    @abstractmethod
    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        """One entry of a map of a key."""

    @abstractmethod
    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        """The entries of a map of a key from `low` up to `high`, in any order, each once."""

    @abstractmethod
    def map_names(self, computation: str, key: bytes) -> Sequence[str]:
        """The maps of a key that have or had entries."""

    @abstractmethod
    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        """(hash, key) of all keys that have or had state. A key may appear twice."""

    @abstractmethod
    def computations(self) -> Sequence[str]:
        """The computations that have or had state."""

    # Places: for stores without a server, which cannot refuse a late writer ------------------

    def lead(self, generation: int, place: str) -> None:
        """Called once by a driver that leads, before it writes; others only read.

        `place` is what the last commit has named, "" if none has. If it is missing, an older copy
        was put back: then the newest place that is there counts, with its own mark (O6). A store
        whose writers are not judged by a server writes where no older generation does.
        """

    def place(self) -> str:
        """What the next commit names: where all cells are. "" if the store needs no such name.

        The cells there include all that is applied, and readers go there once a commit says so. So
        the commit, which only the leader can write, decides which of several writers counts.
        """
        return ""

    def follow(self, place: str) -> None:
        """Reads from this place from now on, as of now. Called by each task, and by readers."""

    def tidy(self, place: str) -> None:
        """Removes what only other places need. Called after a commit has named this place."""

    def close(self) -> None:
        """Frees connections and files. What is stored stays."""


OpenState = Callable[[str], StateBackend]
"""Opens the state store of a checkpoint, which is given by its id."""


class _NoEntries:
    """A map without entries."""

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        return None

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        return iter(())

    def versions(
        self, low: bytes | None, high: bytes | None
    ) -> Mapping[bytes, tuple[bytes, int] | None]:
        return {}

    def version(self, entry: bytes) -> tuple[tuple[bytes, int] | None] | None:
        return None


NO_ENTRIES = _NoEntries()
