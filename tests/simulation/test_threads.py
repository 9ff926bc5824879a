"""The simulated executor: what is submitted runs in order, when its process gets a turn."""

from __future__ import annotations

import pytest

from headrace.testing.simulator.machine.fiber import Fiber
from headrace.testing.simulator.machine.threads import SimulatedExecutor


class Broken(BaseException):
    """Not an Exception, as the simulator's own complaints."""


class OneProcess:
    """A process whose threads get their turns from the test."""

    def __init__(self) -> None:
        self.current = Fiber(lambda: None)
        self.strands: list[Fiber] = []
        self.executor = SimulatedExecutor(lambda: self)

    def pause(self) -> None:
        self.current.pause()


def test_what_is_submitted_runs_in_order_when_its_thread_has_its_turn() -> None:
    process, done = OneProcess(), []
    futures = [process.executor.submit(done.append, number) for number in range(3)]
    assert done == [] and len(process.strands) == 1
    process.strands[0].resume()
    assert done == [0, 1, 2] and all(future.done() for future in futures)
    process.executor.submit(done.append, 3)
    process.strands[1].resume()
    assert done == [0, 1, 2, 3]


def test_an_error_is_kept_for_whoever_asks() -> None:
    process = OneProcess()
    future = process.executor.submit(int, "no number")
    process.strands[0].resume()
    assert isinstance(future.exception(), ValueError)


def test_who_shuts_down_waits_or_cancels_what_has_not_begun() -> None:
    process, done = OneProcess(), []
    process.executor.submit(done.append, 1)
    process.executor.shutdown()
    assert done == [1]
    cancelled = process.executor.submit(done.append, 2)
    process.executor.shutdown(cancel_futures=True)
    assert done == [1] and cancelled.cancelled()


def test_a_broken_promise_in_a_thread_is_not_lost() -> None:
    process = OneProcess()

    def breaks() -> None:
        raise Broken

    process.executor.submit(breaks)
    with pytest.raises(Broken):
        process.executor.shutdown()
