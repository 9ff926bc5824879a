"""Tracebacks for dead letters: the user's frames, without those of the house; and messages.

A letter is part of what an epoch made, so its text must not depend on how its hook was
called: by a task, or by a replay that watches it.
"""

from __future__ import annotations

import bdb
import os
import traceback
from typing import Any

from headrace.pipeline.graph import Node

_ROOMS = os.path.dirname(os.path.abspath(__file__))
_HOUSE = (_ROOMS, os.path.join(os.path.dirname(_ROOMS), "causal"), os.path.abspath(bdb.__file__))


def trace_of(error: BaseException) -> str:
    """The traceback of an error as text."""
    found = traceback.TracebackException.from_exception(error)
    _strip(found)
    return "".join(found.format())


def describe(node: Node, key: Any, what: str, error: Exception, *, table: bool = False) -> str:
    """A message about user code that raised; in a table no single record is to blame."""
    trace = "".join(traceback.format_exception(error)[-4:]).rstrip()
    where = f"computation {node.name!r}" + ("" if key is None else f", key {key!r:.100}")
    mend = (
        "Mend the code, or the records in a step before it, and start again: nothing of this "
        "epoch has happened"
        if table
        else "Mend the code and start again (nothing of this epoch has happened), or send such "
        'records aside: errors=to("dead")'
    )
    return f"{where}, {what}: {type(error).__name__}: {error}\n{trace}\n{mend}"


def _strip(found: traceback.TracebackException) -> None:
    kept = [frame for frame in found.stack if not frame.filename.startswith(_HOUSE)]
    found.stack = traceback.StackSummary.from_list(kept)
    for other in (found.__cause__, found.__context__):
        if other is not None:
            _strip(other)
