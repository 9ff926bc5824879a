"""A computation whose records take time without taking CPU: each one sleeps.

On a machine with few cores more slots add no CPU. With a service time that sleeps, the *slot* is
the unit of capacity, so that balance and scale can be seen on any machine. What is measured with it
is labelled as emulated. Spark gets as many local threads as there may be slots.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import xxhash
from pyspark.sql import SparkSession

from headrace import Checkpoint, Computation, state
from headrace.engine.job import Job
from headrace.log.rings import resolve
from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.rings.ring import Ring

COMPUTATION = "serve"
LABEL = "emulated service time: each record sleeps"


class Serve(Computation):
    """Counts the records of its key; each takes `cost_us`, asleep."""

    count: int = state(0)

    def __init__(self, cost_us: int) -> None:
        self.cost_us = cost_us

    def process_record(self, record: Any, ctx: Any) -> None:
        time.sleep(self.cost_us / 1e6)
        self.count += 1


class ZipfKeys:
    """Record number n -> its key. Every `moves_every` records all keys change their ranks by one.

    A key's rank decides how often it occurs; so the heaviest key is hardly used after a change.
    """

    def __init__(self, keys: int, exponent: float, moves_every: int) -> None:
        weights = 1 / np.arange(1, keys + 1) ** exponent
        self._until: list[float] = np.cumsum(weights / weights.sum()).tolist()
        self._keys, self._moves_every = keys, moves_every

    def __call__(self, n: int, random: Random) -> str:
        place = xxhash.xxh3_64_intdigest(n.to_bytes(8, "big")) / 2**64
        rank = min(bisect_right(self._until, place), self._keys - 1)
        return f"key {(rank + n // self._moves_every) % self._keys}"


@contextmanager
def emulated_session(threads: int, scratch: Path) -> Iterator[SparkSession]:
    """Spark on this machine with a thread for each slot that there may be."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{threads}]")
        .appName("headrace-bench-elastic")
        .config("spark.local.dir", str(scratch / "spark-local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Running:
    """A job, for its own listeners: they may hear of an epoch before `start` has returned."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._is_known = threading.Event()

    def begins(self, job: Job) -> None:
        """`start` has returned."""
        self._jobs.append(job)
        self._is_known.set()

    def ring(self) -> Ring:
        """The ring of the last epoch."""
        self._is_known.wait(60)
        follower = self._jobs[0]._follower
        return resolve(follower.store, follower.ledger.rings[COMPUTATION])


def counts_of(checkpoint: str) -> dict[str, int]:
    """Key -> how many of its records were counted."""
    return {key: kept["count"] for key, kept in Checkpoint(checkpoint).scan(COMPUTATION)}


def hashes_of(keys: list[str]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The place of each key in the key space."""
    known = {key: hash_key(encode_key(key)) for key in set(keys)}
    return np.array([known[key] for key in keys], np.uint64)
