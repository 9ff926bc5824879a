"""Makes Python's garbage collector run less often where records are read, computed or committed.

In one epoch a slot creates hundreds of thousands of small objects that all live to the end of the
epoch, and it keeps as many between epochs. With the default thresholds Python scans the young
objects after every 700 allocations, finds nothing to free, and sometimes scans all objects. This
took two fifths of the time of a join. A driver of ten thousand slots does the same with their
manifests. A driver that reads or delivers 20,000 messages of Kafka scans all of its objects
meanwhile, which takes longer than to read the messages.

The collector is not switched off, because a table's hook may create reference cycles, and an epoch
may be long. The user's hooks per record run under the usual thresholds, because their cycles may be
many and large.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (100_000, 50, 100)

_lock = threading.Lock()
_resting = 0
_usual = gc.get_threshold()


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Raises the thresholds until the last thread has left the block."""
    global _resting, _usual
    with _lock:
        if not _resting:
            _usual = gc.get_threshold()
            # Respect a process that chose to collect even less often, or never.
            if 0 < _usual[0] < THRESHOLDS[0]:
                gc.set_threshold(*THRESHOLDS)
        _resting += 1
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting:
                gc.set_threshold(*_usual)
