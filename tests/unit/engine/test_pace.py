"""The size of epochs follows the pace."""

import random

import pytest

from headrace.plan.decisions.pace import FIRST, RECORDS_MAX, RECORDS_MIN, Pace
from headrace.plan.options import Options


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
    pace = Pace(1.0, records=10_000)
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


def test_a_driver_that_takes_over_begins_with_the_size_of_its_predecessor() -> None:
    assert Pace.after(0, Options()).next() == FIRST
    assert Pace.after(2_000, Options()).next() == 2_000
    assert Pace.after(10**12, Options()).next() == RECORDS_MAX
    assert Pace.after(2_000, Options(epoch_records=7)).next() == 7
    pace = Pace.after(2_000, Options())
    pace.took(2_000, 0.2)
    pace.took(2_000, 20.0)
    assert pace.next() <= 400, "the new code is slower"


def test_a_failed_epoch_halves_the_next_one() -> None:
    pace = Pace(1.0, records=10_000)
    pace.halve()
    assert pace.next() == 5_000


STARTS_S = 3.0


def beginning(overhead: float, per_record: float, epochs: int = 8) -> list[tuple[int, float]]:
    """(records, seconds) of the first epochs; in the first, workers are starting."""
    pace = Pace(1.0)
    found = []
    for epoch in range(epochs):
        size = pace.next()
        seconds = overhead + per_record * size + (STARTS_S if epoch == 0 else 0.0)
        pace.took(size, seconds)
        found.append((size, seconds))
    return found


@pytest.mark.parametrize("per_record", [0.01, 0.1, 1.0, 5.0])
def test_slow_hooks_commit_early_and_come_to_their_target(per_record: float) -> None:
    found = beginning(0.15, per_record)
    assert found[0][0] == FIRST, "the first commit does not wait for ten thousand of them"
    assert all(seconds <= found[0][1] for _, seconds in found), "none takes longer than the first"
    assert found[-1][1] <= max(2.0, 2 * (0.15 + per_record))


@pytest.mark.parametrize("overhead", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("per_record", [1e-6, 1e-5, 1e-4])
def test_cheap_records_are_soon_read_at_full_size(overhead: float, per_record: float) -> None:
    found = beginning(overhead, per_record)
    assert sum(seconds for _, seconds in found[1:5]) <= 4 * 2.0
    size, seconds = found[-1]
    assert seconds >= 0.5 or size >= 1_000_000


@pytest.mark.parametrize("seed", range(20))
def test_noise_in_small_epochs_makes_no_epoch_of_slow_hooks_long(seed: int) -> None:
    dice = random.Random(seed)
    pace = Pace(1.0)
    for epoch in range(30):
        size = pace.next()
        seconds = (0.2 + 0.02 * size) * dice.uniform(0.7, 2.0) + (STARTS_S if epoch == 0 else 0)
        pace.took(size, seconds)
        assert seconds <= 20.0, (epoch, size)


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


def test_epochs_grow_although_sources_overrate_what_they_offer() -> None:
    pace = Pace(1.0)
    for _ in range(40):
        asked = pace.next()
        pace.took(asked // 10, 0.1 + 1e-5 * (asked // 10), planned=asked)
    assert pace.next() > 20_000
