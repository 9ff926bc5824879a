"""Limits the time of a call: runs it in another thread, and stops waiting after the timeout.

There is no other way to bound a function that hangs. Threads are kept and reused, because a call
may be made for every record.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Given = TypeVar("_Given")
_Done = tuple[Any, BaseException | None]
_Order = tuple[Callable[[], Any], queue.SimpleQueue[_Done]]


def run_within(timeout_s: float, act: Callable[[], _Given], leave: Callable[[], None]) -> _Given:
    """The result of `act`; after a timeout it calls `leave` and raises TimeoutError.

    The thread of an act that timed out continues, and its result is ignored.
    """
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
    answer: queue.SimpleQueue[_Done] = queue.SimpleQueue()
    helper.inbox.put((act, answer))
    try:
        value, error = answer.get(timeout=timeout_s)
    except queue.Empty:
        leave()
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    if error is not None:
        raise error
    given: _Given = value
    return given


_idle: list[_Helper] = []
"""Threads that wait for a call. A forked process has none of them."""
os.register_at_fork(after_in_child=_idle.clear)


class _Helper(threading.Thread):
    """A thread that makes calls one after another; a caller may stop waiting for its call."""

    def __init__(self) -> None:
        super().__init__(name="headrace-call", daemon=True)
        self.inbox: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            act, answer = self.inbox.get()
            done: _Done
            try:
                done = act(), None
            except BaseException as error:
                done = None, error
            _idle.append(self)
            answer.put(done)
            del act, answer, done  # while the thread waits it keeps none of them alive
