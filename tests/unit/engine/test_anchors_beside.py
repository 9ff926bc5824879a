"""A new executor gets its share of the tasks, and epochs do not wait for that."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headrace.engine.spark.anchors import Anchor, Anchors

TOO_LONG_S = 10.0


class Conf:
    def get(self, name: str, default: str) -> str:
        return "1" if name == "spark.executor.cores" else default


class Context:
    """As much of a SparkContext as anchors use."""

    def __init__(self) -> None:
        self.defaultParallelism = 2
        self.cancelled: list[str] = []

    def getConf(self) -> Conf:
        return Conf()

    def addJobTag(self, tag: str) -> None:
        pass

    def setInterruptOnCancel(self, on: bool) -> None:
        pass

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)


class Frame:
    def __init__(self, places: tuple[str, ...]) -> None:
        self.places = places
        self.released = False

    def unpersist(self) -> None:
        self.released = True


class Placed(Anchors):
    """Anchors whose frames lie where the test says, and are ready when it says."""

    def __init__(self, context: Context) -> None:
        super().__init__(None, context, 0)  # type: ignore[arg-type]
        self.next = ("a", "b", "a")
        self.ready = threading.Event()
        self.ready.set()
        self.fails = False
        self.frames: list[Any] = []

    def _frame(self, tasks: int) -> Any:
        assert self.ready.wait(TOO_LONG_S)
        if self.fails:
            raise RuntimeError("a test")
        self.frames.append(Frame(self.next))
        return self.frames[-1]

    def _locate(self, frame: Any) -> tuple[str, ...]:
        return tuple(frame.places)

    @property
    def home(self) -> tuple[str, ...]:
        return self.current.home


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def anchors(context: Context) -> Placed:
    """Anchors of three tasks on two executors, beside which a third has just come."""
    made = Placed(context)
    made.use(3)
    assert made.home == ("a", "b", "a")
    made.ready.clear()
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


def test_epochs_go_on_with_the_old_anchor_until_the_new_one_is_built(anchors: Placed) -> None:
    old = anchors.frames[0]
    for _ in range(3):
        assert not anchors.refresh()
        assert anchors.home == ("a", "b", "a")
    assert not old.released
    anchors.ready.set()
    assert until_changed(anchors).home == ("a", "b", "c")
    assert old.released
    assert len(anchors.frames) == 2
    assert not anchors.refresh()


def test_what_is_built_for_executors_that_have_changed_again_is_not_used(
    anchors: Placed, context: Context
) -> None:
    assert not anchors.refresh()
    context.defaultParallelism = 2  # the third has died
    assert not anchors.refresh()
    assert len(context.cancelled) == 1
    anchors.ready.set()
    end = time.monotonic() + TOO_LONG_S
    while not (len(anchors.frames) == 2 and anchors.frames[1].released):
        assert time.monotonic() < end, "it was not released"
        time.sleep(0.005)
    assert not anchors.refresh()
    assert anchors.home == ("a", "b", "a")


def test_a_build_that_fails_is_tried_again(anchors: Placed) -> None:
    anchors.fails = True
    anchors.ready.set()
    assert not anchors.refresh()
    building = anchors._building
    assert building is not None
    building._thread.join(TOO_LONG_S)
    assert not anchors.refresh()
    assert anchors.home == ("a", "b", "a")
    anchors.fails = False
    assert until_changed(anchors).home == ("a", "b", "c")


def test_dropped_anchors_take_those_with_them_that_are_being_built(anchors: Placed) -> None:
    assert not anchors.refresh()
    anchors.ready.set()
    building = anchors._building
    assert building is not None
    building._thread.join(TOO_LONG_S)
    anchors.drop()
    assert [frame.released for frame in anchors.frames] == [True, True]
