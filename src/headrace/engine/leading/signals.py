"""SIGINT and SIGTERM stop a run after its current epoch; a second one stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPPING = "\nStopping after the current epoch; once more stops at once.\n"

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def graceful_stop(stop: Callable[[], object], say: str = "") -> Iterator[None]:
    """While inside, the first signal calls `stop` and the second interrupts.

    Outside of the main thread, where Python handles no signals, it does nothing. `say` is written
    to standard error with the first signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            signal.signal(number, before[number])
            raise KeyboardInterrupt
        asked = True
        if say:
            os.write(2, say.encode())
        # In its own thread: a signal handler may interrupt this thread anywhere, even while it
        # holds the very lock that `stop` needs.
        threading.Thread(target=stop, name="graceful-stop", daemon=True).start()

    before: dict[int, Any] = {number: signal.signal(number, handle) for number in _NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """While inside, before a run begins, SIGTERM ends the program in good order, with status 0.

    Nothing has happened then that would have to be completed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if asked:  # not said in the handler: standard error may be Spark's for a while
            os.write(2, b"\nStopped before the run began.\n")
        signal.signal(signal.SIGTERM, before)
