"""The load of `headrace bench scaler`, second by second, without Spark and without a clock.

Files appear at a steady pace: few lines, three times as many, few again. What decides is the
engine's own code: the size of epochs, the meter, the ledger's fold, the scaler. The model says how
long an epoch takes: a fixed time, and the time of its busiest slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest
from tests.unit.plan.elastic.traces import NAME, even_ring

from headrace.plan.decisions.pace import Pace
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.decision import SCALER
from headrace.plan.elastic.figures import LoadState
from headrace.plan.elastic.load import SlotNote
from headrace.plan.elastic.meter import LoadMeter
from headrace.plan.elastic.settings import Elasticity, Scale

FILE_S = 0.25
LOW_S, HIGH_S = 20.0, 40.0
COST_S = 0.002
SLOTS_MAX = 16
KEEPS_UP_S = 3.0


@dataclass
class Seen:
    """What one run showed."""

    slots: list[tuple[float, int, int]] = field(default_factory=list)
    """(when, epoch, how many slots)."""
    decided: list[tuple[int, str]] = field(default_factory=list)
    behind_s: float = inf
    high_from: float = 0.0
    high_until: float = 0.0

    def at(self, when: float) -> int:
        return [slots for at, _, slots in self.slots if at <= when][-1]

    def reports_until_more(self) -> float:
        first = next(epoch for when, epoch, _ in self.slots if when >= self.high_from)
        answers = [epoch for epoch, _ in self.decided if epoch >= first]
        return -(-(answers[0] - first + 1) // 2) if answers else inf


@dataclass(frozen=True)
class World:
    """How long things take."""

    overhead_s: float
    """What an epoch takes besides its records."""
    per_slot_s: float = 0.0
    """How much more that is with each slot: slots share the cores of a machine."""
    slower: float = 1.05
    """How much longer a record takes than it sleeps."""
    noise: float = 0.0
    seed: int = 1


def run(world: World, *, slots: int, scaled: bool) -> Seen:
    """One run; with a fixed number of slots only the high load, as in the benchmark."""
    random = Random(world.seed)
    low_s = LOW_S if scaled else 0.0
    pace, meter, state = Pace(1.0), LoadMeter(), LoadState()
    settings = Elasticity(
        scale=Scale(every=2, cooldown="5s"), slots_max=SLOTS_MAX, epoch_us=1_000_000
    )
    ring = even_ring(slots)
    seen = Seen(high_from=low_s, high_until=low_s + HIGH_S)
    files = [(at * FILE_S, 125 * (3 if low_s <= at * FILE_S < low_s + HIGH_S else 1))
             for at in range(int((2 * low_s + HIGH_S) / FILE_S))]  # fmt: skip
    high_lines = sum(lines for when, lines in files if when < seen.high_until)
    now, epoch, waits, done = 0.0, 0, 0, 0
    while files or waits:
        while files and files[0][0] <= now:
            waits += files.pop(0)[1]
        if not waits:
            now += 0.05
            continue
        epoch += 1
        taken = min(waits, pace.next())
        waits -= taken
        done += taken
        count = len(ring.slots)
        wall = int(now * 1e6) + 1_700_000_000_000_000
        meter.planned(epoch, wall)
        meter.offered(epoch, taken, waits)
        parts = [random.gauss(1, 0.05) for _ in ring.slots]
        disturbed = 1 + world.noise * random.random()
        fixed_s = (world.overhead_s + world.per_slot_s * count) * disturbed
        took = [taken * part / sum(parts) * COST_S * world.slower * disturbed for part in parts]
        notes = [
            SlotNote(epoch, f"{NAME}/{slot}", int((each + fixed_s / 2) * 1e6),
                     records_us=int(each * 1e6))
            for slot, each in zip(ring.slots, took, strict=True)
        ]  # fmt: skip
        meter.ran(epoch, int((fixed_s + max(took)) * 1e6))
        meter.heard(notes)
        now += fixed_s + max(took)
        pace.took(taken, fixed_s + max(took))
        seen.slots.append((now, epoch, count))
        if done >= high_lines and seen.behind_s == inf:
            seen.behind_s = max(0.0, now - seen.high_until)
        if not scaled or epoch % 2:
            continue
        figures = meter.report(epoch, state, {}, {NAME: ring.slots}, {NAME: count}, settings)
        state = state.reported(figures, [NAME])
        decided = decide_rings(
            state.of, {NAME: ring}, (), settings, epoch=epoch, wall=wall, overhead=state.overhead
        )
        state = state.decided(decided)
        for decision in decided.decisions:
            if decision.by == SCALER:
                seen.decided.append((epoch, decision.text))
            ring = even_ring(decision.slots)
            meter.ring_changed(NAME, epoch + 1)
            state = state.without(NAME)
    return seen


WORLDS = {
    "quick epochs": World(0.05),
    "as measured": World(0.15, 0.01),
    "slow epochs": World(0.3, 0.01),
    "few cores": World(0.1, 0.03),
    "a noisy machine": World(0.15, 0.01, slower=1.15, noise=0.4),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_load_that_triples_is_followed_with_few_slots_more_than_needed(
    world: World, seed: int
) -> None:
    world = World(world.overhead_s, world.per_slot_s, world.slower, world.noise, seed)
    fixed = (run(world, slots=n, scaled=False).behind_s for n in range(3, SLOTS_MAX))
    best = next(n for n, behind_s in enumerate(fixed, 3) if behind_s <= KEEPS_UP_S)
    seen = run(world, slots=2, scaled=True)
    assert seen.reports_until_more() <= 3, seen.decided
    assert seen.at(seen.high_until) <= 1.25 * best, (best, seen.decided)
    assert seen.slots[-1][2] <= (3 if world.noise else 2), seen.decided
    assert seen.behind_s <= KEEPS_UP_S + 2, seen.decided
