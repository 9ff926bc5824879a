"""Which anchors are used, and who stands by for whom."""

from __future__ import annotations

from headrace.plan.decisions.placement import best, excess, guards, lacking, moved, replicas_of


def test_slots_beyond_an_executors_share_are_excess() -> None:
    assert excess(("a", "b", "c"), 3) == 0
    assert excess(("a", "a", "b"), 3) == 1
    assert excess(("a", "a", "b"), 2) == 0, "somebody has to take two"
    assert excess(("a", "a", "a", "a"), 2) == 2
    assert excess((), 0) == 0


def test_the_most_even_anchor_is_the_best_and_among_those_the_one_that_moves_least() -> None:
    assert best([("a", "a"), ("a", "b")], 2) == 1
    candidates = [("b", "a", "c"), ("a", "c", "b"), ("a", "b", "b")]
    assert best(candidates, 3, now=("a", "c", "c")) == 1


def test_a_standby_is_never_the_executor_that_it_stands_by_for() -> None:
    home = ("a", "b", "c")
    others = [("a", "c", "b"), ("b", "b", "a")]
    assert replicas_of(home, others, 1) == [("b",), ("c",), ("b",)]
    assert replicas_of(home, others, 2) == [("b",), ("c",), ("b", "a")]
    assert lacking(home, others, 1) == 0
    assert lacking(home, others, 2) == 2


def test_an_executors_duties_are_dealt_over_its_slots() -> None:
    home = ("a", "a", "b", "b")
    replicas = replicas_of(home, [("b", "b", "a", "a")], 1)
    assert guards(home, replicas) == {2: [0], 3: [1], 0: [2], 1: [3]}


def test_an_executor_without_a_slot_cannot_stand_by() -> None:
    assert guards(("a", "b"), [("c",), ("a",)]) == {0: [1]}


def test_slots_that_ran_elsewhere_have_moved() -> None:
    assert moved(("a", "b", "c"), {0: "a", 1: "c", 7: "x"}) == [1]
