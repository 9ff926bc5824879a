"""The simulated `threading`: events and threads of a simulated process.

A thread is a fiber of its process and gets a turn when it is due. Waiting gives the turn back; it
ends at a time of the simulation's uptime, or when the event is set.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.testing.simulator.machine.fiber import Fiber, Process


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
