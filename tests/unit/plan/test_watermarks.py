"""Marks and histograms, and what an injector's splits add up to (PROTOCOL D1, D4, D13)."""

import random

import numpy as np
import pytest

from headrace.model.source import Range
from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.epoch import InjectorPlan, Plan, ReadTask, WorkOrder
from headrace.plan.units import host_mark
from headrace.plan.watermarks import (
    BUCKETS_MAX,
    FINAL,
    UNBOUNDED,
    Histogram,
    Mark,
    feedback_input,
    merge,
)
from headrace.sources import memory


def test_the_lowest_bound_counts_and_else_the_farthest_reached() -> None:
    assert merge([Mark(5, 9), Mark(3, 4), Mark(None, 20)]) == Mark(3, 20)
    assert merge([Mark(None, 7), Mark(None, 9)]) == Mark(None, 9)
    assert merge([Mark(None, 7), Mark(None, 9)]).value == 9
    assert merge([]) == UNBOUNDED
    assert merge([FINAL, Mark(None, 3)]).value == END


def test_a_mark_never_falls_behind_what_was_committed() -> None:
    assert Mark(3, 5).at_least(10) == Mark(10, 10)
    assert Mark(30, 50).at_least(10) == Mark(30, 50)
    assert Mark(None, 5).at_least(10) == Mark(None, 10)


@pytest.mark.parametrize(
    ("mark", "hold", "value", "bounded"),
    [
        (Mark(10, 10), 5, 5, True),
        (Mark(10, 10), 50, 10, True),
        (Mark(10, 10), None, 10, True),
        (Mark(None, 10), None, 10, False),
        (Mark(None, 10), END, 10, False),
        (Mark(None, 10), 5, 5, True),
        (Mark(None, 10), 50, 10, True),
    ],
)
def test_a_hold_keeps_a_mark_back_and_bounds_what_nothing_else_bounds(
    mark: Mark, hold: int | None, value: int, bounded: bool
) -> None:
    held = mark.held(hold)
    assert held.value == value
    assert (held.bound is not None) == bounded


def test_a_feedback_input_is_the_lowest_of_forward_and_waiting_and_never_falls() -> None:
    assert feedback_input(0, [10, 7], None) == 7
    assert feedback_input(0, [10, 7], 3) == 3
    assert feedback_input(5, [10, 7], 3) == 5
    assert feedback_input(0, [END], None) == END


def injector(
    marks: dict[str, Mark],
    *,
    newest: int = 0,
    reads: list[tuple[str, int, bool, Mark]] = (),
    committed: int = 0,
    final: bool = False,
) -> Mark:
    """out(e) of an injector "s": reads are (split, part, last, mark after)."""
    pipeline = PipelineBuilder("p")
    pipeline.read("s", memory([1]))
    topology = pipeline.freeze()
    tasks = [
        [ReadTask("s", split, part, Range(0, 1, 1, last), marks.get(split, UNBOUNDED))]
        for split, part, last, _ in reads
    ]
    plan = Plan(1, 0, 0, "", tasks, {"s": InjectorPlan(marks, newest, final)}, {})
    task = WorkOrder(plan, "", {}, {"s": committed}, {}, {})
    after = {t[0].label: read[3] for t, read in zip(tasks, reads, strict=True)}
    return host_mark(topology, task, "s", after)


def test_a_split_that_has_not_begun_holds_the_injector_at_its_lower_bound() -> None:
    marks = {"a": Mark(50, 50), "b": Mark(20, BEGINNING)}
    assert injector(marks, reads=[("a", 0, False, Mark(80, 80))]).value == 20


def test_an_expected_split_that_is_missing_holds_it_at_the_last_value() -> None:
    marks = {"a": Mark(50, 50), "expected": Mark(BEGINNING, BEGINNING)}
    assert injector(marks, committed=30).value == 30


def test_idle_and_finished_splits_bound_nothing() -> None:
    marks = {"a": Mark(50, 50), "idle": Mark(None, 10)}
    assert injector(marks, reads=[("a", 0, False, Mark(80, 80))]) == Mark(80, 80)


def test_where_nothing_bounds_the_farthest_reached_counts_finished_splits_included() -> None:
    assert injector({"idle": Mark(None, 10)}, newest=70) == Mark(None, 70)
    ended = injector({"a": Mark(5, 5)}, newest=70, reads=[("a", 0, True, Mark(None, 90))])
    assert ended == Mark(None, 90)


def test_parts_of_a_split_push_it_forward_in_any_order() -> None:
    marks = {"a": Mark(5, 5), "b": Mark(100, 100)}
    parts = [("a", 0, False, Mark(20, 20)), ("a", 1, False, Mark(40, 40))]
    assert injector(marks, reads=parts).value == 40
    assert injector(marks, reads=parts[::-1]).value == 40


@pytest.mark.parametrize("order", [1, -1])
def test_a_split_has_ended_whichever_of_its_parts_is_heard_last(order: int) -> None:
    marks = {"a": Mark(5, 5), "b": Mark(100, 100)}
    parts = [("a", 0, False, Mark(20, 20)), ("a", 1, True, Mark(None, 40))][::order]
    assert injector(marks, reads=parts).value == 100


def test_the_final_watermark_is_the_end_of_time_whatever_splits_say() -> None:
    assert injector({"a": Mark(5, 5)}, final=True) == FINAL


def test_an_injector_never_falls_behind_its_committed_watermark() -> None:
    assert injector({"resumed": Mark(5, 5)}, committed=30).value == 30


def test_histograms_of_parts_merge_to_the_histogram_of_the_whole() -> None:
    dice = random.Random(1)
    times = [dice.randrange(10**6) for _ in range(5000)]
    whole = Histogram.of(np.array(times, np.int64))
    merged = Histogram()
    for start in range(0, 5000, 700):
        merged.merge(Histogram.of(np.array(times[start : start + 700], np.int64)))
    assert sum(merged.counts.values()) == 5000
    assert len(whole.counts) <= BUCKETS_MAX and len(merged.counts) <= BUCKETS_MAX
    for share in (0.01, 0.1, 0.5):
        exact = sorted(times)[int(share * 5000)]
        for histogram in (whole, merged):
            found = histogram.quantile(share)
            assert found is not None
            assert found <= exact < found + (2 << histogram.shift)


def test_a_quantile_leaves_at_most_its_share_below_and_of_nothing_is_nothing() -> None:
    assert Histogram().quantile(0.5) is None
    histogram = Histogram.of(np.array([10, 20, 30, 40], np.int64))
    assert histogram.quantile(0.0) == 10
    assert histogram.quantile(0.25) == 20
    assert histogram.quantile(0.5) == 30


def test_a_lagging_mark_stays_back_but_the_end_is_the_end():
    assert Mark(100, 120).lagging(30) == Mark(70, 90)
    assert Mark(None, 20).lagging(30) == Mark(None, BEGINNING)
    assert Mark(100, 120).lagging(0) == Mark(100, 120)
    assert FINAL.lagging(30) == FINAL
