"""Load in the log: what a commit says of it, and what the ledger keeps of that.

A commit of a report epoch carries `LoadFigures`: for each slot whose figure has moved by more than
an eighth since it was last written, one step of a logarithmic scale (K3), and the sketches that a
decision may need. The ledger folds them into a `ComputationLoad` per computation. The fold knows no
option of any driver and no clock: every driver that reads the log has the same load.

A new ring makes all figures of its computation unknown, and unknown is not zero (K5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from headrace.plan.elastic.decision import DECISIONS_KEPT, Decided, Decision
from headrace.plan.elastic.load import Demand
from headrace.plan.elastic.scale import differs, figure_of
from headrace.plan.elastic.sketch import Sketch

REPORTS_KEPT = 8
"""How many reports of a computation's use are kept, to see what happens several times in a row."""
FUTILE_MAX = 5
"""After so many decisions that did not help, the wait for the next one grows no further."""


class CacheFigures(msgspec.Struct, frozen=True, array_like=True):
    """What object caches did: how often an object of a key was in memory, and how often not."""

    hits: int = 0
    misses: int = 0
    prefetched: int = 0
    """Objects that were loaded ahead, when slots came to a process cold (`recovery="eager"`)."""
    used: int = 0
    """How many of these were used."""

    @property
    def hit_rate(self) -> float | None:
        """The share of keys whose objects were in memory; None if no key was asked for."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None

    @property
    def prefetched_rate(self) -> float | None:
        """The share of prefetched objects that were used; None if none was prefetched."""
        return self.used / self.prefetched if self.prefetched else None

    def plus(self, more: CacheFigures) -> CacheFigures:
        """Both together."""
        return CacheFigures(
            self.hits + more.hits,
            self.misses + more.misses,
            self.prefetched + more.prefetched,
            self.used + more.used,
        )

    def then(self, told: CacheFigures) -> CacheFigures:
        """The figures after a report: what was before counts half, so that changes show."""
        half = CacheFigures(self.hits // 2, self.misses // 2, self.prefetched, self.used)
        return half.plus(told)


class LoadFigures(msgspec.Struct, frozen=True):
    """What a commit says of the load since the last such commit."""

    busy: dict[str, dict[int, int]] = {}
    """Computation -> slot -> step of its busy microseconds per second, where it has moved."""
    sketches: dict[str, dict[int, Sketch]] = {}
    """Computation -> slot -> the sketch of its last epoch, where a decision may need it."""
    carried: dict[str, dict[int, int]] = {}
    """Computation -> slot -> records that it carried over, where there were some."""
    demand: dict[str, Demand] = {}
    """Computation -> what its records take, as they arrive."""
    overhead: int = 0
    """How many microseconds an epoch takes besides its records; 0 if that is unknown."""
    objects: dict[str, CacheFigures] = {}
    """Computation -> what the object caches of its slots did."""


class ComputationLoad(msgspec.Struct, frozen=True):
    """The load of one computation, as the ledger keeps it, since its ring last changed."""

    busy: dict[int, int] = {}
    """Slot -> step of its busy microseconds per second, in the last report."""
    before: dict[int, int] = {}
    """The same one report earlier, for slots whose step was another one then."""
    sketches: dict[int, Sketch] = {}
    carried: dict[int, int] = {}
    used: tuple[int, ...] = ()
    """Busy microseconds per second of the busiest slot, by report, the last report at the end."""
    demands: tuple[Demand, ...] = ()
    """What records take, by report, the last report at the end."""
    reports: int = 0
    """How many reports there were."""
    decided: int = 0
    """The epoch of the last decision about this computation."""
    decided_wall: int = 0
    """The wall time of that epoch's plan."""
    busiest: int = 0
    """The figure of the busiest slot when it was last decided to make it lighter."""
    promised: int = 0
    """What that decision was to bring it down to."""
    futile: int = 0
    """How many decisions in a row, at the end, were followed by no lighter report."""
    asked: tuple[int, ...] = ()
    """Slots of a cascade that has begun: each has asked the next one; see `cascade`."""

    @property
    def reports_needed(self) -> int:
        """How many reports a decision needs: two, and more after decisions that did not help."""
        return 2 << min(self.futile, FUTILE_MAX)

    def judged(self, decision: Decision) -> ComputationLoad:
        """The load with a verdict on the last decision, now that another is taken.

        It has helped if a quarter of what it promised came true. A promise of less than an eighth,
        as beside a heavy key, cannot be judged by measured figures.
        """
        promised = self.busiest - self.promised
        futile = self.futile
        if self.busiest and 8 * promised >= self.busiest:
            lighter = self.busiest - min(self.used, default=0)
            futile = 0 if 4 * lighter >= promised else self.futile + 1
        return msgspec.structs.replace(
            self, busiest=decision.busiest, promised=decision.promised, futile=futile
        )

    def twice(self, slot: int) -> int | None:
        """The lower one of a slot's last two figures; None without two reports or a figure."""
        step = self.busy.get(slot)
        if step is None or self.reports < 2:
            return None
        return figure_of(min(step, self.before.get(slot, step)))

    def average(self, slot: int) -> int | None:
        """The average of a slot's last two figures; None if it has none."""
        step = self.busy.get(slot)
        if step is None:
            return None
        return (figure_of(step) + figure_of(self.before.get(slot, step))) // 2

    def averages(self) -> dict[int, int]:
        """The average figure of every slot that has one."""
        found = {slot: figure_of(step) for slot, step in self.busy.items()}
        for slot, step in self.before.items():
            found[slot] = (found[slot] + figure_of(step)) // 2
        return found


