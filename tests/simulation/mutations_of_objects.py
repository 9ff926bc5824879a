"""Deliberate bugs that only an object store can show: names are free again, deletes land late."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from headrace.causal.journal import Journal
from headrace.engine.driver import collection
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.store.store import ForwardingStore, Store
from headrace.testing.simulator.machine.objects import SimulatedObjectStore

__all__ = [
    "closed_calls_are_looked_for_before_the_intent",
    "closed_calls_are_not_looked_for",
    "logged_calls_go_before_they_are_closed",
    "names_are_freed_before_they_are_written",
    "open_epochs_are_swept",
    "trimmed_entries_go_before_their_marker",
    "trimmed_positions_look_free",
]


def trimmed_positions_look_free() -> AbstractContextManager[Any]:
    """N2: who has put an entry does not look whether its position was trimmed."""
    return patch.object(EpochLog, "_is_trimmed", lambda self, directory: False)


def trimmed_entries_go_before_their_marker() -> AbstractContextManager[Any]:
    """N2: the log is trimmed first, and marked as trimmed afterwards."""

    def trim(self: EpochLog, before: int) -> None:
        keep = before // self._limits.log_directory_entries
        for component in self._store.list(paths.LOG):
            if component.isdigit() and int(component) < keep:
                directory = f"{paths.LOG}/{component}"
                for name in self._store.list(directory):
                    self._store.delete(f"{directory}/{name}")
                self._store.put_if_absent(paths.trimmed_marker(directory), b"")

    return patch.object(EpochLog, "trim", trim)


def closed_calls_are_not_looked_for() -> AbstractContextManager[Any]:
    """E2, N2: who has won an intent calls, though its directory was closed."""
    return patch.object(Journal, "_refuse_closed", lambda self: None)


def closed_calls_are_looked_for_before_the_intent() -> AbstractContextManager[Any]:
    """E2, N2: a task looks for the marker, and then puts its intent, and calls."""
    refuse, intend = Journal._refuse_closed, Journal._intend

    def early(self: Journal, *given: Any) -> Any:
        refuse(self)
        return intend(self, *given)

    stack = ExitStack()
    stack.enter_context(patch.object(Journal, "_intend", early))
    stack.enter_context(patch.object(Journal, "_refuse_closed", lambda self: None))
    return stack


class _MarkedLast(ForwardingStore):
    """Puts the marker of a closed directory after the directory was emptied."""

    def __init__(self, base: Store) -> None:
        super().__init__(base)
        self._waiting: list[str] = []

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if name[-19:].startswith(tuple("0123456789")) and name.endswith(".closed"):
            self._waiting.append(name)
            return True
        return super().put_if_absent(name, data)

    def retire_directory(self, name: str) -> bool:
        found = super().retire_directory(name)
        while self._waiting:
            super().put_if_absent(self._waiting.pop(), b"")
        return found


def logged_calls_go_before_they_are_closed() -> AbstractContextManager[Any]:
    """E2, N2: a directory of logged calls is emptied, and closed afterwards."""
    collect = collection.collect_determinants

    def careless(store: Store, *given: Any) -> Any:
        return collect(_MarkedLast(store), *given)

    return patch.object(collection, "collect_determinants", careless)


def open_epochs_are_swept() -> AbstractContextManager[Any]:
    """C8, N3: what lies there of the open epoch, and no commit names, counts as an orphan."""
    epoch = collection._epoch
    return patch.object(collection, "_epoch", lambda name: epoch(name) - 1)


def names_are_freed_before_they_are_written() -> AbstractContextManager[Any]:
    """N3: a task deletes the name of its segment first; the delete may land later."""
    write = SimulatedObjectStore.write

    def tidy(self: SimulatedObjectStore, name: str, data: bytes) -> None:
        if name.startswith((f"{paths.STATE}/", f"{paths.STAGED}/")):
            self.delete(name)
        write(self, name, data)

    return patch.object(SimulatedObjectStore, "write", tidy)
