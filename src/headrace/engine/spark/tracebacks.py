"""Errors as users see them in scripts and notebooks: their own frames, and the message.

The errors of `run` and `wait` have no frames of the engine, and only causes that involve the user's
code. The full traceback is shown if the variable HEADRACE_DEBUG is set.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import TracebackType

import py4j
import pyspark

from headrace.errors import HeadraceError
from headrace.worker.watching.tracebacks import is_of_headrace

DEBUG = "HEADRACE_DEBUG"

_SPARK = tuple(os.path.join(path, "") for of in (pyspark, py4j) for path in of.__path__)


def brief(error: BaseException) -> BaseException:
    """The error, ready to be raised to the user; errors that are not ours stay unchanged.

    Removes the frames of the engine, and causes without code of the user.
    """
    if not isinstance(error, HeadraceError) or os.environ.get(DEBUG):
        return error
    error.__cause__ = _of_the_user(error.__cause__)
    error.__suppress_context__ = True
    return error.with_traceback(None)


def _of_the_user(cause: BaseException | None) -> BaseException | None:
    """A cause without the frames of the engine; None if no frame of the user is left."""
    if cause is None:
        return None
    below = _of_the_user(cause.__cause__)
    frames = _frames(cause.__traceback__)
    kept = [tb for tb in frames if not _is_machinery(tb.tb_frame.f_code.co_filename)]
    if not any(_is_the_users(tb.tb_frame.f_code.co_filename) for tb in kept):
        return below
    cause.__cause__ = below
    cause.__suppress_context__ = cause.__suppress_context__ or below is not None
    rebuilt: TracebackType | None = None
    for tb in reversed(kept):
        rebuilt = TracebackType(rebuilt, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return cause.with_traceback(rebuilt)


def _frames(tb: TracebackType | None) -> list[TracebackType]:
    found = []
    while tb is not None:
        found.append(tb)
        tb = tb.tb_next
    return found


def _is_machinery(filename: str) -> bool:
    return is_of_headrace(filename) or filename.startswith(_SPARK)


def _is_the_users(filename: str) -> bool:
    """Whether a file belongs neither to Python nor to an installed package."""
    places = {sysconfig.get_path(which) for which in ("stdlib", "purelib", "platlib")}
    return not any(Path(filename).is_relative_to(place) for place in places)
