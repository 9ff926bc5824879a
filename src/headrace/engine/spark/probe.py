"""Checks Spark's workers before the first epoch: their Python, Headrace, the checkpoint.

A defect there would fail every task of every attempt, and Spark would report it at length. Our own
sessions on this machine use this very Python and see its files, so they are not checked. But a
checkpoint that is a URL is always read by workers first: they may lack its client or credentials,
which come from their own environment.
"""

from __future__ import annotations

import functools
import secrets
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from headrace.engine.jobs.failures import way_out, workers_lack
from headrace.engine.spark.session import is_ours, reason_in
from headrace.errors import SparkError, StoreError
from headrace.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASK = (
    "import importlib.util as u, sys; "
    "print(*sys.version_info[:2], u.find_spec('headrace') is not None)"
)
_ASK_S = 60.0


def look_at_workers(spark: SparkSession, session: SparkSession, tasks: int, store: Store) -> None:
    """SparkError or StoreError if workers could not run a pipeline.

    `session` is our own session beside the user's; `tasks` is enough to reach all executors.
    """
    master = session.conf.get("spark.master", None) or "local"
    here = master.startswith("local")
    python = _python_of(spark)
    is_url = store.is_shared and store.local_path() is None
    if here and not is_url and python is not None and (is_ours(spark) or _has_headrace(python)):
        return
    asked = store if is_url or not here else None
    _ask_workers(session, 1 if here else tasks, asked, python)


def _python_of(spark: SparkSession) -> str | None:
    """The Python that workers are started with; Spark Connect does not report it."""
    try:
        return str(spark.sparkContext.pythonExec)
    except Exception:
        return None


@functools.lru_cache(maxsize=8)
def _has_headrace(python: str) -> bool:
    """Whether a Python of this machine has Headrace; raises at once for one that Spark refuses.

    False proves little: modules that a session itself ships to its workers are not visible here.
    """
    try:
        answer = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=_ASK_S, check=True
        )
        major, minor, found = answer.stdout.split()
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    if (int(major), int(minor)) != sys.version_info[:2]:
        raise SparkError(
            f"Spark's workers run {shutil.which(python) or python}, which is Python "
            f"{major}.{minor}, and this is {sys.version_info[0]}.{sys.version_info[1]}: {way_out()}"
        )
    return found == "True"


def _ask_workers(
    session: SparkSession, tasks: int, store: Store | None, python: str | None
) -> None:
    """Runs a job that needs only PySpark in workers, so that it can report what else they lack."""
    from pyspark.sql.functions import udf

    location, name, word = "", f".probe-{secrets.token_hex(6)}.tmp", secrets.token_hex(16)
    if store is not None and store.is_shared:
        store.make_directory("")
        store.write(name, word.encode())
        location = store.location

    def look(_: int) -> str:
        import sys

        try:
            import headrace.engine.spark.tasks  # noqa: F401
        except Exception as error:
            return f"{sys.executable}\nlacks\n{type(error).__name__}: {error}"
        if location:
            from headrace.store.location import open_store

            try:
                seen = open_store(location).read(name) == word.encode()
            except FileNotFoundError:
                seen = False
            except Exception as error:
                return f"{sys.executable}\nrefused\n{error}"
            return f"{sys.executable}\n{'' if seen else 'unseen'}\n"
        return f"{sys.executable}\n\n"

    asked: Any = udf(look, "string", useArrow=False)
    try:
        rows = session.range(0, tasks, 1, tasks).select(asked("id")).collect()
    except Exception as error:  # Spark and py4j raise different types.
        known = workers_lack(str(error), python)
        raise known or SparkError(
            "Spark could not run a first, small job on its workers: "
            f"{reason_in(str(error).splitlines())[:500]}"
        ) from error
    finally:
        if location and store is not None:
            store.delete(name)
    for row in rows:
        where, trouble, text = row[0].split("\n", 2)
        if trouble == "lacks":
            raise workers_lack(text, where) or SparkError(
                f"Spark's workers run {where}, which cannot import Headrace ({text}): {way_out()}"
            )
        if trouble and store is not None:
            raise _unreadable(store, where, text)


def _unreadable(store: Store, where: str, text: str) -> StoreError:
    """The error of workers that cannot read the checkpoint, though the driver has written to it."""
    if store.local_path() is not None:
        return StoreError(
            f"executors do not see the checkpoint {store.where()}: choose a directory that "
            "the driver and all executors share, such as a network filesystem"
        )
    reason = " ".join(text.split()) or "what the driver has written is not there"
    return StoreError(
        f"Spark's workers run {where}, and cannot read the checkpoint {store.where()}: {reason}. "
        "They need the same packages as the driver, and find credentials in their own environment"
    )
