"""Watches the log of a checkpoint on a disk, from another process: which entry appeared when.

The time of an entry is that of its file, so it does not matter how often this looks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from headrace.engine.history.shards import decode_body
from headrace.log import paths
from headrace.log.entry import COMMIT, CONFIRM, decode_entry
from headrace.plan.entries import CommitBody

LOOK_EVERY_S = 0.02


@dataclass(frozen=True)
class EntrySeen:
    """One entry of the log."""

    kind: str
    when: float
    """In seconds since 1970."""
    records: int = 0
    """Of a commit: how many records its epoch has processed."""
    confirms: bool = False
    """Of a commit: whether it confirms a deploy."""


class LogWatch(threading.Thread):
    """Collects the entries of a log as they appear, in order."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(daemon=True)
        self.seen: list[EntrySeen] = []
        self._checkpoint = checkpoint
        self._position = 1
        self._stopping = threading.Event()

    def run(self) -> None:
        """Looks until it is stopped."""
        while not self._stopping.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Reads the entries that have appeared since the last look."""
        while (found := self._read(self._position)) is not None:
            self.seen.append(found)
            self._position += 1

    def stop(self) -> None:
        """Looks a last time, and ends."""
        self._stopping.set()
        self.join()
        self.look()

    @property
    def records(self) -> int:
        """How many records all commits so far have processed."""
        return sum(each.records for each in self.seen)

    def first(self, kind: str, after: float) -> float | None:
        """When the first entry of a kind appeared after a time."""
        return next((e.when for e in self.seen if e.kind == kind and e.when >= after), None)

    def confirmed(self, after: float) -> float | None:
        """When a deploy was confirmed after a time."""
        found = (e for e in self.seen if e.kind == CONFIRM or e.confirms)
        return next((each.when for each in found if each.when >= after), None)

    def _read(self, position: int) -> EntrySeen | None:
        path = self._checkpoint / paths.log_entry(position)
        try:
            data = path.read_bytes()
            # The entry is a link to a file that was complete before: this is when it was linked.
            when = os.stat(path).st_ctime
        except FileNotFoundError:
            return None
        entry = decode_entry(data, str(path))
        if entry.kind != COMMIT:
            return EntrySeen(entry.kind, when)
        body = decode_body(position, entry, CommitBody)
        return EntrySeen(COMMIT, when, body.commit.counters.records, body.confirms)
