"""Tunes the Python process in which Spark runs a task: avoids two delays of 40 ms each.

*Late acknowledgements.* The JVM writes a task's command and its first rows as several small
segments of a TCP connection over loopback. Nagle's algorithm delays the second segment until the
first is acknowledged, and Linux delays the acknowledgement for 40 ms, in the hope of sending it
together with an answer.

*Full collections.* After every task the process runs a garbage collection over its whole heap:
every module, every cached key. The next task waits for it, as long as a small task takes to do all
its work.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress

COLLECT_EVERY = 64
"""After this many tasks the whole heap is collected, because user code may leave cycles."""

_DESCRIPTORS = "/proc/self/fd"
_tasks = 0


def acknowledge_at_once() -> None:
    """Sends pending acknowledgements on this process's TCP connections, now and for a while.

    Does nothing if that is not supported (another system, sockets of another family).
    """
    quick = getattr(socket, "TCP_QUICKACK", None)
    if quick is None:
        return
    with suppress(OSError):
        for name in os.listdir(_DESCRIPTORS):
            with suppress(OSError):
                _acknowledge(int(name), quick)


def _acknowledge(descriptor: int, quick: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    connection = socket.socket(fileno=descriptor)
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, quick, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    finally:
        connection.detach()  # the descriptor belongs to Spark and stays open


def spare_collection() -> None:
    """At the end of a task: excludes live objects from most garbage collections."""
    global _tasks
    _tasks += 1
    if _tasks % COLLECT_EVERY:
        gc.freeze()
    else:
        gc.unfreeze()
