"""A new executor gets its share of the tasks when it is warm, and epochs do not wait for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.spark.anchoring.anchors import BUILDS_MAX, REST_S, Anchor, Anchors

TOO_LONG_S = 10.0


class Conf:
    def get(self, name: str, default: str) -> str:
        return "1" if name == "spark.executor.cores" else default


class Context:
    """As much of a SparkContext as anchors use."""

    def __init__(self) -> None:
        self.defaultParallelism = 2

    def getConf(self) -> Conf:
        return Conf()


class Session:
    """As much of a session as a small job uses. The job ends when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.warm = threading.Event()
        self.fails = False
        self.idle = 0
        """Executors whose cores Spark counts, and to which it gives no tasks."""

    def range(self, first: int, last: int, step: int, tasks: int) -> Session:
        self.jobs.append(tasks)
        return self

    def mapInArrow(self, function: Any, schema: str) -> Session:
        return self

    def collect(self) -> list[Any]:
        assert self.warm.wait(TOO_LONG_S)
        if self.fails:
            raise RuntimeError("a test")
        tasks = self.jobs[-1]
        return [(task, f"executor {task % (tasks - self.idle)}") for task in range(tasks)]


class Frame:
    def __init__(self, places: tuple[str, ...]) -> None:
        self.places = places
        self.released = False

    def unpersist(self) -> None:
        self.released = True


