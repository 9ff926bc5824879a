"""From the log on disk to a ledger: read back to the last snapshot, fold what follows."""

from __future__ import annotations

from collections import deque

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.log.epochlog import COMMIT, GENERATION, PLAN, VOID, EpochLog, LogEntry
from headrace.plan.epoch import Commit, Plan
from headrace.plan.ledger import Ledger

SNAPSHOT_EVERY = 32


class CommitBody(msgspec.Struct):
    """A commit entry: the commit, perhaps the next plan, now and then a snapshot."""

    commit: Commit
    next: Plan | None = None
    snapshot: Ledger | None = None


class VoidBody(msgspec.Struct):
    """Why a plan was given up."""

    epoch: int
    reason: str


class History:
    """The ledger, and what the last commits named: the retention window."""

    def __init__(self, retain: int) -> None:
        self.ledger = Ledger()
        self.commits: deque[tuple[int, Commit]] = deque(maxlen=max(retain, 1))
        self.segments: deque[set[str]] = deque(maxlen=max(retain, 1))
        self.marks: deque[tuple[dict[str, int], int]] = deque(maxlen=max(retain, 1))
        self.snapshot_position = 0
        """Where recovery would begin to fold: nothing from here on may be trimmed."""

    def fold(self, position: int, entry: LogEntry) -> None:
        """Takes in one entry."""
        ledger = self.ledger
        ledger.generation = max(ledger.generation, entry.generation)
        try:
            if entry.kind == PLAN:
                ledger.planned(msgspec.json.decode(entry.body, type=Plan))
            elif entry.kind == COMMIT:
                body = msgspec.json.decode(entry.body, type=CommitBody)
                self.committed(body.commit, position)
                if body.next is not None:
                    ledger.planned(body.next)
            elif entry.kind == VOID:
                ledger.voided()
            elif entry.kind != GENERATION:
                raise CorruptCheckpoint(f"log position {position}: unknown kind {entry.kind!r}")
        except msgspec.DecodeError as error:
            raise CorruptCheckpoint(f"log position {position} cannot be decoded: {error}") from None

    def committed(self, commit: Commit, position: int) -> None:
        """Takes in a commit."""
        self.ledger.committed(commit, position)
        self.commits.append((position, commit))
        self.segments.append(self.ledger.segments())
        self.marks.append((dict(self.ledger.ins), self.ledger.wall))


def recover(log: EpochLog, retain: int) -> History:
    """Reads the log; `log.position` is then its end."""
    history = History(retain)
    tail: list[tuple[int, LogEntry]] = []
    for position, entry in log.backwards():
        if entry.kind == COMMIT:
            body = msgspec.json.decode(entry.body, type=CommitBody)
            if body.snapshot is not None:
                history.ledger = body.snapshot
                history.snapshot_position = position
                history.commits.append((position, body.commit))
                history.segments.append(history.ledger.segments())
                history.marks.append((dict(history.ledger.ins), history.ledger.wall))
                if body.next is not None:
                    history.ledger.planned(body.next)
                break
        tail.append((position, entry))
    for position, entry in reversed(tail):
        history.fold(position, entry)
    log.position = tail[0][0] if tail else log.last_position()
    log.generation = max((e.generation for _, e in tail), default=history.ledger.generation)
    log.generation = max(log.generation, history.ledger.generation)
    return history
