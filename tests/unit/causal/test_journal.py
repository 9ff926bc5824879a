"""Calls that must not repeat, under a clock of the test's own (PROTOCOL E2)."""

from __future__ import annotations

import threading

import pytest
from tests.unit.systems import Stopwatch

from headrace.causal.journal import Journal, TooLate
from headrace.causal.outside import ANSWER, FAILED, try_call
from headrace.errors import CorruptCheckpoint, Fenced, ServiceError, StoreError
from headrace.model.services import CALL, CallOptions
from headrace.plan.epoch import Determinant
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

AGAIN = CallOptions(uncertain="again")


class Died(BaseException):
    pass


class World:
    def __init__(self, store=None) -> None:
        self.time = Stopwatch(1000.0)
        self.store = store or MemoryStore()
        self.store.system = self.time
        self.calls = 0
        self.plan(1, 10)

    def plan(self, epoch: int, wall: int, given_up: dict[int, int] | None = None) -> None:
        """From now on it is a task of this plan that asks."""
        self.journal = Journal(
            self.store, "determinants/1", epoch, wall, given_up
        )  # fmt: skip

    def fail(self, deadline: float) -> Determinant:
        self.calls += 1
        return Determinant("n", b"r", FAILED, message=f"failure {self.calls}", again=True)

    def call(self, deadline: float) -> Determinant:
        self.calls += 1
        return Determinant("n", b"r", ANSWER, b"%d" % self.calls)

    def die(self, deadline: float) -> Determinant:
        self.calls += 1
        raise Died

    def once(self, perform=None, options=CALL, request=b"r") -> Determinant:
        return self.journal.once("n", request, options, perform or self.call)


def test_an_answer_is_read_by_all_who_come_after():
    world = World()
    assert [world.once().value for _ in range(3)] == [b"1"] * 3
    assert world.calls == 1


def test_whoever_finds_a_dead_callers_intent_waits_for_its_deadline_and_then_does_not_know():
    world = World()
    with pytest.raises(Died):
        world.once(world.die)
    began = world.time.now_s
    assert world.once().kind == "uncertain"
    assert world.time.now_s - began >= CALL.timeout_us / 1e6
    assert world.once().kind == "uncertain" and world.calls == 1


def test_or_calls_again_once_more_each_time_a_caller_dies():
    world = World()
    for _ in range(2):
        with pytest.raises(Died):
            world.once(world.die, AGAIN)
    assert world.once(options=AGAIN).value == b"3"
    assert world.once(options=AGAIN).value == b"3" and world.calls == 3


def test_a_zombie_that_comes_back_late_gets_what_counts_instead_of_its_own_answer():
    world = World()

    def slow(deadline: float) -> Determinant:
        world.time.now_s = deadline + 1
        assert world.once().kind == "uncertain"  # meanwhile, somebody else
        return world.call(deadline)

    assert world.once(slow).kind == "uncertain"


def test_an_owner_that_is_late_does_not_call():
    world = World()

    def frozen(deadline: float) -> Determinant:
        world.time.now_s = deadline
        return try_call(
            "n", b"r", "x", CALL, lambda one: b"called", deadline=deadline,
            system=world.time,
        )  # fmt: skip

    assert world.once(frozen).kind == "uncertain"
    with pytest.raises(TooLate):
        frozen(0.0)


@pytest.mark.parametrize("begun", ["call", "die"])
def test_another_request_under_one_name_is_an_error(begun):
    world = World()
    try:
        world.once(getattr(world, begun))
    except Died:
        pass
    with pytest.raises(ServiceError, match="another request"):
        world.once(request=b"other")
    assert world.calls == 1


def test_of_many_at_once_one_calls(tmp_path):
    store = DiskStore(tmp_path)
    store.make_directory("determinants/1")
    lock, calls, found = threading.Lock(), [], []

    def call(deadline: float) -> Determinant:
        with lock:
            calls.append(1)
        return Determinant("n", b"r", ANSWER, b"%d" % len(calls))

    def run() -> None:
        found.append(Journal(store, "determinants/1").once("n", b"r", CALL, call).value)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"1"] * 8 and len(calls) == 1


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_task_whose_directory_was_taken_away_does_not_call(kind, tmp_path):
    store = DiskStore(tmp_path) if kind == "disk" else MemoryStore()
    store.make_directory("determinants/1")
    world = World(store)
    world.once()
    assert store.retire_directory("determinants/1")
    assert store.list("determinants") == []
    with pytest.raises(Fenced, match="must not call"):
        world.once()
    assert store.retire_directory("determinants/1")  # once more, as after a crash
    assert world.calls == 1


