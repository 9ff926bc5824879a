"""The Python process that Spark lends a task: two of its habits cost 40 ms each, and need not.

*Late acknowledgements.* The JVM writes a task's command and its first rows as
several small segments of a TCP connection over loopback. Nagle's algorithm holds
the second back until the first is acknowledged, and Linux delays that for 40 ms
in the hope of an answer to send along.

*Full collections.* After every task the process collects garbage in all that it
holds: every module, every cached key. The next task waits for it, as long as a
small task takes to do all its work.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress

COLLECT_EVERY = 64
"""After so many tasks the whole heap is collected after all: user code may leave cycles behind."""

_DESCRIPTORS = "/proc/self/fd"
_tasks = 0


def acknowledge_at_once() -> None:
    """Sends what acknowledgements are due on this process's TCP connections, now and for a while.

    Where there is no such thing (another system, sockets of another family) nothing happens.
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
        connection.detach()  # the descriptor is Spark's, and stays open


def spare_collection() -> None:
    """At the end of a task: what is alive now is left out of collections, most of the time."""
    global _tasks
    _tasks += 1
    if _tasks % COLLECT_EVERY:
        gc.freeze()
    else:
        gc.unfreeze()
