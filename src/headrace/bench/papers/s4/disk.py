"""S4's table 5.1 (writes to a disk) and section 4.2 (rebuilding the index of the log)."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from headrace.bench.backends.stores import opened_store
from headrace.bench.backends.workload import FILLED, KeySet, Operations
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict, slope

ENTRIES = (1_000, 10_000, 100_000, 1_000_000)
TAIL = 500
"""Entries that were written after the last flush of the index."""
OPEN_MS_MAX = 250.0
WRITE_BYTES = 10
FILE_BYTES = 64 << 20
PAGE_BYTES = 4096
FLUSHED, UNFLUSHED = 300, 20_000
ROUNDS = 5


def measure_index(say: Say) -> Points:
    """How long it takes until a log that was not closed can be read again."""
    found: dict[str, float] = {}
    right = True
    for entries in ENTRIES:
        keys = KeySet(Operations(entries, value_bytes=70))
        with ExitStack() as stack:
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="headrace-index-", ignore_cleanup_errors=True)
            )
            store = opened_store("log", Path(directory), stack)
            stack.callback(store.close)
            store.fill(keys)
            store.write(2, [keys.cell(index, 2) for index in range(TAIL)])
            last = entries // 2
            name, where = keys.names[last], int(keys.hashes[last])
            took = [store.open_again(name, where) * 1e3 for _ in range(3)]
            asked = [0, TAIL - 1, last]
            answers = store.read([keys.names[i] for i in asked], keys.hashes[asked])
            expected = [keys.value(i, 2 if i < TAIL else FILLED) for i in asked]
            right = right and answers == expected
        found[str(entries)] = round(median(took), 2)
        say(f"{entries:,} entries: {found[str(entries)]} ms")
    return {"open_ms": found, "entries": list(ENTRIES), "right": right}


def judge_index(points: Mapping[str, Any]) -> ShapeVerdict:
    """At most linear, and a million entries below 250 ms."""
    times = list(points["open_ms"].values())
    power = slope(points["entries"], times)
    shape = Judgement().at_most("the power of entries with which opening grows", power, 1.1)
    return shape.at_most("ms to open 1,000,000 entries", times[-1], OPEN_MS_MAX).verdict()


def measure_writes(say: Say) -> Points:
    """Writes of ten bytes into one file: at its end, or anywhere; synced each, or not at all."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-writes-") as directory:
        path = Path(directory, "data")
        write_pages(path, FILE_BYTES)
        for flushed in (True, False) * ROUNDS:  # all take turns, and the best of each counts
            count = FLUSHED if flushed else UNFLUSHED
            for name in ("random", "sequential"):
                label = f"{name}{', flushed' if flushed else ''}"
                speed = round(_writes(path, count, name == "random", flushed), 1)
                found[label] = max(found.get(label, 0.0), speed)
                say(f"{label}: {speed:,.0f} writes/s")
    return {"writes_per_s": found}


def write_pages(path: Path, size: int) -> None:
    """Writes a file of zeros page by page, so that each page is cached by itself.

    What is written at once may be cached in pieces of megabytes, and Linux then looks through a
    whole piece at each small write into it: that is what a row of such writes would measure.
    """
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // PAGE_BYTES):
            file.write(bytes(PAGE_BYTES))
        os.fsync(file.fileno())


def judge_writes(points: Mapping[str, Any]) -> ShapeVerdict:
    """Sequential writes are ahead, with and without syncs."""
    writes = points["writes_per_s"]
    shape = Judgement()
    for suffix in (", flushed", ""):
        one, other = f"random{suffix}", f"sequential{suffix}"
        shape.below(one, writes[one], other, writes[other])
    return shape.verdict()


def _writes(path: Path, count: int, at_random: bool, flushed: bool) -> float:
    dice = random.Random(1)
    descriptor = os.open(path, os.O_WRONLY)
    places = [index * WRITE_BYTES for index in range(count)]
    if at_random:
        places = [dice.randrange(FILE_BYTES - WRITE_BYTES) for _ in places]
    try:
        began = time.perf_counter()
        for at in places:
            os.pwrite(descriptor, b"0123456789", at)
            if flushed:
                os.fdatasync(descriptor)
        return count / (time.perf_counter() - began)
    finally:
        os.close(descriptor)


S4_42 = PaperRow(
    "s4-4.2",
    "an index of 1,000,000 entries of 70 bytes is rebuilt in less than 250 ms",
    "the log store, without Spark: 1,000 to 1,000,000 entries, not closed, with an unflushed tail",
    "linear; below 250 ms",
    measure_index,
    judge_index,
)
S4_T51 = PaperRow(
    "s4-t5.1",
    "sequential writes are faster than random ones, with and without fsync",
    "ten-byte writes into one file of 64 MB, which was written page by page, without Spark",
    "sequential ahead",
    measure_writes,
    judge_writes,
    note="in a file that was written at once, unsynced writes near its beginning were four times "
    "slower than elsewhere, in any order: Linux caches such a file in pieces of megabytes, and "
    "looks through a piece at each write. Synced writes depend on what else the disk does",
)