class Doubtful(MemoryStore):
    """Its puts succeed, and say that they did not."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        super().put_if_absent(name, data)
        raise StoreError("no answer")


def test_a_put_of_unknown_outcome_is_settled_by_reading_back():
    world = World(Doubtful())
    assert world.once().value == world.once().value == b"1"
    assert world.calls == 1


class Away(MemoryStore):
    def put_if_absent(self, name: str, data: bytes) -> bool:
        raise StoreError("away")


def test_without_a_store_nobody_calls():
    world = World(Away())
    with pytest.raises(StoreError, match="could not be written: away"):
        world.once()
    assert world.calls == 0


def test_a_damaged_answer_is_not_used():
    world = World()
    world.once()
    (name,) = (n for n in world.store.files if n.endswith(".result"))
    world.store.files[name] = world.store.files[name][:-5] + b"xxxxx"
    with pytest.raises(CorruptCheckpoint):
        world.once()


def test_a_directory_that_was_taken_away_and_made_again_takes_no_calls() -> None:
    store = MemoryStore()
    store.put_if_absent("determinants/1.closed", b"")
    store.make_directory("determinants/1")
    called = []

    def call(deadline: float) -> Determinant:
        called.append(deadline)
        return Determinant("n", b"r", "answer", b"1")

    with pytest.raises(Fenced, match="long closed"):
        Journal(store, "determinants/1").once("n", b"r", CALL, call)
    assert not called


def test_a_failure_is_told_to_every_try_of_its_plan_and_is_void_when_that_was_voided() -> None:
    world = World()
    assert [world.once(world.fail).message for _ in range(3)] == ["failure 1"] * 3
    world.plan(1, 11, {1: 10})
    assert [world.once(world.fail).message for _ in range(2)] == ["failure 2"] * 2
    world.plan(1, 12, {1: 11})
    assert [world.once().value for _ in range(2)] == [b"3"] * 2


def test_a_failure_of_a_voided_plan_is_void_in_later_epochs_and_one_that_was_committed_is_not() -> (
    None
):
    world = World()
    world.once(world.fail)
    world.plan(3, 20, {1: 10, 2: 15})
    assert world.once(world.fail).message == "failure 2"
    world.plan(4, 30, {1: 10, 2: 15})
    assert world.once().message == "failure 2", "its plan, of epoch 3, was not voided"


def test_a_task_of_a_plan_that_was_voided_sees_what_came_after_it_and_calls_nobody() -> None:
    world = World()
    world.plan(1, 11, {1: 10})
    world.once(world.fail)
    world.plan(1, 10)
    assert world.once().message == "failure 1" and world.calls == 1


def test_answers_and_doubts_of_voided_plans_stay() -> None:
    world = World()
    world.once()
    world.plan(1, 11, {1: 10})
    assert world.once().value == b"1"
    world = World()
    with pytest.raises(Died):
        world.once(world.die)
    assert world.once().kind == "uncertain"
    world.plan(1, 11, {1: 10})
    assert world.once().kind == "uncertain" and world.calls == 1
    assert world.once(options=AGAIN).value == b"2", "code that says so gets past a doubt"
    world.plan(1, 11, {1: 10})
    assert world.journal.known("n", b"r", AGAIN).value == b"2"
    assert world.journal.known("n", b"r", CALL).kind == "uncertain"


def test_what_failed_may_be_asked_otherwise_and_what_is_in_doubt_may_not() -> None:
    world = World()
    world.once(world.fail)
    with pytest.raises(ServiceError, match="another request"):
        world.once(request=b"other")
    world.plan(1, 11, {1: 10})

    def other(deadline: float) -> Determinant:
        return Determinant("n", b"other", ANSWER, b"new")

    assert world.once(other, request=b"other").value == b"new"
    with pytest.raises(ServiceError, match="another request"):
        world.once(request=b"r")


def test_a_death_in_a_later_round_leaves_a_doubt() -> None:
    world = World()
    world.once(world.fail)
    world.plan(1, 11, {1: 10})
    with pytest.raises(Died):
        world.once(world.die)
    assert world.once().kind == "uncertain" and world.calls == 2
