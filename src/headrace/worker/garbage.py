"""Python's cyclic garbage collector, less eager while a slot works.

A slot's epoch makes hundreds of thousands of small objects that all live to its end, and
keeps as many between epochs. Python looks through the young ones after every 700, finds
nothing, and through all of them now and then: two fifths of a join's time. It is not
switched off: a table's hook may leave cycles behind, and an epoch may be long. Hooks per
record, the user's own, run under the usual thresholds: theirs may be many and large.
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
    """Raises the thresholds until the last thread that is inside has left."""
    global _resting, _usual
    with _lock:
        if not _resting:
            _usual = gc.get_threshold()
            # A process that collects still less, or not at all, has its reasons.
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
