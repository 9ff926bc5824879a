"""The leader's meter: adds up notes between two reports, and chooses what a commit says of load.

It is the only memory of measurements outside the log, and it may be lost: a new leader begins with
an empty one, and its first report covers fewer epochs. What it writes is data from then on (K3).
It reads no clock. The length of an epoch is the difference of the wall times of two plans, so time
in which nothing happened counts as time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.plan.elastic.even import (
    by_records,
    fair_share,
    heaviest_of,
    heavy_keys,
    hot_by_records,
    hot_slots,
)
from headrace.plan.elastic.figures import (
    CacheFigures,
    ComputationLoad,
    LoadFigures,
    LoadState,
    moved_steps,
)
from headrace.plan.elastic.load import Demand, SlotLoad, SlotNote
from headrace.plan.elastic.scale import figure_of, step_of
from headrace.plan.elastic.scaler import SECOND_US
from headrace.plan.elastic.settings import RING, Elasticity, Scale
from headrace.plan.elastic.sketch import Sketch

SKETCHES_MAX = 64
"""How many sketches one commit carries for one computation, of its busiest slots."""
EPOCHS_KEPT = 64
"""Notes of older epochs are not waited for."""


class Offered(NamedTuple):
    """The input of an epoch, as sources offered it when it was planned."""

    taken: int
    """About how many records the epoch reads."""
    left: int | None
    """About how many were left for later ones; None if a source cannot say."""


class LoadMeter:
    """Notes since the last report, and when plans were made."""

    def __init__(self) -> None:
        self._walls: dict[int, int] = {}
        """Epoch -> the wall time of its last plan."""
        self._busy: dict[str, dict[int, dict[int, int]]] = {}
        """Computation -> slot -> epoch -> busy microseconds: of the first note that came."""
        self._objects: dict[str, CacheFigures] = {}
        """Computation -> what its object caches did since the last report."""
        self._records: dict[str, dict[int, dict[int, int]]] = {}
        """The same for its records alone."""
        self._offered: dict[int, Offered] = {}
        """Epoch -> its input."""
        self._took: dict[int, int] = {}
        """Epoch -> how many microseconds its job took."""
        self._since: dict[str, int] = {}
        """Computation -> the first epoch under its present ring."""
        self._reported = 0
        """The epoch of the last report: later ones count for the next."""

    def planned(self, epoch: int, wall: int) -> None:
        """A plan is about to run."""
        self._walls[epoch] = wall
        self._drop_notes([e for e in self._walls if e < epoch - EPOCHS_KEPT])
        known: dict[int, int] | dict[int, Offered]
        for known in (self._walls, self._offered, self._took):
            for old in [e for e in known if e < epoch - EPOCHS_KEPT]:
                del known[old]

    def _drop_notes(self, epochs: Sequence[int]) -> None:
        """Drops the notes of epochs: where nothing is balanced, no report ever takes them."""
        if not epochs:
            return
        for slots in (*self._busy.values(), *self._records.values()):
            for slot in list(slots):
                for epoch in epochs:
                    slots[slot].pop(epoch, None)
                if not slots[slot]:
                    del slots[slot]

    def offered(self, epoch: int, taken: int, left: int | None) -> None:
        """A plan reads about `taken` records, and leaves about `left`."""
        self._offered[epoch] = Offered(taken, left)

    def ran(self, epoch: int, took_us: int) -> None:
        """The job of an epoch has ended."""
        self._took[epoch] = took_us

    def heard(self, notes: Iterable[SlotNote]) -> None:
        """Takes notes in. Of several for one slot and epoch, the first one counts."""
        for note in notes:
            if note.epoch not in self._walls:
                continue  # of another leader's time, or very late
            name, _, slot = note.label.rpartition("/")
            if slot.isdigit():
                epochs = self._busy.setdefault(name, {}).setdefault(int(slot), {})
                if note.epoch not in epochs and any(note.objects):
                    known = self._objects.get(name, CacheFigures())
                    self._objects[name] = known.plus(CacheFigures(*note.objects))
                epochs.setdefault(note.epoch, note.wall_us)
                epochs = self._records.setdefault(name, {}).setdefault(int(slot), {})
                epochs.setdefault(note.epoch, note.records_us)

    def ring_changed(self, name: str, epoch: int) -> None:
        """From this epoch on, a computation runs under another ring: older notes are void."""
        self._since[name] = epoch

    def report(
        self,
        epoch: int,
        known: LoadState,
        loads: Mapping[str, Mapping[int, SlotLoad]],
        slots: Mapping[str, Sequence[int]],
        intervals: Mapping[str, int],
        settings: Elasticity,
    ) -> LoadFigures:
        """What the commit of a report epoch says; for busy, its own notes count for the next one.

        `loads` come from its reports; `slots` and `intervals` are those of the rings after it.
        """
        busy: dict[str, dict[int, int]] = {}
        sketches: dict[str, dict[int, Sketch]] = {}
        carried: dict[str, dict[int, int]] = {}
        demand: dict[str, Demand] = {}
        for name, mine in slots.items():
            before = known.of.get(name, ComputationLoad())
            steps = self._measured(name, mine, epoch)
            told = moved_steps(before, steps, set(mine))
            if told:
                busy[name] = told
            figures = {slot: figure_of(step) for slot, step in {**before.busy, **told}.items()}
            reported = loads.get(name, {})
            chosen = _chosen(figures, reported, settings, len(mine), intervals.get(name, 0))
            picked = {slot: reported[slot].sketch for slot in chosen if slot in reported}
            if picked:
                sketches[name] = picked
            waiting = {slot: load.carried for slot, load in reported.items() if load.carried}
            if waiting:
                carried[name] = waiting
            if settings.scale is not None and (found := self._demand(name, mine, epoch)):
                demand[name] = found
        overhead = self._overhead(epoch) if demand else 0
        self._reported = epoch
        self._forget(epoch)
        objects = {name: use for name, use in self._objects.items() if name in slots}
        self._objects = {}
        return LoadFigures(busy, sketches, carried, demand, overhead, objects)

    def _measured(self, name: str, slots: Iterable[int], epoch: int) -> dict[int, int]:
        """The step of each slot with a note: busy time over the time of the epochs noted."""
        found: dict[int, int] = {}
        begins = max(self._since.get(name, 0), self._reported)
        for slot in slots:
            busy = span = 0
            for at, took in self._busy.get(name, {}).get(slot, {}).items():
                if begins <= at < epoch and at + 1 in self._walls:
                    busy += took
                    span += self._walls[at + 1] - self._walls[at]
            if span > 0:  # where a clock was set back, plans seem to follow each other at once
                found[slot] = step_of(min(busy * SECOND_US // span, SECOND_US))
        return found

    def _demand(self, name: str, slots: Sequence[int], epoch: int) -> Demand | None:
        """What records take as they arrive; None if nothing was measured.

        An epoch reads what has arrived since the plan before it, so that time is the measure. What
        it leaves has arrived too; what was left to it has not.
        """
        first = max(self._since.get(name, 0), self._reported + 1)
        epochs = [at for at in range(first, epoch + 1) if {at, at - 1} <= self._walls.keys()]
        spans = {at: self._walls[at] - self._walls[at - 1] for at in epochs}
        shares = []
        for slot in slots:
            noted = self._records.get(name, {}).get(slot, {}).keys() & spans.keys()
            span = sum(spans[at] for at in noted)
            if span > 0:  # where a clock was set back, plans seem to follow each other at once
                took = sum(self._records[name][slot][at] for at in noted)
                shares.append(took * SECOND_US // span)
        if not shares:
            return None
        # A slot without a note counts as the others do on average: it has work to do all the same.
        every = sum(shares) * len(slots) // len(shares)
        taken = sum(self._offered[at].taken for at in epochs if at in self._offered)
        left_before, left = self._left(epochs[0] - 1), self._left(epochs[-1])
        if left_before is None or left is None or any(self._left(at) is None for at in epochs):
            return Demand(every, max(shares))
        if not taken:
            return Demand(every, max(shares), 0)
        arrived = max(0, taken + left - left_before)
        waiting = every * sum(spans.values()) // SECOND_US * left // taken
        return Demand(every * arrived // taken, max(shares) * arrived // taken, waiting)

    def _left(self, epoch: int) -> int | None:
        return self._offered[epoch].left if epoch in self._offered else None

    def _overhead(self, epoch: int) -> int:
        """What an epoch takes besides its records, on average.

        Slots of one computation run side by side, and computations one after the other.
        """
        found = []
        for at in range(self._reported + 1, epoch + 1):
            if at in self._took:
                longest = (
                    max((slot[at] for slot in slots.values() if at in slot), default=0)
                    for slots in self._records.values()
                )
                found.append(max(0, self._took[at] - sum(longest)))
        return sum(found) // len(found) if found else 0

    def _forget(self, epoch: int) -> None:
        for slots in (*self._busy.values(), *self._records.values()):
            for slot in list(slots):
                slots[slot] = {at: took for at, took in slots[slot].items() if at >= epoch}
                if not slots[slot]:
                    del slots[slot]


def _chosen(
    figures: Mapping[int, int],
    loads: Mapping[int, SlotLoad],
    settings: Elasticity,
    slots: int,
    intervals: int,
) -> list[int]:
    """The slots whose sketch a decision may need, the busiest first; none if nothing is uneven."""
    known = {slot: figure for slot, figure in figures.items() if slot in loads}
    if not known:
        return []
    sketches = {slot: loads[slot].sketch for slot in known}
    now = by_records(known, sketches)
    ordered = sorted(known, key=lambda slot: (-max(known[slot], now[slot]), slot))[:SKETCHES_MAX]
    busiest = max(known.values())
    if intervals > settings.intervals_per_slot * slots:
        return ordered
    if settings.scale is not None and busiest > settings.scale.below * SECOND_US:
        return ordered
    if settings.policy == RING and busiest > (settings.scale or Scale()).aim * SECOND_US:
        return ordered
    if busiest < settings.busy_min * SECOND_US:
        return []
    heaviest = {slot: heaviest_of(sketches[slot], known[slot]) for slot in known}
    fair = fair_share(known.values(), heaviest.values())
    if hot_slots(known, fair, heaviest, settings.uneven):
        return ordered
    fair = fair_share(now.values(), heavy_keys(now, sketches))
    return ordered if hot_by_records(now, sketches, fair, settings.urgent) else []
