"""The scaler: load that triples and falls back, what the balancer does, and its settings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.plan.elastic.traces import EPOCH_US, NAME, Floats, Model, even_ring, zipf

from headrace.errors import InvalidPipeline
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.figures import LoadState
from headrace.plan.elastic.load import Demand, SlotNote
from headrace.plan.elastic.meter import LoadMeter
from headrace.plan.elastic.scaler import SECOND_US, Use, room_of, targets
from headrace.plan.elastic.settings import OFF, Elasticity, Scale

KEYS = 4000
SCALE = Scale(cooldown="4s")
EPOCH = EPOCH_US
"""Epochs of the model are as long as they should be."""


def busy_for(slots: float) -> Floats:
    """Records that keep this many slots busy all the time, at 10 us each."""
    return np.full(KEYS, slots * SECOND_US / 10 / KEYS)


class Held(Model):
    """A computation whose input is held back: no slot is busy for longer than its epoch.

    What it could not do waits, and is done when there is room.
    """

    backlog = 0.0
    """What waits, in seconds of one slot."""
    is_known = True
    """Whether the source can say how much waits."""

    def step(self) -> None:
        wanted = self.weights
        capacity = (0.97 - self.fixed_us / EPOCH_US) * len(self.ring.slots)

        def held(epoch: int) -> Floats:
            load = wanted(epoch)
            demand = float(load.sum()) * self.cost_us / SECOND_US
            now = min(self.backlog + demand, capacity)
            self.backlog += demand - now
            self.left = round(self.backlog * SECOND_US / self.cost_us) if self.is_known else None
            return load * now / demand if demand else busy_for(now)

        self.weights = held
        try:
            super().step()
        finally:
            self.weights = wanted


def slots_by_epoch(model: Model) -> list[int]:
    return [len(ring.slots) for _, _, ring, *_ in model.log]


def test_load_that_triples_is_followed_within_three_reports_and_falls_back() -> None:
    def weights(epoch: int) -> Floats:
        return busy_for(3.0 if 20 < epoch <= 80 else 1.0)

    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Held(KEYS, weights, even_ring(2), settings).run(140)
    slots = slots_by_epoch(model)
    assert slots[19] == 2, "a load of half of two slots needs no change"
    assert slots[26] >= 4, "three reports after the change there is room for the load"
    assert 4 <= slots[79] <= 5, "the best fixed choice has 4 slots: 75 % busy"
    assert slots[139] == 2
    assert set(slots[60:80]) == {slots[79]}, "it is stable"
    assert set(slots[110:]) == {2}


def test_a_steady_load_changes_nothing() -> None:
    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Held(KEYS, lambda epoch: busy_for(1.2), even_ring(2), settings, noise=0.05).run(60)
    assert set(slots_by_epoch(model)) == {2}


def test_slots_stay_within_the_maximum() -> None:
    settings = Elasticity(scale=SCALE, slots_max=3)
    model = Held(KEYS, lambda epoch: busy_for(9.0), even_ring(2), settings).run(40)
    assert max(slots_by_epoch(model)) == 3


def test_the_cooldown_delays_removal_and_not_addition() -> None:
    def weights(epoch: int) -> Floats:
        return busy_for(1.0 if epoch <= 10 else 4.0 if epoch <= 30 else 0.5)

    def removed_at(cooldown: str) -> int:
        settings = Elasticity(scale=Scale(cooldown=cooldown), slots_max=16)
        slots = slots_by_epoch(Held(KEYS, weights, even_ring(2), settings).run(120))
        assert slots[16] >= 4
        return next(e for e in range(30, 120) if slots[e] < slots[29])

    assert removed_at("60s") >= 70 > removed_at("1s")


def test_uneven_load_is_left_to_the_balancer() -> None:
    weights = zipf(KEYS, 1.1, 150_000)
    low = Scale(above=0.7, aim=0.6, below=0.45, cooldown="4s")
    settings = Elasticity(scale=low, slots_max=16)
    model = Model(KEYS, lambda epoch: weights, even_ring(8), settings, cost_us=20).run(30)
    assert max(slots_by_epoch(model)) == 8
    alone = Elasticity(policy=OFF, scale=low, slots_max=16)
    model = Model(KEYS, lambda epoch: weights, even_ring(8), alone, cost_us=20).run(30)
    assert max(slots_by_epoch(model)) > 8


def test_a_single_hot_key_gets_no_more_slots() -> None:
    weights = np.full(KEYS, 0.5)
    weights[3] = 90_000
    settings = Elasticity(scale=SCALE, slots_max=64)
    model = Model(KEYS, lambda epoch: weights, even_ring(4), settings).run(60)
    assert max(slots_by_epoch(model)) <= 8


def even(*parts: float, slots: int, heaviest: int = 0) -> Use:
    """A computation whose slots all need this part of the time, report by report."""
    each = [Demand(round(slots * p * SECOND_US), round(p * SECOND_US), 0) for p in parts]
    return Use(slots, each, heaviest)


def test_the_computation_that_takes_most_of_the_time_grows() -> None:
    uses = {"toll": even(*[0.7] * 4, slots=2), "report": even(*[0.2] * 4, slots=2)}
    found = targets(uses, Scale(), 16)
    assert set(found) == {"toll"}
    assert found["toll"].slots == 3
    assert "90%" in found["toll"].reason


def test_one_computation_without_figures_keeps_all_as_they_are() -> None:
    uses = {"a": even(1.5, 1.5, slots=2), "b": Use(2, ())}
    assert targets(uses, Scale(), 16) == {}


def test_one_report_above_the_threshold_is_not_enough() -> None:
    assert targets({"a": even(0.6, 1.1, slots=2)}, Scale(), 16) == {}
    assert targets({"a": even(0.6, 1.1, slots=2)}, Scale(reports=1), 16)


def test_a_little_too_much_is_looked_at_for_twice_as_long() -> None:
    assert targets({"a": even(0.9, 1.1, slots=2)}, Scale(), 16)["a"].slots == 3
    assert targets({"a": even(0.9, 0.9, slots=2)}, Scale(), 16) == {}
    assert targets({"a": even(0.9, 0.5, 0.9, 0.85, slots=2)}, Scale(), 16) == {}, "it is noise"
    assert targets({"a": even(0.9, 0.75, 0.9, 0.85, slots=2)}, Scale(), 16)["a"].slots == 3
    assert targets({"a": even(*[0.9] * 8, slots=2)}, Scale(reports=8), 16)["a"].slots == 3


def test_slots_leave_after_twice_as_many_reports() -> None:
    assert targets({"a": even(*[0.2] * 3, slots=4)}, Scale(), 16) == {}
    assert targets({"a": even(*[0.2] * 4, slots=4)}, Scale(), 16)["a"].slots == 2
    assert targets({"a": even(0.2, 0.6, 0.2, 0.2, slots=4)}, Scale(), 16) == {}


@pytest.mark.parametrize("fixed", [0.1, 0.3, 0.5])
def test_what_slots_do_besides_records_is_not_met_with_more_slots_than_its_room_needs(
    fixed: float,
) -> None:
    def weights(epoch: int) -> Floats:
        return busy_for(3.0 if 20 < epoch <= 80 else 1.0)

    settings = Elasticity(scale=SCALE, slots_max=32, epoch_us=EPOCH)
    start = math.ceil(1.0 / (1 - fixed) / 0.9)
    model = Held(KEYS, weights, even_ring(start), settings, fixed_us=int(fixed * EPOCH)).run(140)
    slots = slots_by_epoch(model)
    best = math.ceil(3.0 / (0.97 - fixed))
    assert slots[26] >= best, "three reports after the change there is room for the load"
    assert best <= slots[79] <= 1.25 * best
    assert set(slots[60:80]) == {slots[79]}, "it is stable"
    assert set(slots[110:]) <= {start, start + 1}
    assert len(set(slots[110:])) == 1
    assert model.backlog < 0.1


def test_few_records_beside_much_fixed_work_need_one_slot() -> None:
    settings = Elasticity(scale=SCALE, slots_max=16, epoch_us=EPOCH)
    few = np.zeros(KEYS)
    few[:20] = 1.0
    model = Model(KEYS, lambda epoch: few, even_ring(4), settings, fixed_us=750_000).run(40)
    slots = slots_by_epoch(model)
    assert max(slots) == 4, "slots are busy for 75 % of the time, but not with records"
    assert slots[-1] == 1


def test_a_slot_that_one_key_fills_is_not_counted_for_the_others() -> None:
    uses = {"a": even(*[0.96] * 4, slots=4, heaviest=800_000)}
    found = targets(uses, Scale(), 64)
    rest = 4 * 0.96 - 0.8
    assert found["a"].slots == 1 + math.ceil(rest / 0.75)
    only = {"a": even(*[0.96] * 4, slots=4, heaviest=900_000)}
    assert targets(only, Scale(), 64) == {}, "its busiest slot has nothing that can be divided"


def test_input_that_waits_gets_slots_though_nothing_arrives() -> None:
    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Held(KEYS, lambda epoch: busy_for(0.5 if epoch < 10 else 1e-6), even_ring(1), settings)
    model.run(9)
    model.backlog = 300.0
    model.run(20)
    assert max(slots_by_epoch(model)) >= 5, "300 seconds of one slot are to be done in a minute"
    model.run(120)
    assert model.backlog == 0
    assert slots_by_epoch(model)[-1] == 1


def test_no_slot_is_removed_while_input_waits() -> None:
    def use(waiting: int) -> dict[str, Use]:
        return {"a": Use(4, [Demand(400_000, 100_000, waiting * SECOND_US)] * 4)}

    assert targets(use(4), Scale(), 16)["a"].slots == 1
    assert targets(use(5), Scale(), 16) == {}


def test_while_a_backlog_is_worked_off_no_slots_are_added() -> None:
    """Slots are busy all the time then, whatever arrives."""
    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Held(KEYS, lambda epoch: busy_for(3.0), even_ring(5), settings)
    model.backlog = 20.0
    model.run(10)
    assert set(slots_by_epoch(model)) == {5}
    assert model.backlog > 0


def test_where_a_source_cannot_say_what_waits_slots_are_doubled() -> None:
    class Unknown(Held):
        is_known = False

    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Unknown(KEYS, lambda epoch: busy_for(6.0), even_ring(2), settings).run(30)
    slots = slots_by_epoch(model)
    assert slots[7] == 4
    assert slots[-1] >= 8
    assert "busy for more than 90% of the time" in model.state.decisions[0].reason


@pytest.mark.parametrize(
    ("overhead", "room"), [(0, 1.0), (250_000, 0.75), (600_000, 0.5), (9_000_000, 0.5)]
)
def test_room_for_records(overhead: int, room: float) -> None:
    assert room_of(overhead, 1_000_000) == room


def metered(*epochs: tuple[int, int, int | None, dict[int, int]]) -> LoadMeter:
    """A meter after epochs of (wall in seconds, records taken, left, slot -> time of records)."""
    meter = LoadMeter()
    for epoch, (wall, taken, left, notes) in enumerate(epochs, 1):
        meter.planned(epoch, wall * SECOND_US)
        meter.offered(epoch, taken, left)
        meter.heard(
            SlotNote(epoch, f"{NAME}/{slot}", us + 500_000, records_us=us)
            for slot, us in notes.items()
        )
    return meter


def demand_of(meter: LoadMeter, epoch: int, slots: int = 2) -> Demand | None:
    settings = Elasticity(scale=SCALE)
    found = meter.report(epoch, LoadState(), {}, {NAME: range(slots)}, {}, settings)
    return found.demand.get(NAME)


BUSY = {0: 600_000, 1: 300_000}


def test_demand_is_what_arrives_and_not_what_is_processed() -> None:
    same = metered((0, 100, 0, BUSY), (1, 100, 0, BUSY), (2, 100, 0, BUSY))
    assert demand_of(same, 3) == Demand(900_000, 600_000, 0)
    grows = metered((0, 100, 0, BUSY), (1, 100, 50, BUSY), (2, 100, 100, BUSY))
    assert demand_of(grows, 3) == Demand(1_350_000, 900_000, 900_000)
    shrinks = metered((0, 100, 90, BUSY), (1, 100, 50, BUSY), (2, 100, 10, BUSY))
    assert demand_of(shrinks, 3) == Demand(540_000, 360_000, 90_000)


def test_demand_where_something_is_not_known() -> None:
    unsaid = metered((0, 100, 0, BUSY), (1, 100, None, BUSY), (2, 100, 0, BUSY))
    assert demand_of(unsaid, 3) == Demand(900_000, 600_000)
    lost = metered((0, 100, 0, BUSY), (1, 100, 0, {0: 600_000}), (2, 100, 0, BUSY))
    assert demand_of(lost, 3) == Demand(900_000, 600_000, 0)
    silent = metered(
        (0, 9, 0, BUSY), (1, 9, 0, {0: 200_000}), (2, 9, 0, {0: 200_000}), (3, 0, 0, {})
    )
    assert demand_of(silent, 3) == Demand(400_000, 200_000, 0), "the others as this one"
    assert demand_of(metered((0, 9, 0, BUSY), (1, 9, 0, {}), (2, 9, 0, {})), 3) is None
    assert demand_of(metered((5, 9, 0, BUSY), (4, 9, 0, BUSY)), 3) is None, "a clock was set back"
    assert demand_of(metered((5, 9, 0, BUSY)), 2) is None, "the plan before it is not known"
    timers = metered((0, 0, 0, BUSY), (1, 0, 0, BUSY), (2, 0, 0, BUSY))
    assert demand_of(timers, 3) == Demand(900_000, 600_000, 0)


def test_on_a_cluster_that_grows_the_tasks_follow_the_slots() -> None:
    settings = Elasticity(scale=SCALE, slots_max=16, sets_tasks=True, tasks=2)
    model = Held(KEYS, lambda epoch: busy_for(4.0), even_ring(2), settings).run(4)
    _, decided, *_ = model.log[-1]
    assert decided.tasks == 6
    still = Elasticity(scale=SCALE, slots_max=16, tasks=2)
    again = decide_rings(
        model.state.of, {NAME: model.log[-1][2]}, (), still, epoch=4, wall=model.wall
    )
    assert again.tasks == 0
    assert again.wanted


def test_every_decision_says_why() -> None:
    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Held(KEYS, lambda epoch: busy_for(4.0), even_ring(2), settings).run(12)
    kept = model.state.decisions
    assert kept
    assert "Count: 2 -> 6 slots (scaler: records need 2" in kept[0].text
    assert "% of the time, above 80%, in 2 reports in a row" in kept[0].text


@pytest.mark.parametrize(
    "wrong",
    [
        {"above": 1.5}, {"above": 0.2}, {"below": 0.75}, {"aim": 0.8}, {"reports": 0},
        {"reports": 9}, {"every": -1}, {"slots_min": 0}, {"cooldown": "-1s"},
        {"drain": "0s"}, {"drain": "-1m"}, {"above": 0.7},
    ],
)  # fmt: skip
def test_settings_have_a_domain(wrong: dict[str, object]) -> None:
    with pytest.raises((InvalidPipeline, ValueError)):
        Scale(**wrong)  # type: ignore[arg-type]
