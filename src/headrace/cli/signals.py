"""SIGINT and SIGTERM stop a job after its current epoch; a second one stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

_NOTICE = b"\nStopping after the current epoch; once more stops at once.\n"


class Stoppable(Protocol):
    """What a signal can stop."""

    def stop(self, wait: bool = True) -> Any:
        """Asks for an end after the current epoch."""


@contextmanager
def graceful_stop(job: Stoppable) -> Iterator[None]:
    """While inside, the first signal asks `job` to stop and the second interrupts."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        os.write(2, _NOTICE)
        # In a thread of its own: a handler runs in the middle of anything, perhaps while this
        # thread holds the very lock that stop() needs.
        threading.Thread(target=job.stop, args=(False,), name="graceful-stop", daemon=True).start()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
