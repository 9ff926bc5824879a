"""Tunes the Python process in which Spark runs a task: avoids two delays of 40 ms each.

*Late acknowledgements.* The JVM writes a task's command and its first rows as several small
segments of a TCP connection over loopback. Nagle's algorithm delays the second segment until the
first is acknowledged, and Linux delays the acknowledgement for 40 ms, in the hope of sending it
together with an answer.

*Full collections.* After every task the process runs a garbage collection over its whole heap:
every module, every cached key. The next task waits for it, as long as a small task takes to do all
its work. So the heap is excluded from it, and collected only when the process has grown: user code
may leave cycles, and what stays as large as it was has none to speak of.
"""

from __future__ import annotations

import gc
import mmap
import os
import socket
import stat
from contextlib import suppress

LOOK_EVERY = 61
"""After this many tasks the memory of the process is looked at. A prime: a collection delays its
epoch, and should not keep step with what comes every 8, 16 or 64 epochs."""
GROWTH, GROWTH_BYTES = 1.1, 16 << 20
"""When memory has grown by this factor, and so many bytes more, the whole heap is collected."""

_DESCRIPTORS = "/proc/self/fd"
_MEMORY = "/proc/self/statm"
_PAGE_BYTES = mmap.PAGESIZE
_tasks = 0
_settled: int | None = 0
"""How much memory the process took after the last full collection; None: one has just been."""


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
    global _tasks, _settled
    _tasks += 1
    gc.freeze()
    if _settled is None:
        _settled = memory_bytes()
    elif _tasks % LOOK_EVERY == 0:
        taken = memory_bytes()
        if not taken or taken > _settled * GROWTH + GROWTH_BYTES:
            _settled = None
            gc.unfreeze()
        else:
            _settled = min(_settled, taken)


def memory_bytes() -> int:
    """The memory of this process without pages of files; 0 where the system does not tell."""
    try:
        with open(_MEMORY, encoding="ascii") as told:
            _, resident, shared, *_ = map(int, told.read().split())
    except OSError:
        return 0
    return (resident - shared) * _PAGE_BYTES
