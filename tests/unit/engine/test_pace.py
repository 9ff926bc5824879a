"""The size of epochs follows the pace."""

import random

import pytest

from headrace.engine.pace import RECORDS_MAX, RECORDS_MIN, Pace


def settled(target: float, overhead: float, per_record: float, epochs: int = 60) -> Pace:
    pace = Pace(target)
    for _ in range(epochs):
        pace.took(pace.next(), overhead + per_record * pace.next())
    return pace


def test_epochs_come_to_take_about_their_target_time() -> None:
    pace = settled(1.0, 0.2, 1e-5)
    assert 0.5 <= 0.2 + 1e-5 * pace.next() <= 2.0


def test_sizes_stay_within_their_limits() -> None:
    assert settled(1.0, 0.001, 1e-12).next() == RECORDS_MAX
    assert settled(1.0, 0.001, 10.0).next() == RECORDS_MIN


def test_a_slow_substrate_is_not_met_with_ever_smaller_epochs() -> None:
    """A fixed cost above the target: small epochs would only multiply it."""
    pace = settled(0.1, 2.0, 1e-4)
    assert pace.next() * 1e-4 >= 0.5


def test_a_small_epoch_says_nothing_about_the_pace() -> None:
    pace = Pace(1.0)
    pace.took(10_000, 1.0)
    pace.took(5, 0.001)
    assert pace.next() == 10_000


def test_a_fixed_size_stays_until_an_epoch_fails() -> None:
    pace = Pace(1.0, fixed=10)
    pace.took(10, 99.0)
    pace.took(10, 99.0)
    assert pace.next() == 10
    pace.halve()
    assert pace.next() == 5
    for _ in range(10):
        pace.halve()
    assert pace.next() == 1


def test_a_failed_epoch_halves_the_next_one() -> None:
    pace = Pace(1.0)
    pace.halve()
    assert pace.next() == 5_000


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_loaded_machine_does_not_drive_epochs_away_from_the_target(seed: int) -> None:
    dice = random.Random(seed)
    pace = Pace(1.0)
    sizes = []
    for epoch in range(200):
        size = pace.next()
        pace.took(size, (0.3 + 2e-5 * size) * dice.uniform(0.7, 2.0))
        if epoch > 20:
            sizes.append(0.3 + 2e-5 * size)
    assert 0.4 <= sum(sizes) / len(sizes) <= 2.0
    assert max(sizes) <= 5.0


def test_small_epochs_teach_the_fixed_cost() -> None:
    pace = Pace(1.0)
    for size in (10_000, 10, 20, 5_000, 30, 8_000):
        pace.took(size, 0.5 + 1e-5 * size)
    assert pace.overhead_s == pytest.approx(0.5, rel=0.05)
