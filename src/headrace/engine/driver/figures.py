"""What a driver tells of its run: the progress of each epoch, its counts, and how it ended.

It also holds the stopwatch of the acts of an epoch. Clocks here decide nothing: figures are for
people. Figures of computations come from notes, which may be lost or doubled (K2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from headrace.engine.driver.setup import Setup
from headrace.log.paths import digest_in
from headrace.plan.counters import Counters
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Commit
from headrace.plan.ledger import Ledger
from headrace.plan.listener import Listeners
from headrace.plan.progress import (
    CheckpointProgress,
    ComputationProgress,
    DeadLetter,
    Phases,
    RunSummary,
)
from headrace.plan.summary import lowest_watermark, progress_of, summary_of

PLANNING, JOB, JUDGE, COMMITTING, DELIVER = Phases.__struct_fields__
VOIDING = "void"

STATE_EVERY_S = 1.0
"""How often the state of each computation is summed up; more seldom where that takes long."""
STATE_SHARE = 100
"""At most a part of this of the time goes into those sums."""
LETTERS_MAX = 10

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class Figures:
    """The figures of one run, from the counters of the ledger."""

    def __init__(self, setup: Setup, ledger: Ledger, listeners: Listeners) -> None:
        self._graph, self._used = setup.topology.graph, setup.used
        self._ledger, self._listeners = ledger, listeners
        self._before = ledger.counters.copy()
        self._measured = MeasuredSlots()
        self.watch = Stopwatch()
        self.epochs = 0
        """How many epochs this run has committed."""
        self.backlog: int | None = None
        """About how many records wait to be read, after the plan that was made last."""
        self._wall_s = setup.store.system.wall_s
        self._planned_s = self._queued_s = self._started_s = self._durable_s = 0.0
        """When the last plan was made, and, of this epoch, when its plan was made, its job began,
        and its commit was written."""
        self._sizes: dict[str, int] = {}
        self._sizes_at_s = 0.0

    # While an epoch runs --------------------------------------------------

    def begin(self) -> None:
        """The job of a plan begins soon."""
        self.watch.begin()
        if self._listeners.take_commits:
            self._started_s = self._wall_s()
            self._queued_s = min(self._planned_s or self._started_s, self._started_s)

    def time(
        self, act: str, call: Callable[_Given, _Found], *given: _Given.args, **more: _Given.kwargs
    ) -> _Found:
        """Calls, and adds the time that it takes to an act of the epoch, if anybody asks for it."""
        if not self._listeners:
            return call(*given, **more)
        self.watch.enter(act)
        try:
            return call(*given, **more)
        finally:
            self.watch.leave()
            if self._listeners.take_commits and act == PLANNING:
                self._planned_s = self._wall_s()
            elif self._listeners.take_commits and act == COMMITTING:
                self._durable_s = self._wall_s()

    def seconds(self) -> float:
        """How long the epoch has taken so far."""
        return self.watch.seconds()

    def heard(self, epoch: int, notes: Sequence[SlotNote]) -> None:
        """Takes in what was measured in slots."""
        if self._listeners:
            self._measured.heard(epoch, notes)

    # What is told ---------------------------------------------------------

    def report(self, commit: Commit, seconds: float) -> None:
        """Tells listeners of a committed epoch."""
        if not self._listeners:
            return
        if self._listeners.take_commits:
            self._report_slots(commit)
        counted, used = self.counted(), self._used()
        progress = progress_of(
            self._graph.name, commit, self._ledger, counted, seconds, self.watermark(), used
        )
        self._listeners.epoch(
            progress.with_figures(
                phases=self.watch.phases(),
                attempts=max(1, self.watch.entered.get(JOB, 0)),
                voids=self.watch.voids,
                backlog=self.backlog,
                computations=self._computations(counted),
                letters=tuple(self._measured.take_letters()),
            )
        )

    def _report_slots(self, commit: Commit) -> None:
        """Tells of each slot that the commit has changed, unless some of it was only written."""
        for name, deltas in commit.deltas.items():
            slots = self._ledger.slots.get(name, {})
            for slot, delta in deltas.items():
                state = slots.get(slot)
                if delta.segment is None or state is None or any(e.written for e in state.entries):
                    continue
                self._listeners.committed(
                    CheckpointProgress(
                        self._graph.name, name, slot, commit.epoch, digest_in(delta.segment),
                        delta.bytes, self._queued_s, self._started_s, self._durable_s,
                        self._durable_s,
                    )
                )  # fmt: skip

    def _computations(self, counted: Counters) -> dict[str, ComputationProgress]:
        found, ledger = {}, self._ledger
        self._sum_up_state()
        for name in (*self._graph.injectors, *self._graph.nodes):
            made = self._measured.of.get(name, (0, 0, 0, 0))
            is_source = name in self._graph.injectors
            marks = ledger.outs if is_source else ledger.ins
            found[name] = ComputationProgress(
                counted.records_of.get(name, 0),
                made[0],
                made[1] / 1e6,
                marks.get(name, 0),
                self._sizes.get(name, 0),
                made[2],
                made[3],
                counted.late_of.get(name, 0),
                counted.dead_of.get(name, 0),
                len(ledger.slots.get(name, ())),
            )
        return found

    def _sum_up_state(self) -> None:
        """The bytes of each computation's state; looks at all slots, and so not in every epoch."""
        began = time.perf_counter()
        if began < self._sizes_at_s:
            return
        for name, slots in self._ledger.slots.items():
            sizes = {e.segment: e.bytes for slot in slots.values() for e in slot.entries}
            self._sizes[name] = sum(sizes.values())
        now = time.perf_counter()
        self._sizes_at_s = now + max(STATE_EVERY_S, STATE_SHARE * (now - began))

    def counted(self) -> Counters:
        """The counters of this run so far."""
        return self._ledger.counters.since(self._before)

    def watermark(self) -> int:
        """The lowest input watermark of all computations."""
        return lowest_watermark(self._graph, self._ledger)

    def summary(self, reason: str, undelivered: int, *, whole: bool) -> RunSummary:
        """How the run ended; with `whole`, counters include all runs of this checkpoint."""
        known = self._ledger
        epochs, counted = (known.epoch, known.counters) if whole else (self.epochs, self.counted())
        return summary_of(self._graph, epochs, counted, known, reason, undelivered)