class Placed(Anchors):
    """Anchors whose frames lie where the test says."""

    def __init__(
        self,
        session: Session,
        context: Context,
        replicas: int = 0,
        uptime_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(session, context, replicas, uptime_s)  # type: ignore[arg-type]
        self.next = ("a", "b", "a")
        self.following: list[tuple[str, ...]] = []
        self.frames: list[Any] = []
        self.located = 0

    def _frame(self, tasks: int) -> Any:
        self.frames.append(Frame(self.following.pop(0) if self.following else self.next))
        return self.frames[-1]

    def _locate(self, frame: Any) -> tuple[str, ...]:
        self.located += 1
        return tuple(frame.places)

    @property
    def home(self) -> tuple[str, ...]:
        return self.current.home


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def anchors(session: Session, context: Context) -> Placed:
    """Anchors of three tasks on two executors, beside which a third has just come."""
    return beside_a_third(Placed(session, context), context)


def beside_a_third(made: Placed, context: Context) -> Placed:
    made.use(3)
    assert made.home == ("a", "b", "a")
    made.next = ("a", "b", "c")
    context.defaultParallelism = 3
    return made


def until_changed(anchors: Placed) -> Anchor:
    end = time.monotonic() + TOO_LONG_S
    while time.monotonic() < end:
        if anchors.refresh():
            return anchors.current
        time.sleep(0.005)
    raise AssertionError("the anchors have not changed")


def until_looked(anchors: Placed) -> None:
    """Until the end of the small jobs was noticed."""

    def noticed() -> bool:
        assert not anchors.refresh()
        return anchors._warm_up is None

    until(noticed, "the end of the small jobs")


def until(happened: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + TOO_LONG_S
    while not happened():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.005)


def test_epochs_go_on_where_they_are_until_the_new_executor_is_warm(
    anchors: Placed, session: Session
) -> None:
    old = anchors.frames[0]
    for _ in range(3):
        assert not anchors.refresh()
        assert anchors.home == ("a", "b", "a")
    assert session.jobs == [3], "one small job, with a task for each core"
    assert not old.released
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c")
    assert old.released
    assert len(anchors.frames) == 2
    assert not anchors.refresh()


def test_an_executor_that_dies_before_it_is_warm_gets_nothing(
    anchors: Placed, session: Session, context: Context
) -> None:
    assert not anchors.refresh()
    context.defaultParallelism = 2
    assert not anchors.refresh()
    session.warm.set()
    until_looked(anchors)
    assert anchors.home == ("a", "b", "a")
    assert len(anchors.frames) == 1


def test_a_death_beside_a_cold_executor_is_seen_at_once(
    anchors: Placed, session: Session, context: Context
) -> None:
    assert not anchors.refresh()
    anchors.frames[0].places = ("b", "b", "b")  # Spark has cached the lost parts again
    anchors.ran(3, {0: "b", 1: "b", 2: "b"})
    assert not anchors.refresh()
    assert anchors.home == ("b", "b", "b"), "nothing is built while one is cold"
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c")


def test_small_jobs_go_on_until_every_executor_has_answered(
    anchors: Placed, session: Session
) -> None:
    session.idle = 1
    session.warm.set()
    anchors.refresh()
    until(lambda: len(session.jobs) >= 2, "another small job")
    assert not anchors.refresh()
    assert anchors.home == ("a", "b", "a"), "nothing is built while one has not answered"
    session.idle = 0
    assert until_changed(anchors).home == ("a", "b", "c")


def test_an_executor_that_dies_before_it_has_answered_is_not_waited_for(
    anchors: Placed, session: Session, context: Context
) -> None:
    session.idle = 1
    session.warm.set()
    anchors.refresh()
    until(lambda: len(session.jobs) >= 2, "another small job")
    session.idle, context.defaultParallelism = 0, 2
    until_looked(anchors)
    assert anchors.home == ("a", "b", "a") and len(anchors.frames) == 1


def test_tasks_that_lie_unevenly_at_first_are_spread_when_all_executors_are_warm(
    session: Session, context: Context
) -> None:
    context.defaultParallelism = 3
    anchors = Placed(session, context)
    anchors.use(3)
    assert anchors.home == ("a", "b", "a") and len(anchors.frames) == BUILDS_MAX
    anchors.next = ("a", "b", "c")
    assert not anchors.refresh()
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c")
    assert len(anchors.frames) == BUILDS_MAX + 1
    assert not anchors.refresh()


def test_frames_for_another_number_of_tasks_are_not_used(
    anchors: Placed, session: Session, context: Context
) -> None:
    assert not anchors.refresh()
    old = anchors._warm_up
    assert old is not None
    anchors.next = ("a", "b", "a", "b", "a")
    anchors.use(5)
    anchors.next = ("a", "b", "c", "a", "b")
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c", "a", "b")
    until(lambda: old.is_done, "the end of the first warm-up")
    assert {len(frame.places) for frame in anchors.frames if not frame.released} == {5}


def test_tasks_that_lie_evenly_at_first_need_no_small_job(
    session: Session, context: Context
) -> None:
    Placed(session, context).use(3)
    assert not session.jobs


def test_a_small_job_that_fails_holds_nothing_up(anchors: Placed, session: Session) -> None:
    session.fails = True
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c")


def test_replicas_are_not_placed_on_a_cold_executor(session: Session, context: Context) -> None:
    anchors = Placed(session, context, replicas=2)
    anchors.following = [("a", "b"), ("b", "a"), ("c", "c")]
    anchors.use(2)
    assert anchors.current.replicas == [("b",), ("a",)]
    context.defaultParallelism = 3
    for _ in range(3):
        assert not anchors.refresh()
    assert anchors.following, "nothing was built"
    session.warm.set()
    assert until_changed(anchors).replicas == [("b", "c"), ("a", "c")]


def test_replicas_are_not_chosen_right_after_a_death_but_when_another_executor_is_warm(
    session: Session, context: Context
) -> None:
    anchors, now = after_a_death(session, context)
    context.defaultParallelism = 3
    anchors.following = [("a", "b", "c"), ("b", "c", "a")]
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c")
    assert now == [0.0]


def test_replicas_are_chosen_after_a_rest_if_no_other_executor_comes(
    session: Session, context: Context
) -> None:
    anchors, now = after_a_death(session, context)
    now[0] = REST_S - 1
    assert not anchors.refresh()
    now[0] = REST_S
    anchors.following = [("b", "a", "b")]
    assert anchors.refresh()
    assert anchors.current.replicas == [("b",), ("a",), ("b",)]
    now[0] = 10 * REST_S
    assert not anchors.refresh()


def after_a_death(session: Session, context: Context) -> tuple[Placed, list[float]]:
    """Three tasks with a replica each; then their executor c dies."""
    now = [0.0]
    context.defaultParallelism = 3
    anchors = Placed(session, context, replicas=1, uptime_s=lambda: now[0])
    anchors.following = [("a", "b", "c"), ("c", "c", "a")]
    anchors.use(3)
    assert anchors.current.replicas == [("c",), ("c",), ("a",)]
    context.defaultParallelism = 2
    anchors.frames[0].places, anchors.frames[1].places = ("a", "b", "a"), ("a", "b", "a")
    for _ in range(3):
        anchors.ran(3, {0: "a", 1: "b", 2: "a"})
        assert not anchors.refresh()
    assert anchors.home == ("a", "b", "a")
    assert len(anchors.frames) == 2, "nothing was built"
    return anchors, now


def test_tasks_stay_while_only_their_executor_has_something_that_is_needed(
    anchors: Placed, session: Session
) -> None:
    stays = [True]
    session.warm.set()
    end = time.monotonic() + TOO_LONG_S
    while not anchors.waits:
        assert time.monotonic() < end, "it has not noticed that tasks are to be spread"
        assert not anchors.refresh(lambda: stays[0])
        time.sleep(0.005)
    for _ in range(3):
        assert not anchors.refresh(lambda: stays[0])
        assert anchors.home == ("a", "b", "a")
    made = list(anchors.frames)
    stays[0] = False
    assert anchors.refresh(lambda: stays[0])
    assert anchors.home == ("a", "b", "c") and not anchors.waits
    assert anchors.frames == made, "it was built meanwhile, beside the epochs"
    assert not anchors.refresh(lambda: stays[0])


def test_the_next_anchor_is_built_beside_the_epochs(anchors: Placed, session: Session) -> None:
    session.warm.set()
    assert not anchors.refresh()
    until(lambda: anchors._warm_up is not None and anchors._warm_up.is_done, "the next anchor")
    old, new = anchors.frames
    assert not old.released
    assert anchors.refresh()
    assert anchors.frames == [old, new] and old.released and not new.released


def test_an_uneven_anchor_built_beside_the_epochs_is_replaced(
    anchors: Placed, session: Session
) -> None:
    anchors.following = [("a", "b", "b"), ("c", "c", "a"), ("b", "b", "c")]
    session.warm.set()
    assert until_changed(anchors).home == ("a", "b", "c")
    assert [frame.released for frame in anchors.frames] == [True] * 4 + [False]


def test_an_epoch_after_a_death_tells_where_its_tasks_lie_now(
    session: Session, context: Context
) -> None:
    context.defaultParallelism = 3
    anchors = Placed(session, context)
    anchors.next = ("a", "b", "c")
    anchors.use(3)
    asked = anchors.located
    context.defaultParallelism = 2
    anchors.ran(3, {0: "a", 1: "b", 2: "b"})  # Spark has noticed it during the epoch
    assert not anchors.refresh()
    assert anchors.home == ("a", "b", "b")
    assert anchors.located == asked, "no job asks for what is known"


def test_a_death_that_leaves_tasks_uneven_spreads_them(session: Session, context: Context) -> None:
    context.defaultParallelism = 4
    anchors = Placed(session, context)
    anchors.next = ("a", "b", "c", "d")
    anchors.use(4)
    context.defaultParallelism = 3
    assert not anchors.refresh()
    anchors.ran(4, {0: "a", 1: "b", 2: "c", 3: "a"})
    assert not anchors.refresh(), "two of four tasks are no more than a share of three"
    context.defaultParallelism = 2
    assert not anchors.refresh()
    anchors.next = ("a", "b", "a", "b")
    anchors.ran(4, {0: "a", 1: "a", 2: "a", 3: "b"})
    assert anchors.refresh() and anchors.home == ("a", "b", "a", "b")


def test_a_task_that_ran_elsewhere_without_a_death_is_looked_for(
    session: Session, context: Context
) -> None:
    anchors = Placed(session, context)
    anchors.use(3)
    asked = anchors.located
    anchors.ran(3, {0: "a", 1: "a", 2: "a"})
    assert not anchors.refresh()
    assert anchors.home == ("a", "b", "a") and anchors.located == asked + 1


def test_what_was_built_is_released_when_an_executor_dies(
    anchors: Placed, session: Session, context: Context
) -> None:
    session.warm.set()
    stays = lambda: True  # noqa: E731
    until(lambda: not anchors.refresh(stays) and anchors.waits, "a reason to spread tasks")
    context.defaultParallelism = 2
    anchors.frames[0].places = ("a", "b", "b")
    anchors.refresh(stays)
    assert [frame.released for frame in anchors.frames] == [False, True]


def test_what_is_built_after_all_anchors_were_dropped_is_released(
    anchors: Placed, session: Session
) -> None:
    assert not anchors.refresh()
    warm_up = anchors._warm_up
    assert warm_up is not None
    anchors.drop()
    session.warm.set()
    until(lambda: warm_up.is_done, "the end")
    assert all(frame.released for frame in anchors.frames)


def test_a_lost_executor_moves_its_tasks_although_they_were_to_stay(
    anchors: Placed, session: Session, context: Context
) -> None:
    context.defaultParallelism = 2
    anchors.frames[0].places = ("b", "b", "b")
    anchors.ran(3, {0: "b", 1: "b", 2: "b"})
    anchors.refresh(lambda: True)
    assert anchors.home == ("b", "b", "b"), "Spark has put them there"
