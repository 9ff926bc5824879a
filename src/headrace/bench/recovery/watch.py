"""Feeds a job at a steady pace and notes when each file's results can be seen."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

WITHIN = 1.1
"""Recovered means: at most this many times the latency before."""
WINDOW = 3
"""The median over this many files in a row is compared: one slow file does not count."""


class Feed(threading.Thread):
    """Writes a file of records every `interval` seconds until it is stopped."""

    def __init__(self, directory: Path, interval: float, records: int, keys: int) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.interval, self.records, self.keys = interval, records, keys
        self.written: dict[int, float] = {}
        self.counts: Counter[Any] = Counter()
        """What the last output must say of all files that were written."""
        self._stopping = threading.Event()

    def rows(self, number: int, at: int) -> list[dict[str, Any]]:
        """The records of a file that is written at this time."""
        return [{"key": f"k{i % self.keys}", "file": number, "at": at} for i in range(self.records)]

    def expected(self, number: int) -> Iterable[Any]:
        """The keys of all rows that a file adds to."""
        return (f"k{i % self.keys}" for i in range(self.records))

    def run(self) -> None:
        number = 0
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            number += 1
            due += self.interval
            at = time.time_ns() // 1000
            rows = self.rows(number, at)
            aside = self.directory / f".{number:06d}.tmp"
            aside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            aside.rename(self.directory / f"{number:06d}.jsonl")
            self.written[number] = time.monotonic()
            self.counts.update(self.expected(number))

    def stop(self) -> None:
        """Stops writing files."""
        self._stopping.set()
        self.join()


class OutputPoller(threading.Thread):
    """Notes when results of each file appear; remembers the last count of each key."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.visible: dict[int, float] = {}
        self.counts: dict[Any, int] = {}
        self._seen: set[str] = set()
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.01):
            self.look()

    def look(self) -> None:
        """Reads what has appeared since the last look."""
        new = sorted(p for p in self.directory.glob("epoch=*") if p.name not in self._seen)
        for epoch in new:
            now = time.monotonic()
            newest = max(self.visible, default=0)
            for path in sorted(epoch.rglob("part-*")):
                for line in path.read_text(encoding="utf-8").splitlines():
                    row = json.loads(line)
                    newest = max(newest, self.take(row))
            for number in range(max(self.visible, default=0) + 1, newest + 1):
                self.visible[number] = now
            self._seen.add(epoch.name)

    def take(self, row: dict[str, Any]) -> int:
        """Remembers a row; the number of the newest file that it tells of."""
        self.counts[row["key"]] = max(self.counts.get(row["key"], 0), row["count"])
        return int(row["file"])

    def stop(self) -> None:
        """Stops reading results."""
        self._stopping.set()
        self.join()


def latencies(written: Mapping[int, float], visible: Mapping[int, float]) -> dict[int, float]:
    """File -> seconds until its results were visible."""
    return {n: visible[n] - written[n] for n in sorted(visible) if n in written}


def recovery(
    written: Mapping[int, float], visible: Mapping[int, float], killed: float, before: Sequence[int]
) -> tuple[float | None, float]:
    """(seconds until latency is as before, latency before), of a job killed at `killed`.

    The time ends when the results of a file become visible: the first file, of those that were
    waiting at the kill or written after it, from which on the median of `WINDOW` files in a row is
    within the limit.
    """
    known = latencies(written, visible)
    usual = median(known[n] for n in before)
    after = [n for n in known if visible[n] > killed]
    for at in range(len(after) - WINDOW + 1):
        window = [known[n] for n in after[at : at + WINDOW]]
        if window[0] <= WITHIN * usual and median(window) <= WITHIN * usual:
            return visible[after[at]] - killed, usual
    return None, usual
