"""Deliberate bugs that only an object store can show: names are free again, deletes land late."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.causal.journal import Journal
from headrace.engine.driver.delivery import Deliverer
from headrace.engine.driver.driver import Driver
from headrace.engine.upkeep import collection
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.model.sink import Delivery, Part
from headrace.sinks.stored.manifest import ManifestName
from headrace.sinks.stored.sink import StoredSink
from headrace.store.store import ForwardingStore, Store
from headrace.testing.simulator.machine.objects import SimulatedObjectStore

__all__ = [
    "closed_calls_are_looked_for_before_the_intent",
    "closed_calls_are_not_looked_for",
    "epochs_appear_file_by_file",
    "logged_calls_go_before_they_are_closed",
    "manifests_are_made_by_listing",
    "manifests_come_before_their_commit",
    "manifests_name_no_commit",
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
    listed = collection._listed

    def older(store: Store, directory: str) -> list[tuple[str, int]]:
        return [(name, epoch - 1) for name, epoch in listed(store, directory)]

    return patch.object(collection, "_listed", older)


def names_are_freed_before_they_are_written() -> AbstractContextManager[Any]:
    """N3: a task deletes the name of its segment first; the delete may land later."""
    write = SimulatedObjectStore.write

    def tidy(self: SimulatedObjectStore, name: str, data: bytes) -> None:
        if name.startswith((f"{paths.STATE}/", f"{paths.STAGED}/")):
            self.delete(name)
        write(self, name, data)

    return patch.object(SimulatedObjectStore, "write", tidy)


def manifests_are_made_by_listing() -> AbstractContextManager[Any]:
    """N4: a manifest names what lies there of its epoch, of dropped attempts too."""
    manifest = StoredSink._manifest

    def listed(self: StoredSink, delivery: Delivery) -> bytes:
        start, own = f"{delivery.epoch:012d}-", self.own_store()
        found = [info for info in own.walk() if info is not None and info.name.startswith(start)]
        parts = [
            Part(i.name, "", partial(own.read, i.name), i.name, 0, i.size, is_own=True)
            for i in found
        ]
        return manifest(self, msgspec.structs.replace(delivery, parts=parts or delivery.parts))

    return patch.object(StoredSink, "_manifest", listed)


def manifests_come_before_their_commit() -> AbstractContextManager[Any]:
    """N4: an epoch is published, and then committed."""
    commit, deliver = Driver._commit, Deliverer.deliver

    def early(self: Driver, plan: Any, made: Any, riders: Any) -> None:
        deliver(self._deliverer, made, riders)
        commit(self, plan, made, riders)

    stack = ExitStack()
    stack.enter_context(patch.object(Driver, "_commit", early))
    stack.enter_context(patch.object(Deliverer, "deliver", lambda self, *given: None))
    return stack


def epochs_appear_file_by_file() -> AbstractContextManager[Any]:
    """N4: the files of an epoch become visible one after another."""
    publish = StoredSink._publish

    def piecemeal(self: StoredSink, delivery: Delivery) -> None:
        for count in range(1, len(delivery.parts)):
            some = msgspec.structs.replace(delivery, parts=delivery.parts[:count])
            self.store.write(ManifestName(delivery.epoch).name, self._manifest(some))
        if len(delivery.parts) > 1:
            self.store.write(ManifestName(delivery.epoch).name, self._manifest(delivery))
        publish(self, delivery)

    return patch.object(StoredSink, "_publish", piecemeal)


def manifests_name_no_commit() -> AbstractContextManager[Any]:
    """F3, N4: whoever finds a manifest of its epoch takes it for its own, though it is a copy's."""
    return patch.object(StoredSink, "verify", lambda self, epoch, commit: None)
