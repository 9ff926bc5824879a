"""`MemoryBackend`: a store of cells in this process, for tests and the simulator.

`MemoryServer` stands for a server with several checkpoints. It can do what happens to servers: a
restart forgets what was not synced, and an older copy may be put in its place. Each method of the
backend is one request, and each step that must be atomic is one method of `CellTable`, so that the
simulator can interrupt between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headrace.model.values.keys import hash_key
from headrace.state.backend import AppliedCell, Hashes, StateBackend, StoreMarks
from headrace.state.segment import ENTRY, FIELD, Cell

Place = tuple[str, bytes, int, str, bytes]
"""(computation, key, kind, field, entry)"""


class CellTable:
    """The cells and marks of one checkpoint; each method is atomic."""

    def __init__(self) -> None:
        self.cells: dict[Place, AppliedCell] = {}
        self.applied = 0
        self.floor = 0

    def copied(self) -> CellTable:
        """The same, apart."""
        found = CellTable()
        found.cells, found.applied, found.floor = dict(self.cells), self.applied, self.floor
        return found

    def write(self, place: Place, cell: AppliedCell) -> None:
        """Writes a cell over a lower stamp; over nothing only above the floor (O2)."""
        before = self.cells.get(place)
        if before is None:
            if cell.stamp > self.floor:
                self.cells[place] = cell
        elif before.stamp < cell.stamp:
            self.cells[place] = cell

    def raise_applied(self, epoch: int) -> None:
        """Raises the mark; never lowers it (O4)."""
        self.applied = max(self.applied, epoch)

    def purge(self, upto: int) -> None:
        """Raises the floor, never above the mark, and removes tombstones up to it (O3)."""
        self.floor = max(self.floor, min(upto, self.applied))
        for place, cell in list(self.cells.items()):
            if cell.value is None and cell.stamp <= self.floor:
                del self.cells[place]

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        """Replaces cells of up to an epoch by tombstones of that epoch."""
        for place, cell in self.cells.items():
            mine = place[0] == computation and (keys is None or place[1] in keys)
            if mine and cell.stamp <= epoch:
                self.cells[place] = AppliedCell(epoch, None, cell.expires, cell.version)


class MemoryServer:
    """A server in this process."""

    def __init__(self) -> None:
        self.tables: dict[str, CellTable] = {}
        self.synced: dict[str, CellTable] = {}
        self.starts = 1

    def table(self, checkpoint: str) -> CellTable:
        """The cells of a checkpoint."""
        return self.tables.setdefault(checkpoint, CellTable())

    def sync(self) -> None:
        """What is written now outlives a restart."""
        self.synced = self.copy()

    def copy(self) -> dict[str, CellTable]:
        """A backup."""
        return {name: table.copied() for name, table in self.tables.items()}

    def restart(self, copy: Mapping[str, CellTable] | None = None) -> None:
        """Starts again: with what was synced, or with an older copy that somebody has put there."""
        kept = self.synced if copy is None else copy
        self.tables = {name: table.copied() for name, table in kept.items()}
        self.sync()
        self.starts += 1


class MemoryBackend(StateBackend):
    """The cells of one checkpoint on a `MemoryServer`."""

    name = "memory"

    def __init__(self, server: MemoryServer, checkpoint: str) -> None:
        self.server, self.checkpoint = server, checkpoint

    @property
    def table(self) -> CellTable:
        """Looked up at each request: the server may have restarted."""
        return self.server.table(self.checkpoint)

    def marks(self) -> StoreMarks:
        return StoreMarks(self.table.applied, self.table.floor, str(self.server.starts))

    def raise_applied(self, epoch: int, run: str) -> bool:
        if self.marks().run != run:
            return False
        self.table.raise_applied(epoch)
        return True

    def sync(self) -> None:
        self.server.sync()

    def lost(self) -> str | None:
        return ""

    def purge(self, upto: int) -> None:
        self.table.purge(upto)

    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        for computation, cell in cells:
            value = None if cell.tombstone else cell.value
            place = (computation, cell.key, cell.kind, cell.field, cell.entry)
            self.table.write(place, AppliedCell(epoch, value, cell.expires, cell.version))

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        self.table.drop(computation, epoch, keys)

    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        return [
            {place[3]: cell for place, cell in self._of(computation, key) if place[2] == FIELD}
            for key in keys
        ]

    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        return self.table.cells.get((computation, key, ENTRY, name, entry))

    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        return [
            (place[4], cell)
            for place, cell in self._of(computation, key)
            if place[2:4] == (ENTRY, name)
            if (low is None or place[4] >= low) and (high is None or place[4] < high)
        ]

    def map_names(self, computation: str, key: bytes) -> Sequence[str]:
        found = (place[3] for place, _ in self._of(computation, key) if place[2] == ENTRY)
        return list(dict.fromkeys(found))

    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        keys = dict.fromkeys(place[1] for place in self.table.cells if place[0] == computation)
        return iter([(hash_key(key), key) for key in keys])

    def computations(self) -> Sequence[str]:
        return list(dict.fromkeys(place[0] for place in self.table.cells))

    def _of(self, computation: str, key: bytes) -> list[tuple[Place, AppliedCell]]:
        return [
            (place, cell)
            for place, cell in self.table.cells.items()
            if place[:2] == (computation, key)
        ]
