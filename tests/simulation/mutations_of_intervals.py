"""Deliberate bugs in checkpoint intervals: in what is written, kept and repaired (M2 to M6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.history.recovery import History
from headrace.engine.upkeep import fragments, held, keeper, makers
from headrace.engine.upkeep.keeper import Keeper
from headrace.engine.upkeep.repairer import Repairer
from headrace.errors import CorruptCheckpoint, DeltaMissing
from headrace.log.holding import HoldingStore
from headrace.plan.interval.state import IntervalState
from headrace.state import cache, segment, view
from headrace.store.store import Store

__all__ = [
    "checkpoints_come_before_their_fragments",
    "deltas_are_found_by_slot_and_epoch",
    "fragments_are_of_the_present",
    "fragments_lack_what_their_executor_has_not",
    "held_deltas_go_before_their_checkpoint",
    "repairs_are_not_compared",
    "repairs_plan_again",
    "sources_are_released_at_the_commit",
    "the_window_forgets_the_checkpoint",
]

ON_EXECUTORS = (
    "fragments_lack_what_their_executor_has_not",
    "held_deltas_go_before_their_checkpoint",
)
"""These need executors with disks of their own, which only checkpoints in object stores have."""
NEEDS = dict.fromkeys(__all__, ("written state lost",)) | dict.fromkeys(
    ON_EXECUTORS, ("executors lost",)
)
ONLY = {"deltas_are_found_by_slot_and_epoch": "dice", "repairs_are_not_compared": "dice"}


def checkpoints_come_before_their_fragments() -> AbstractContextManager[Any]:
    """M3: a commit says that a checkpoint is complete before its fragments are on disk."""

    def lazily(store: Store, name: str, data: bytes) -> None:
        store.write_volatile(name, data)

    return patch.object(fragments, "write_named", lazily)


def sources_are_released_at_the_commit() -> AbstractContextManager[Any]:
    """M3: sources forget what a repair has to read again."""
    remember = History._remember

    def early(self: History, position: int, commit: Any) -> None:
        remember(self, position, commit)
        self.released = {
            stream: {split: state.position for split, state in splits.items()}
            for stream, splits in self.ledger.splits.items()
        }

    return patch.object(History, "_remember", early)


@contextmanager
def deltas_are_found_by_slot_and_epoch() -> Iterator[None]:
    """M4: a file of the same slot and epoch counts, whatever its digest: another try's state."""
    opened = segment.Segment.open

    def anything(store: Store, name: str, at: int = 0, *, in_parts: bool = False) -> Any:
        try:
            return opened(store, name, at, in_parts=in_parts)
        except CorruptCheckpoint:
            home, _, last = name.rpartition("/")
            for other in store.list(home):
                if other.split("-")[:2] == last.split("-")[:2] and other != last:
                    return opened(store, f"{home}/{other}")
            raise

    with patch.object(cache.Segment, "open", staticmethod(anything)):
        yield


def repairs_plan_again() -> AbstractContextManager[Any]:
    """M5: a repair reads what a plan of today would read, and not what was logged."""
    order_of = Repairer._order

    def anew(self: Repairer, past: Any) -> Any:
        order = order_of(self, past)
        reads = [
            [
                msgspec.structs.replace(
                    read, range=msgspec.structs.replace(read.range, end=read.range.end + 1)
                )
                for read in task
            ]
            for task in order.plan.reads
        ]
        plan = msgspec.structs.replace(order.plan, reads=reads)
        return msgspec.structs.replace(order, plan=plan)

    return patch.object(Repairer, "_order", anew)


@contextmanager
def repairs_are_not_compared() -> Iterator[None]:
    """M5: a repair that gives another result counts: dice that nobody logged change the past."""
    made = Repairer.__init__

    def trusting(self: Repairer, *given: Any, **more: Any) -> None:
        made(self, *given, **more)
        self._accepts = True

    with patch.object(Repairer, "__init__", trusting):
        yield


@contextmanager
def fragments_are_of_the_present() -> Iterator[None]:
    """M3: a fragment has changes of epochs after its checkpoint; a repair makes them twice."""
    merged = makers.make_fragment

    def begin(self: Keeper, found: Any) -> None:
        ledger = self._history.ledger
        rings = {name: ref.version for name, ref in ledger.rings.items()}
        at = max(ledger.epoch - 1, ledger.interval.checkpoint)
        self._under_way = keeper._Checkpoint(at, found, ledger.epoch + 1, rings)
        self._go_on()

    def of_now(store: Store, job: Any) -> Any:
        since = min(entry.last_epoch for entry in job.run)
        run = tuple(entry for entry in job.entries if entry.last_epoch >= since)
        return merged(store, job._replace(run=run))._replace(job=job)

    with patch.object(Keeper, "_begin", begin), patch.object(makers, "make_fragment", of_now):
        yield


def the_window_forgets_the_checkpoint() -> AbstractContextManager[Any]:
    """M3: commits, deltas and input since the last checkpoint are not kept for repairs."""
    return patch.object(IntervalState, "durable", lambda self, epoch: epoch)


@contextmanager
def held_deltas_go_before_their_checkpoint() -> Iterator[None]:
    """M2: an executor deletes a delta before a checkpoint has it, and its slot goes on without."""
    opened, release = cache.WorkerCache._open_all, HoldingStore.release

    def without(self: cache.WorkerCache, store: Store, entries: Any) -> dict[str, segment.Segment]:
        found: dict[str, segment.Segment] = {}
        for entry in entries:
            with suppress(DeltaMissing):
                found |= opened(self, store, [entry])
        return found

    def early(self: HoldingStore, before: int) -> None:
        release(self, before + 1)

    def known(self: view.SlotView, entries: Any, *given: Any) -> None:
        made(self, [each for each in entries if each.segment in given[-1]], *given)

    made = view.SlotView.__init__
    with (
        patch.object(cache.WorkerCache, "_open_all", without),
        patch.object(HoldingStore, "release", early),
        patch.object(view.SlotView, "__init__", known),
    ):
        yield


@contextmanager
def fragments_lack_what_their_executor_has_not() -> Iterator[None]:
    """M3: a task that makes a fragment leaves out the deltas that it does not find."""
    made = held.make_fragment

    def of_what_is_there(store: Store, job: Any) -> Any:
        lost = set(held.missing(store, [e.segment for e in job.run if e.written]))
        run = tuple(entry for entry in job.run if entry.segment not in lost)
        return made(store, job._replace(run=run or job.run))._replace(job=job)

    with patch.object(held, "make_fragment", of_what_is_there):
        yield
