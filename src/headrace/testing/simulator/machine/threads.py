"""The simulated `threading`: events and threads of a simulated process.

A thread is a fiber of its process and gets a turn when it is due. Waiting gives the turn back; it
ends at a time of the simulation's uptime, or when the event is set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from headrace.testing.simulator.machine.fiber import Fiber, Killed, Process

_Given = TypeVar("_Given")


class SimulatedEvent:
    """`threading.Event` of the process that runs."""

    def __init__(
        self, running: Callable[[], Process | None], uptime_s: Callable[[], float]
    ) -> None:
        self._running, self._uptime_s = running, uptime_s
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        """Gives other threads and processes their turns meanwhile."""
        life = self._running()
        until = self._uptime_s() + timeout
        while life is not None and not self._set and self._uptime_s() < until:
            life.current.wakes_at = until
            life.pause()
        return self._set


class SimulatedThread:
    """`threading.Thread`: another fiber of the process that starts it."""

    def __init__(self, running: Callable[[], Process | None], target: Callable[[], None]) -> None:
        self._running = running
        self._fiber = Fiber(target)

    def start(self) -> None:
        life = self._running()
        if life is not None:
            life.strands.append(self._fiber)

    def join(self) -> None:
        """Runs the thread to its end; if it pauses on the way, the whole process pauses."""
        life = self._running()
        while life is not None and not self._fiber.done:
            caller, life.current = life.current, self._fiber
            try:
                self._fiber.resume()
            finally:
                life.current = caller
            if not self._fiber.done:
                life.pause()
        error = self._fiber.error
        if error is not None and not isinstance(error, Exception | Killed):
            raise error  # a guarantee was broken in the thread

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self._fiber.done


class SimulatedExecutor(Executor):
    """One thread of the process that submits, which runs while there is something to do."""

    def __init__(self, running: Callable[[], Process | None]) -> None:
        self._running = running
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._thread: SimulatedThread | None = None

    def submit(self, fn: Callable[..., _Given], /, *args: Any, **options: Any) -> Future[_Given]:
        """Does it later, in a thread."""
        future: Future[_Given] = Future()
        self._waiting.append((future, partial(fn, *args, **options)))
        if self._thread is None or self._thread.done:
            self._thread = SimulatedThread(self._running, self._work)
            self._thread.start()
        return future

    def _work(self) -> None:
        while self._waiting:
            future, act = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(act())
            except Exception as error:
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for what was submitted, or cancels what has not begun."""
        if cancel_futures:
            for future, _ in self._waiting:
                future.cancel()
        if wait and self._thread is not None:
            self._thread.join()