class LoadState(msgspec.Struct, frozen=True):
    """The load of all computations, as the ledger keeps it, and what was decided from it."""

    of: dict[str, ComputationLoad] = {}
    """Computation -> its load."""
    decisions: tuple[Decision, ...] = ()
    """The last decisions of the balancer and the scaler, the newest at the end."""
    soon: bool = False
    """Whether the next epoch reports too, whatever the period is."""
    early: bool = False
    """Whether the last report was such a one."""
    overhead: int = 0
    """How many microseconds an epoch takes besides its records; 0 if that is unknown."""
    objects: dict[str, CacheFigures] = {}
    """Computation -> what its object caches did; older reports count less."""

    def reported(self, figures: LoadFigures, computations: Iterable[str]) -> LoadState:
        """The load after a report; computations that no longer exist are dropped."""
        found: dict[str, ComputationLoad] = {}
        for name in computations:
            load = self.of.get(name, ComputationLoad())
            told = figures.busy.get(name, {})
            busy = {**load.busy, **told}
            busiest = figure_of(max(busy.values(), default=0))
            found[name] = msgspec.structs.replace(
                load,
                busy=busy,
                before={slot: load.busy[slot] for slot in told if slot in load.busy},
                sketches=figures.sketches.get(name, {}),
                carried=figures.carried.get(name, {}),
                used=(*load.used, busiest)[-REPORTS_KEPT:] if busy else load.used,
                demands=_with_last(load.demands, figures.demand.get(name)),
                reports=load.reports + bool(busy),
            )
        objects = {
            name: self.objects.get(name, CacheFigures()).then(figures.objects[name])
            if name in figures.objects
            else self.objects[name]
            for name in found
            if name in figures.objects or name in self.objects
        }
        overhead = figures.overhead or self.overhead
        return LoadState(found, self.decisions, early=self.soon, overhead=overhead, objects=objects)

    def decided(self, decided: Decided) -> LoadState:
        """The load after decisions: when each was taken, and how far a cascade has come."""
        found = dict(self.of)
        for decision in decided.decisions:
            name = decision.computation
            if name in found:
                load = found[name]
                found[name] = msgspec.structs.replace(
                    load.judged(decision) if decision.busiest else load,
                    decided=decision.epoch,
                    decided_wall=decision.wall,
                    asked=decided.asked.get(name, load.asked),
                )
        kept = (*self.decisions, *decided.decisions)[-DECISIONS_KEPT:]
        return LoadState(found, kept, decided.soon, self.early, self.overhead, self.objects)

    def without(self, name: str) -> LoadState:
        """The load after a new ring of a computation: only what was decided stays known."""
        load = self.of.get(name)
        if load is None:
            return self
        kept = ComputationLoad(
            decided=load.decided,
            decided_wall=load.decided_wall,
            busiest=load.busiest,
            promised=load.promised,
            futile=load.futile,
            asked=load.asked,
        )
        return msgspec.structs.replace(self, of={**self.of, name: kept})

    def renamed(self, old: str, new: str) -> LoadState:
        """The load after a computation got another name."""
        of = {new if name == old else name: load for name, load in self.of.items()}
        objects = {new if name == old else name: use for name, use in self.objects.items()}
        return msgspec.structs.replace(self, of=of, objects=objects)


def _with_last(demands: tuple[Demand, ...], last: Demand | None) -> tuple[Demand, ...]:
    return demands if last is None else (*demands, last)[-REPORTS_KEPT:]


def moved_steps(
    known: ComputationLoad | None, measured: dict[int, int], slots: Collection[int]
) -> dict[int, int]:
    """The steps to write down: of slots that have none, or whose figure moved by an eighth."""
    before = {} if known is None else known.busy
    return {
        slot: step
        for slot, step in measured.items()
        if slot in slots and (slot not in before or differs(before[slot], step))
    }
