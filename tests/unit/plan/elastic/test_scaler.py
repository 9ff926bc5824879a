"""The scaler: load that triples and falls back, what the balancer does, and its settings."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.plan.elastic.traces import NAME, Floats, Model, even_ring, zipf

from headrace.errors import InvalidPipeline
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.scaler import SECOND_US, Use, targets
from headrace.plan.elastic.settings import OFF, Elasticity, Scale

KEYS = 4000
SCALE = Scale(cooldown="4s")


def busy_for(slots: float) -> Floats:
    """Records that keep this many slots busy all the time, at 10 us each."""
    return np.full(KEYS, slots * SECOND_US / 10 / KEYS)


class Held(Model):
    """A computation whose input is held back: no slot is busy for longer than its epoch.

    What it could not do waits, and is done when there is room.
    """

    backlog = 0.0
    """How many records wait, in epochs of the present load."""

    def step(self) -> None:
        wanted = self.weights
        capacity = 0.97 * len(self.ring.slots)

        def held(epoch: int) -> Floats:
            load = wanted(epoch)
            demand = float(load.sum()) * self.cost_us / SECOND_US
            now = min(self.backlog + demand, capacity)
            self.backlog += demand - now
            return load * now / demand

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
    settings = Elasticity(scale=SCALE, slots_max=16)
    model = Model(KEYS, lambda epoch: weights, even_ring(8), settings, cost_us=20).run(30)
    assert max(slots_by_epoch(model)) == 8
    alone = Elasticity(policy=OFF, scale=SCALE, slots_max=16)
    model = Model(KEYS, lambda epoch: weights, even_ring(8), alone, cost_us=20).run(30)
    assert max(slots_by_epoch(model)) > 8


def test_a_single_hot_key_gets_no_more_slots() -> None:
    weights = np.full(KEYS, 0.5)
    weights[3] = 90_000
    settings = Elasticity(scale=SCALE, slots_max=64)
    model = Model(KEYS, lambda epoch: weights, even_ring(4), settings).run(60)
    assert max(slots_by_epoch(model)) <= 8


def test_the_computation_that_takes_most_of_the_time_grows() -> None:
    uses = {
        "toll": Use(2, 1_200_000, (600_000, 600_000)),
        "report": Use(2, 300_000, (150_000, 150_000)),
    }
    found = targets(uses, Scale(), 16)
    assert set(found) == {"toll"}
    assert found["toll"].slots == 3
    assert "75%" in found["toll"].reason


def test_one_computation_without_figures_keeps_all_as_they_are() -> None:
    uses = {"a": Use(2, 1_900_000, (950_000, 950_000)), "b": Use(2, 0, ())}
    assert targets(uses, Scale(), 16) == {}


def test_one_report_above_the_threshold_is_not_enough() -> None:
    assert targets({"a": Use(2, 1_600_000, (600_000, 900_000))}, Scale(), 16) == {}
    assert targets({"a": Use(2, 1_600_000, (600_000, 900_000))}, Scale(reports=1), 16)


def test_on_a_cluster_that_grows_the_tasks_follow_the_slots() -> None:
    settings = Elasticity(scale=SCALE, slots_max=16, sets_tasks=True, tasks=2)
    model = Held(KEYS, lambda epoch: busy_for(4.0), even_ring(2), settings).run(4)
    _, decided, *_ = model.log[-1]
    assert decided.tasks == 4
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
    assert "Count: 2 -> 4 slots (scaler: tasks were busy for" in kept[0].text
    assert "above 70%, in 2 reports in a row" in kept[0].text


@pytest.mark.parametrize(
    "wrong",
    [
        {"above": 1.5}, {"above": 0.2}, {"below": 0.65}, {"aim": 0.8}, {"reports": 0},
        {"reports": 9}, {"every": -1}, {"slots_min": 0}, {"cooldown": "-1s"},
    ],
)  # fmt: skip
def test_settings_have_a_domain(wrong: dict[str, object]) -> None:
    with pytest.raises((InvalidPipeline, ValueError)):
        Scale(**wrong)  # type: ignore[arg-type]
