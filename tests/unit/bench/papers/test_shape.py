"""Judgements of shapes: each can say yes, and each can say no."""

from __future__ import annotations

import math

import pytest

from headrace.bench.papers.shape import Judgement, ShapeVerdict, series, shown, slope


def holds(shape: Judgement) -> bool:
    return shape.verdict().same_shape


def test_a_shape_without_claims_is_not_the_same() -> None:
    assert not ShapeVerdict(()).same_shape
    assert ShapeVerdict(()).why == "nothing was judged"


def test_one_wrong_claim_is_enough_and_is_named() -> None:
    verdict = Judgement().at_most("one", 1, 2).at_least("two", 1, 2).verdict()
    assert not verdict.same_shape
    assert verdict.why == "not so: two is 1, at least 2"


@pytest.mark.parametrize("measured", [None, math.nan, math.inf, True, "3"])
def test_what_was_not_measured_contradicts_its_claim(measured: object) -> None:
    assert not holds(Judgement().at_least("x", measured, 0))  # type: ignore[arg-type]
    assert not holds(Judgement().at_most("x", measured, 10))  # type: ignore[arg-type]
    assert not holds(Judgement().below("x", measured, "y", 10))  # type: ignore[arg-type]
    assert not holds(Judgement().flat("x", [measured, 1.0], 9))  # type: ignore[list-item]
    assert not holds(Judgement().rises("x", [measured, 1.0]))  # type: ignore[list-item]
    assert not holds(Judgement().falls("x", [measured, 1.0]))  # type: ignore[list-item]


def test_flat_allows_its_share_and_no_more() -> None:
    assert holds(Judgement().flat("x", [100, 119, 110], 0.2))
    assert not holds(Judgement().flat("x", [100, 121, 110], 0.2))
    assert not holds(Judgement().flat("x", [100], 0.2))


def test_rises_and_falls_look_at_the_ends_and_at_the_trend() -> None:
    assert holds(Judgement().rises("x", [1, 1.5, 3], times=2))
    assert not holds(Judgement().rises("x", [1, 1.5, 1.9], times=2))
    assert not holds(Judgement().rises("x", [2, 9, 9, 1, 1, 2.1]))
    assert holds(Judgement().falls("x", [3, 2, 1], times=2))
    assert not holds(Judgement().falls("x", [3, 2, 2], times=2))
    assert not holds(Judgement().falls("x", [1, 2, 3]))
    assert holds(Judgement().falls("x", [3, 0]))


def test_the_best_place_of_a_curve_must_lie_inside() -> None:
    curve = {0.1: 9.0, 0.5: 2.0, 0.9: 7.0}
    assert holds(Judgement().best_between("x", curve, 0.4, 0.7))
    assert not holds(Judgement().best_between("x", curve, 0.6, 0.9))
    assert not holds(Judgement().best_between("x", {}, 0, 1))


def test_slopes_are_those_of_powers() -> None:
    xs = [10.0, 100.0, 1000.0]
    assert slope(xs, [5, 50, 500]) == pytest.approx(1.0)
    assert slope(xs, [7, 7, 7]) == pytest.approx(0.0)
    assert slope(xs, [1, 100, 10_000]) == pytest.approx(2.0)
    assert slope([10.0], [1]) is None
    assert slope([10.0, 10.0], [1, 2]) is None
    assert slope(xs, [1, 0, 1]) is None
    assert slope(xs, [1, None, 1]) is None


def test_numbers_are_shown_short() -> None:
    assert series([1200.4, 0.12345, 7, None]) == "1,200, 0.123, 7, not measured"
    assert shown(1e6) == "1,000,000"
