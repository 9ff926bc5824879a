"""Recognises failures of a job that no retry can fix, from the text of Spark's error. Pure.

Spark reports them with long Java traces; users need the sentence that says what to do.
"""

from __future__ import annotations

import re
import sys

from headrace.errors import HeadraceError, SparkError, UserCodeError
from headrace.plan.decisions.transient import refused_in
from headrace.worker.watching.watchdog import blamed

_NEEDED = ("headrace", "msgspec", "numpy", "pandas", "pyarrow", "pyspark", "xxhash")
_MISSING = re.compile(rf"ModuleNotFoundError: No module named '({'|'.join(_NEEDED)})\b")
_VERSIONS = re.compile(
    r"Python in worker has different version: (?P<worker>[\d.]+) than that in driver: "
    r"(?P<driver>[\d.]+)"
)
_NO_PROGRAM = re.compile(r"Cannot run program \"(?P<program>[^\"]*python[^\"]*)\"")


def final_failure(text: str, gone: str | None) -> HeadraceError | None:
    """The error of a job that would fail again; `gone` says how Spark has ended, if it has."""
    if gone:
        return SparkError(gone)
    if hung := blamed(text):
        return UserCodeError(f"{hung}; its worker had to be ended")
    return refused_in(text) or workers_lack(text)


def workers_lack(text: str, python: str | None = None) -> SparkError | None:
    """The error for workers that run another Python, or one without Headrace or what it needs."""
    which = f"Spark's workers run {python or 'a Python'}"
    if found := _VERSIONS.search(text):
        versions = f"which is Python {found['worker']}, and this is {found['driver']}"
        return SparkError(f"{which}, {versions}: {way_out()}")
    if found := _MISSING.search(text):
        return SparkError(f"{which}, which has no {found[1]!r}: {way_out()}")
    if found := _NO_PROGRAM.search(text):
        return SparkError(f"Spark's workers find no Python at {found['program']}: {way_out()}")
    return None


def way_out() -> str:
    """What to do if workers run another Python."""
    return (
        f"set PYSPARK_PYTHON={sys.executable} before the session is made, or install Headrace "
        "where the workers run"
    )


def ended(status: int | None) -> str:
    """The sentence about a JVM that has ended, with its exit status if that is known."""
    how = "" if status is None else f" with status {status}"
    if status is not None and status < 0:
        how = f" by signal {-status}" + (": out of memory, perhaps" if status == -9 else "")
    return (
        f"Spark's JVM has ended{how}. Nothing of the open epoch has happened: start again, with "
        "the same checkpoint"
    )


STOPPED = (
    "the Spark session was stopped while the pipeline ran. Nothing of the open epoch has happened: "
    "start again, with the same checkpoint"
)
