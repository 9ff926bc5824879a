"""Recovery by state against recovery by source replay: how the times become ratios and bars."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headrace.bench.recovery.replaying import (
    BY_REPLAY,
    BY_STATE,
    Replaying,
    SecondBySecond,
    document,
    format_replaying,
)
from headrace.bench.recovery.replaying_intervals import last_epoch_before
from headrace.cli.bench.commands import bench
from headrace.sources import memory

SHAPE = Replaying(rates=(10, 1_000), slots=(2,), intervals=())


def times(low: tuple[float, float], high: tuple[float, float]) -> dict[str, list[float]]:
    return {
        f"{name} at {rate}/s, 2 slots": [took, took * 3, took]
        for rate, pair in zip(SHAPE.rates, (low, high), strict=True)
        for name, took in zip((BY_STATE, BY_REPLAY), pair, strict=True)
    }


def test_medians_are_compared_and_the_gap_must_grow_with_the_rate() -> None:
    found = document(SHAPE, times((100, 125), (100, 400)), equal=True)
    assert found["ratios"] == {"10/s, 2 slots": 0.8, "1000/s, 2 slots": 0.25}
    assert [bar["reached"] for bar in found["bars"]] == [True, True]
    assert "reached" in format_replaying(found)


def test_a_gap_that_shrinks_misses_its_bar() -> None:
    found = document(SHAPE, times((100, 400), (100, 125)), equal=True)
    assert [bar["reached"] for bar in found["bars"]] == [True, False]
    assert "MISSED" in format_replaying(found)


def test_wrong_counts_reach_no_bar() -> None:
    found = document(SHAPE, times((100, 125), (100, 400)), equal=False)
    assert not any(bar["reached"] for bar in found["bars"])
    assert "results equal: NO" in format_replaying(found)


def test_an_epoch_reads_one_second_of_what_has_arrived() -> None:
    source = SecondBySecond(memory(list(range(9))), rate=3, seconds=2)
    split = source.splits()[0]
    planned = source.plan(split, 0, 100)
    assert planned is not None and (planned.start, planned.end) == (0, 3)
    assert source.plan(split, 3, 100) is not None
    assert source.plan(split, 6, 100) is None


@pytest.mark.parametrize("rates", ["a", "0", "10,-5"])
def test_rates_that_are_no_numbers_are_refused(rates: str) -> None:
    found = CliRunner().invoke(bench, ["recovery", "--replay", "--rates", rates])
    assert found.exit_code == 2
    assert "--rates takes whole numbers above 0" in found.output


def test_intervals_are_compared_with_the_replay_of_their_rate() -> None:
    shape = Replaying(rates=(10,), slots=(2,), intervals=(1, 5), interval_rate=10)
    took = {
        f"{BY_STATE} at 10/s, 2 slots": [100.0],
        f"{BY_REPLAY} at 10/s, 2 slots": [400.0],
        f"{BY_STATE} at 10/s, 2 slots, every 1": [120.0],
        f"{BY_STATE} at 10/s, 2 slots, every 5": [300.0],
    }
    found = document(shape, took, equal=True)
    assert found["ratios"]["checkpoint every 1"] == 0.3
    assert found["ratios"]["checkpoint every 5"] == 0.75


@pytest.mark.parametrize("every", [1, 2, 5, 10, 30])
def test_the_loss_comes_just_before_the_next_checkpoint(every: int) -> None:
    last = last_epoch_before(30, every)
    assert 0 < last <= 30 and (last + 1) % every == 0 and last + every > 30
