"""Tracebacks for dead letters and messages: the user's frames, without the frames of Headrace.

A dead letter is part of the output of an epoch. So its text must not depend on who called the
hook: a task, or a replay that records the call.
"""

from __future__ import annotations

import bdb
import os
import traceback
from collections.abc import Iterator
from typing import Any

import headrace.errors
from headrace.errors import CallUncertain, ServiceError
from headrace.model.values.shown import encodable
from headrace.pipeline.graph.graph import Node

_ROOT = os.path.dirname(os.path.abspath(headrace.errors.__file__))
_HEADRACE = (_ROOT + os.sep, os.path.abspath(bdb.__file__))
_PIPELINES = tuple(os.path.join(_ROOT, room) + os.sep for room in ("bench", "demo", "testing"))
"""Rooms that hold pipelines as users write them."""

OUTER_FRAMES = 6
INNER_FRAMES = 2
"""How many of the outermost frames, and of the frames next to the error, a message shows."""


def trace_of(error: BaseException) -> str:
    """The traceback of an error as text."""
    found = traceback.TracebackException.from_exception(error)
    _strip(found)
    return "".join(found.format())


def describe(node: Node, key: Any, what: str, error: Exception, *, table: bool = False) -> str:
    """A message about user code that raised. For a table it names no single record."""
    trace = shortened(error)
    where = f"computation {node.name!r}" + ("" if key is None else f", key {key!r:.100}")
    mend = (
        "Fix the code, or the records in a step before it, and start again: this epoch had no "
        "effect"
        if table
        else "Fix the code and start again (this epoch had no effect), or send such "
        'records aside: errors=to("dead")'
    )
    if isinstance(error, ServiceError) and error.asked_again:
        mend = f"When the service works, start again: it is asked again. Or catch it. {mend}"
    elif isinstance(error, CallUncertain):
        mend = f"A new start does not repeat the call. Catch CallUncertain if you know more. {mend}"
    lines = [f"{where}, {what}: {type(error).__name__}: {error}", trace, mend]
    return encodable("\n".join(line for line in lines if line))


def shortened(error: BaseException) -> str:
    """A traceback that shows the user's line, even if a library raised deep below it; may be ""."""
    found = traceback.TracebackException.from_exception(error)
    _strip(found)
    if all(not one.stack for one in _chain(found)):
        return ""  # Headrace itself refused it, and the message says why
    for one in _chain(found):
        if len(one.stack) > OUTER_FRAMES + INNER_FRAMES + 1:
            left_out = len(one.stack) - OUTER_FRAMES - INNER_FRAMES
            gap = _Gap(f"({left_out} frames left out)", 0, "", lookup_line=False)
            one.stack = _Cut([*one.stack[:OUTER_FRAMES], gap, *one.stack[-INNER_FRAMES:]])
    return "".join(found.format()).strip()


class _Gap(traceback.FrameSummary):
    """A placeholder for omitted frames."""


class _Cut(traceback.StackSummary):
    """A stack of which some frames are omitted."""

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **options: Any) -> str:
        if isinstance(frame_summary, _Gap):
            return f"  {frame_summary.filename}\n"
        return super().format_frame_summary(frame_summary, **options)


def _strip(found: traceback.TracebackException) -> None:
    for one in _chain(found):
        kept = [frame for frame in one.stack if not is_of_headrace(frame.filename)]
        one.stack = traceback.StackSummary.from_list(kept)


def is_of_headrace(filename: str) -> bool:
    """Whether a frame belongs to Headrace itself, not to a pipeline."""
    return filename.startswith(_HEADRACE) and not filename.startswith(_PIPELINES)


def _chain(found: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """An error, its causes, and the members of exception groups."""
    yield found
    for other in (found.__cause__, found.__context__, *(found.exceptions or ())):
        if other is not None:
            yield from _chain(other)
