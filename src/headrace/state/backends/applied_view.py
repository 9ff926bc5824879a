"""`AppliedView`: unapplied deltas, newest first, then the cells that a store has (O5).

The store goes on while a task reads from it: epochs are applied to it, and it may restart. So a
task relies on nothing that it has read before `AppliedView.check` has returned.

This module does not know which store it is, nor when epochs are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headrace.model.values.keys import hash_key
from headrace.state.backend import (
    AppliedCell,
    Entries,
    Hashes,
    StateBackend,
    StateView,
    Stored,
    StoredMap,
)


class Overtaken(Exception):
    """What was read from the store is not the state of one epoch: the try counts for nothing."""


class AppliedView(StateView):
    """Deltas over the cells of a store, as of one epoch.

    It lives longer than a task: maps in a worker's cache read through it in later epochs, when the
    store has gone on. So they find the deltas of the task that runs now (`turn`).
    """

    def __init__(self, backend: StateBackend, computation: str) -> None:
        """`computation`: its name in the store."""
        self.backend, self.computation = backend, computation
        self.turns = 0
        """How often the view has turned to other deltas."""
        self._deltas: StateView | None = None
        self._epoch, self._run, self._later = 0, "", 0

    def turn(self, deltas: StateView, epoch: int, run: str) -> None:
        """Shows an epoch from now on: `deltas` are those that the store need not have.

        `run` is the store's run that is known to have all the others.
        """
        self._deltas, self.turns = deltas, self.turns + 1
        self._epoch, self._run, self._later = epoch, run, 0

    def check(self) -> None:
        """Raises Overtaken unless all that was read since `turn` is the state of the epoch."""
        if self._later:
            raise Overtaken(
                f"the state store has a cell of epoch {self._later}, and this try continues epoch "
                f"{self._epoch}: another driver has committed more"
            )
        run = self.backend.marks().run
        if run != self._run:
            raise Overtaken(
                f"the state store restarted while epoch {self._epoch + 1} read from it (its run "
                f"is {run}, and was {self._run}): it may have lost what was not synced"
            )

    def is_moment(self) -> bool:
        """Whether all that was read since `turn` is the state of the epoch, for one who reads from
        outside: the store may have gone on further, and removed what was deleted since (O8)."""
        marks = self.backend.marks()
        return not self._later and marks.run == self._run and marks.floor <= self._epoch

    def is_one_run(self) -> bool:
        """Whether the store has not restarted since `turn`: it has lost nothing."""
        return self.backend.marks().run == self._run

    def seen(self, cell: AppliedCell) -> AppliedCell:
        """Notes the stamp of a cell that was read; `check` judges it, even if hooks go on."""
        if cell.stamp > self._epoch:
            self._later = max(self._later, cell.stamp)
        return cell

    @property
    def deltas(self) -> StateView:
        """The cells that the store need not have."""
        if self._deltas is None:
            raise RuntimeError("an AppliedView is read before its first turn")
        return self._deltas

    # Reading --------------------------------------------------------------

    def fetch(self, keys: Sequence[bytes], hashes: Hashes, *, maps: bool) -> Sequence[Stored]:
        over = self.deltas.fetch(keys, hashes, maps=maps)
        applied = self.backend.read_fields(self.computation, keys, hashes)
        return [AppliedStored(self, cells, each) for cells, each in zip(applied, over, strict=True)]

    def fields(self, keys: Sequence[bytes], hashes: Hashes) -> Sequence[Stored]:
        return self.fetch(keys, hashes, maps=False)

    def entries(self, name: str, keys: Sequence[bytes], hashes: Hashes) -> Entries:
        found: Entries = {}
        over = self.deltas.entries(name, keys, hashes)
        for i, cells in enumerate(self.backend.read_entries(self.computation, name, keys, hashes)):
            hidden = over.get(i, {})
            mine = {e: self.seen(cell).value for e, cell in cells.items() if e not in hidden}
            if mine or hidden:
                found[i] = {**mine, **hidden}
        return found

    def scan(self) -> Iterator[tuple[int, bytes]]:
        yield from self.deltas.scan()
        yield from self.backend.scan(self.computation)


class AppliedStored(Stored):
    """One key's applied cells under those of the deltas."""

    __slots__ = ("_over", "_view")

    def __init__(self, view: AppliedView, applied: Mapping[str, AppliedCell], over: Stored) -> None:
        super().__init__()
        self._view, self._over = view, over
        self.version, self.clock = over.version, over.clock
        for name, cell in applied.items():
            if name in over.fields:
                continue
            value = view.seen(cell).value
            self.fields[name] = None if value is None else (value, cell.expires)
            if value is not None:
                self.version = max(self.version, cell.version)
        self.fields.update(over.fields)

    def map_of(self, key: bytes, name: str) -> StoredMap:
        return AppliedMap(self._view, key, name, self._over.map_of(key, name))

    def map_names(self, key: bytes) -> list[str]:
        applied = self._view.backend.map_names(self._view.computation, key)
        return list(dict.fromkeys([*self._over.map_names(key), *applied]))

    def entries_version(self, key: bytes) -> int:
        view, found = self._view, [self._over.entries_version(key)]
        for name in view.backend.map_names(view.computation, key):
            cells = view.backend.read_range(view.computation, name, key, None, None)
            found += [view.seen(cell).version for _, cell in cells]
        return max(found)


class AppliedMap:
    """The entries of one map: those of the deltas, also deleted ones, hide those of the store."""

    __slots__ = ("_key", "_name", "_over", "_turn", "_view")

    def __init__(self, view: AppliedView, key: bytes, name: str, over: StoredMap) -> None:
        self._view, self._key, self._name = view, key, name
        self._over, self._turn = over, view.turns

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        found = self.version(entry)
        return None if found is None else found[0]

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        for entry, cell in self.versions(low, high).items():
            if cell is not None:
                yield entry, cell

    def version(self, entry: bytes) -> tuple[tuple[bytes, int] | None] | None:
        found = self._deltas().version(entry)
        if found is not None:
            return found
        view = self._view
        cell = view.backend.read_entry(view.computation, self._name, self._key, entry)
        return None if cell is None else (self._plain(cell),)

    def versions(
        self, low: bytes | None, high: bytes | None
    ) -> Mapping[bytes, tuple[bytes, int] | None]:
        view, over = self._view, self._deltas().versions(low, high)
        applied = view.backend.read_range(view.computation, self._name, self._key, low, high)
        mine = {entry: self._plain(cell) for entry, cell in applied if entry not in over}
        return {**mine, **over}

    def _plain(self, cell: AppliedCell) -> tuple[bytes, int] | None:
        value = self._view.seen(cell).value
        return None if value is None else (value, cell.expires)

    def _deltas(self) -> StoredMap:
        """The map in the deltas of the task that runs now; an object may outlive its first task."""
        view, key = self._view, self._key
        if self._turn != view.turns:
            hashes = np.array([hash_key(key)], np.uint64)
            stored = view.deltas.fetch([key], hashes, maps=True)[0]
            self._over, self._turn = stored.map_of(key, self._name), view.turns
        return self._over
