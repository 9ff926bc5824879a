"""Deliberate bugs around state stores, each a clause of section O taken out."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from headrace.engine.history.recovery import History
from headrace.engine.primitives.stores.later_deltas import LaterDeltas
from headrace.engine.upkeep.applier import Applier
from headrace.plan.state.applied import StoreMark
from headrace.state.backend import AppliedCell
from headrace.state.backends.applied_view import AppliedView
from headrace.state.backends.memory import CellTable, MemoryBackend
from headrace.state.segment import Cell
from headrace.testing.simulator.faults.state_server import SimulatedBackend

__all__ = [
    "cells_are_compared_and_then_written",
    "cells_are_deleted_without_a_trace",
    "cells_are_written_without_a_look",
    "copies_of_stores_lack_later_deltas",
    "floors_follow_the_log",
    "marks_come_before_cells",
    "marks_come_before_syncs",
    "readers_of_stores_ignore_floors",
    "readers_of_stores_ignore_stamps",
    "restarts_of_stores_are_overlooked",
    "stores_are_read_without_deltas",
    "tombstones_go_without_a_floor",
    "unapplied_commits_leave_the_window",
    "what_the_log_says_of_a_store_counts",
]


def cells_are_written_without_a_look() -> AbstractContextManager[Any]:
    """O2: a cell is written whatever is there: a zombie's old value comes back."""

    def write(self: CellTable, place: Any, cell: AppliedCell) -> None:
        self.cells[place] = cell

    return patch.object(CellTable, "write", write)


def cells_are_compared_and_then_written() -> AbstractContextManager[Any]:
    """O2: compared and then written, in two steps."""

    def write(self: SimulatedBackend, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        for computation, cell in cells:
            self._gate("compare")
            place = (computation, cell.key, cell.kind, cell.field, cell.entry)
            before = self.table.cells.get(place)
            self._gate("write")
            if before is None or before.stamp < epoch:
                value = None if cell.tombstone else cell.value
                made = AppliedCell(epoch, value, cell.expires, cell.version)
                self.table.cells[place] = made

    return patch.object(SimulatedBackend, "write", write)


def cells_are_deleted_without_a_trace() -> AbstractContextManager[Any]:
    """O3: a deletion leaves no tombstone."""
    write = CellTable.write

    def forgetful(self: CellTable, place: Any, cell: AppliedCell) -> None:
        write(self, place, cell)
        if cell.value is None and self.cells.get(place) is cell:
            del self.cells[place]

    return patch.object(CellTable, "write", forgetful)


def tombstones_go_without_a_floor() -> AbstractContextManager[Any]:
    """O3: tombstones are purged, and no floor is raised."""

    def purge(self: CellTable, upto: int) -> None:
        for place, cell in list(self.cells.items()):
            if cell.value is None and cell.stamp <= min(upto, self.applied):
                del self.cells[place]

    return patch.object(CellTable, "purge", purge)


def floors_follow_the_log() -> AbstractContextManager[Any]:
    """O3: the floor is the log's mark, though the store was put back to an older copy."""

    def purge(self: CellTable, upto: int) -> None:
        self.floor = max(self.floor, upto)
        for place, cell in list(self.cells.items()):
            if cell.value is None and cell.stamp <= self.floor:
                del self.cells[place]

    return patch.object(CellTable, "purge", purge)


def marks_come_before_cells() -> AbstractContextManager[Any]:
    """O4: the store's own mark is raised before the cells are in."""
    write = MemoryBackend.write

    def marked_first(self: Any, epoch: int, cells: Any) -> None:
        self.table.raise_applied(epoch)
        for each in cells:
            self._gate("write")
            write(self, epoch, [each])

    return patch.object(SimulatedBackend, "write", marked_first)


def marks_come_before_syncs() -> AbstractContextManager[Any]:
    """O4: the commit carries a mark that the store has not synced."""

    def unsynced(self: Applier) -> None:
        if self._backend is not None:
            self._synced = StoreMark(self._backend.marks().applied)

    return patch.object(Applier, "_sync", unsynced)


def what_the_log_says_of_a_store_counts() -> AbstractContextManager[Any]:
    """O6: the log's mark is trusted: an old copy becomes the state, without a word."""
    marks = SimulatedBackend.marks
    bring_up = Applier._bring_up

    def trusting(self: Applier, work: Any) -> None:
        def higher(backend: SimulatedBackend) -> Any:
            found = marks(backend)
            return found._replace(applied=max(found.applied, work.mark))

        with patch.object(SimulatedBackend, "marks", higher):
            bring_up(self, work)

    return patch.object(Applier, "_bring_up", trusting)


def stores_are_read_without_deltas() -> AbstractContextManager[Any]:
    """O5: a task reads the store alone."""
    turn = AppliedView.turn

    def alone(self: AppliedView, deltas: Any, epoch: int, run: str) -> None:
        deltas.segments, deltas._parts = [], None
        turn(self, deltas, epoch, run)

    return patch.object(AppliedView, "turn", alone)


def restarts_of_stores_are_overlooked() -> AbstractContextManager[Any]:
    """O5: a task does not look whether the store restarted under it."""
    return patch.object(AppliedView, "check", lambda self: None)


def readers_of_stores_ignore_stamps() -> AbstractContextManager[Any]:
    """O8: a reader outside takes a cell of a later epoch."""
    is_moment = AppliedView.is_moment

    def careless(self: AppliedView) -> bool:
        self._later = 0
        return is_moment(self)

    return patch.object(AppliedView, "is_moment", careless)


def readers_of_stores_ignore_floors() -> AbstractContextManager[Any]:
    """O8: a key that was deleted and purged meanwhile looks as if it had never been."""

    def careless(self: AppliedView) -> bool:
        return not self._later and self.backend.marks().run == self._run

    return patch.object(AppliedView, "is_moment", careless)


def copies_of_stores_lack_later_deltas() -> AbstractContextManager[Any]:
    """O8: what was read too new, or too old, is not covered by the deltas that came meanwhile."""
    return patch.object(LaterDeltas, "of", lambda self, computation, slot: [])


def unapplied_commits_leave_the_window() -> AbstractContextManager[Any]:
    """O4: commits that are not applied leave the retention window, with their segments."""
    return patch.object(History, "_unapplied", property(lambda self: self.ledger.epoch))
