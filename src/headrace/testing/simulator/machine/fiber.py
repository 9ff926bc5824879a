"""Fibers: code that can pause in the middle and continue later, one at a time.

A driver can be paused in the middle of any call, so it needs a stack of its own. Each fiber is a
thread, and a pair of locks passes the turn: no two ever run at once, and the simulation alone
decides their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Killed(BaseException):
    """The death of a process: nothing that it does after this has any effect."""


class Fiber:
    """A function that runs until it pauses."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._turn, self._back = threading.Lock(), threading.Lock()
        self._turn.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = False
        self.dead = False
        self.done = False
        self.error: BaseException | None = None
        self.wakes_at = 0.0
        """Until when it wants to wait, in seconds of uptime."""

    def resume(self) -> None:
        """Runs the fiber until it pauses or ends."""
        if self.done:
            return
        if not self._started:
            self._started = True
            self._thread.start()
        self._turn.release()
        self._back.acquire()
        if self.done:
            self._thread.join()

    def pause(self) -> None:
        """Called by the fiber itself: gives the turn back."""
        self._back.release()
        self._turn.acquire()
        if self.dead:
            raise Killed

    def kill(self) -> None:
        """Ends the fiber where it is paused."""
        self.dead = True
        while not self.done:
            self.resume()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.dead:
                self._body()
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._back.release()


class Process(Protocol):
    """What threads need of the simulated process that they belong to."""

    current: Fiber
    """The thread whose turn it is."""
    strands: list[Fiber]
    """Threads beside the first."""

    def pause(self) -> None:
        """The running thread gives its turn back."""