class MeasuredSlots:
    """What notes have said of computations since the run began."""

    def __init__(self) -> None:
        self.of: dict[str, tuple[int, int, int, int]] = {}
        """Computation -> bytes, busy microseconds, hits and misses of object caches."""
        self._heard: set[str] = set()
        """Labels whose note of this epoch has come: another attempt measures the same again."""
        self._epoch = 0
        self._letters: list[DeadLetter] = []

    def heard(self, epoch: int, notes: Sequence[SlotNote]) -> None:
        """Takes notes in; of several for one slot and epoch, the first one counts."""
        if epoch != self._epoch:
            self._epoch, self._heard = epoch, set()
        for note in notes:
            for each in note.letters:
                letter = DeadLetter(
                    note.epoch, each.owner, each.error, each.stream, each.key, each.value
                )
                if len(self._letters) < LETTERS_MAX and letter not in self._letters:
                    self._letters.append(letter)
            if note.epoch != epoch or not note.measures or note.label in self._heard:
                continue
            self._heard.add(note.label)
            name = note.label.rpartition("/")[0]
            objects = (*note.objects, 0, 0)
            more = (note.bytes_in, note.wall_us, objects[0], objects[1])
            known = self.of.get(name, (0, 0, 0, 0))
            self.of[name] = tuple(map(sum, zip(known, more, strict=True)))  # type: ignore[assignment]

    def take_letters(self) -> list[DeadLetter]:
        """Some dead letters since the last call."""
        found, self._letters = self._letters, []
        return found


class Stopwatch:
    """Adds up the time of acts. An act inside another one interrupts the outer one."""

    def __init__(self) -> None:
        self.entered: dict[str, int] = {}
        """Act -> how often it began in this epoch."""
        self.voids = 0
        self._took: dict[str, float] = {}
        self._planned = 0.0
        """The time for the next plan, most of which was made while this epoch was committed."""
        self._inside: list[str] = []
        self._since = self._began = time.perf_counter()

    def begin(self) -> None:
        """An epoch begins; its plan was made before."""
        self._took, self.entered = {PLANNING: self._planned}, {}
        self._planned = 0.0
        self._began = time.perf_counter()

    def enter(self, act: str) -> None:
        """An act begins."""
        self._lap()
        self._inside.append(act)
        self.entered[act] = self.entered.get(act, 0) + 1
        self.voids += act == VOIDING

    def leave(self) -> None:
        """The act that began last has ended."""
        self._lap()
        self._inside.pop()

    def _lap(self) -> None:
        now = time.perf_counter()
        if self._inside:
            act, took = self._inside[-1], now - self._since
            if act == PLANNING:
                self._planned += took
            else:
                self._took[act] = self._took.get(act, 0.0) + took
        self._since = now

    def seconds(self) -> float:
        """How long the epoch has taken so far, without its plan."""
        return time.perf_counter() - self._began

    def phases(self) -> Phases:
        """How long each act of the epoch took."""
        return Phases(*(self._took.get(act, 0.0) for act in Phases.__struct_fields__))
