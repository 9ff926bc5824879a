"""Tracebacks for dead letters: the user's frames, without those of the house.

A letter is part of what an epoch made, so its text must not depend on how its hook was
called: by a task, or by a replay that watches it.
"""

from __future__ import annotations

import bdb
import os
import traceback

_ROOMS = os.path.dirname(os.path.abspath(__file__))
_HOUSE = (_ROOMS, os.path.join(os.path.dirname(_ROOMS), "causal"), os.path.abspath(bdb.__file__))


def trace_of(error: BaseException) -> str:
    """The traceback of an error as text."""
    found = traceback.TracebackException.from_exception(error)
    _strip(found)
    return "".join(found.format())


def _strip(found: traceback.TracebackException) -> None:
    kept = [frame for frame in found.stack if not frame.filename.startswith(_HOUSE)]
    found.stack = traceback.StackSummary.from_list(kept)
    for other in (found.__cause__, found.__context__):
        if other is not None:
            _strip(other)
