"""Fragments are made by several jobs in turn, so that no task keeps a processor for all of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace.engine.spark.held.deltas import SparkHeldDeltas
from headrace.engine.upkeep import held
from headrace.engine.upkeep.fragments import Fragment, FragmentJob
from headrace.engine.upkeep.held import TURNS_MAX, Made, turns
from headrace.errors import DeltaMissing, EpochFailed, StoreError
from headrace.plan.decisions.transient import is_outage
from headrace.plan.rings.ring import NOWHERE
from headrace.store.memory import MemoryStore


def job(slot: int) -> FragmentJob:
    return FragmentJob("C", slot, (), (), (), NOWHERE, 1, 0, 0.0)


@pytest.mark.parametrize(
    ("slots", "tasks", "found"),
    [
        ([], 4, []),
        ([0, 1], 4, [[0, 1]]),
        ([0, 4, 8], 4, [[0], [1], [2]]),
        ([0, 1, 4, 5, 8], 4, [[0, 1], [2, 3], [4]]),
    ],
)
def test_each_task_makes_one_fragment_in_a_turn(slots, tasks, found):
    assert [sorted(turn) for turn in turns([job(slot) for slot in slots], tasks)] == found


def test_many_slots_take_no_more_turns_than_that():
    jobs = [job(slot) for slot in range(1000)]
    found = turns(jobs, 8)
    assert len(found) == TURNS_MAX
    assert sorted(number for turn in found for number in turn) == list(range(1000))
    assert max(map(len, found)) <= 1.1 * min(map(len, found))


class Executors(SparkHeldDeltas):
    """What tasks would say, without Spark."""

    def __init__(self, dies_in: int | None = None) -> None:
        self.asked: list[list[int]] = []
        self._dies_in = dies_in
        self._numbers = lambda: (None, 2)

    def _run(self, what: str, work: Any) -> list[bytes]:
        self.asked.append([slot for slot, _ in work])
        if len(self.asked) - 1 == self._dies_in:
            raise RuntimeError("all executors are gone")
        said = [
            Made(number, None, "DeltaMissing", "a")
            if each.slot == 3
            else Made(number, Fragment(each, (), 0.0, 0.0))
            for _, (number, each) in work
        ]
        return [pickle.dumps(each) for each in said]


def test_what_each_turn_has_made_is_told_for_its_job():
    made = Executors()
    found = made.make([job(slot) for slot in (5, 3, 2, 1, 0)])
    assert made.asked == [[5, 2], [3, 0], [1]]
    assert [each.job.slot if isinstance(each, Fragment) else 3 for each in found] == [5, 3, 2, 1, 0]
    assert isinstance(found[1], DeltaMissing)


def test_after_a_turn_that_fails_there_is_no_other_and_what_was_made_counts():
    """Without executors each would wait for its deadline, and a driver that ends for all."""
    made = Executors(dies_in=1)
    found = made.make([job(slot) for slot in (5, 2, 1, 0, 7)])
    assert len(made.asked) == 2
    assert [isinstance(each, Fragment) for each in found] == [True, True, False, False, False]
    assert isinstance(found[-1], StoreError) and "all executors are gone" in str(found[-1])


class OperationalError(Exception):
    """What a database calls trouble of its own."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("a"), EpochFailed),
        (OperationalError("busy"), StoreError),
        (ConnectionError("reset"), StoreError),
        (DeltaMissing("a"), DeltaMissing),
    ],
)
def test_an_error_of_a_task_is_an_answer_and_only_an_outage_is_tried_again(
    error, kind, monkeypatch
):
    def fails(store: Any, job: FragmentJob) -> Fragment:
        raise error

    monkeypatch.setattr(held, "make_fragment", fails)
    found = held.make(MemoryStore(), 0, job(7)).outcome(job(7))
    assert type(found) is kind and is_outage(found) is (kind is StoreError)


def test_a_task_without_memory_fails(monkeypatch):
    def fails(store: Any, job: FragmentJob) -> Fragment:
        raise MemoryError

    monkeypatch.setattr(held, "make_fragment", fails)
    with pytest.raises(MemoryError):
        held.make(MemoryStore(), 0, job(7))
