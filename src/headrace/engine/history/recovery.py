"""Recovery of the ledger from the log: read back to a snapshot, then apply the later entries."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.limits import LIMITS, Limits
from headrace.log.entry import (
    ACCEPT,
    COMMIT,
    CONFIRM,
    CONTROL,
    DROP,
    GENERATION,
    HANDOVER,
    LAPSE,
    PLAN,
    RESTORE,
    VOID,
    LogEntry,
)
from headrace.log.epochlog import EpochLog
from headrace.plan.decisions.effects import (
    fold_control,
    fold_done,
    fold_generation,
    fold_outcomes,
)
from headrace.plan.deploy import fold as deploys
from headrace.plan.deploy.code import ConfirmBody, GenerationBody, Handover, LapseBody
from headrace.plan.elastic.fold import fold_report
from headrace.plan.entries import AcceptBody, CommitBody, ControlBody, RestoreBody, VoidBody
from headrace.plan.epoch import Commit, Drop, Plan
from headrace.plan.ledger import Ledger

_READS_MAX = 3

_Body = TypeVar("_Body")


class History:
    """The ledger, and what the commits of the retention window name."""

    def __init__(self, retain: int, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self.ledger = Ledger()
        self.retain = max(retain, 1)
        self.commits: deque[tuple[int, Commit]] = deque()
        self.segments: deque[set[str]] = deque()
        self.marks: deque[tuple[dict[str, int], int]] = deque()
        self._rides_from: deque[int | None] = deque()
        """For each commit, the first log position that holds bytes of its state (M1)."""
        self.retained = self.retain
        """No driver of the window can have collected files of this many last epochs."""
        self._snapshots: list[int] = []
        self.released: dict[str, dict[str, int]] = {}
        """Stream -> split -> the position before which no retained epoch reads.

        Finished splits are reported once.
        """

    def fold(self, position: int, entry: LogEntry) -> None:
        """Applies one entry of the log."""
        ledger = self.ledger
        ledger.generation = max(ledger.generation, entry.generation)
        if entry.kind == PLAN:
            ledger.planned(decode_body(position, entry, Plan))
        elif entry.kind == COMMIT:
            body = decode_body(position, entry, CommitBody)
            self.retained = min(self.retained, body.retain or 1)
            self.committed(body.commit, position)
            fold_report(ledger, body.load, body.decided)
            if body.confirms:
                deploys.confirmed(ledger)
            fold_outcomes(ledger, body.outcomes, self._limits)
            if body.snapshot is not None:
                self.snapshotted(position)
            if body.next is not None:
                ledger.planned(body.next)
        elif entry.kind == VOID:
            void = decode_body(position, entry, VoidBody)
            ledger.voided(void.skipped, void.records, void.limits)
        elif entry.kind == DROP:
            ledger.dropped(decode_body(position, entry, Drop), position)
        elif entry.kind == ACCEPT:
            ledger.accepted(decode_body(position, entry, AcceptBody).splits)
        elif entry.kind == GENERATION:
            self.led(decode_body(position, entry, GenerationBody))
        elif entry.kind == HANDOVER:
            deploys.handed_over(ledger, decode_body(position, entry, Handover))
        elif entry.kind == CONFIRM:
            deploys.confirm(ledger, decode_body(position, entry, ConfirmBody))
        elif entry.kind == LAPSE:
            deploys.lapsed(ledger, decode_body(position, entry, LapseBody))
        elif entry.kind == CONTROL:
            fold_control(ledger, decode_body(position, entry, ControlBody), self._limits)
        elif entry.kind == RESTORE:
            self.restored(position, decode_body(position, entry, RestoreBody))
        else:
            raise CorruptCheckpoint(f"log position {position}: unknown kind {entry.kind!r}")

    def led(self, body: GenerationBody) -> None:
        """Applies a generation. If it took a deploy back, epochs of the probation have no rows."""
        found, ledger = self.ledger.code.probation, self.ledger
        fold_generation(ledger, body)
        if not deploys.led(ledger, body) or found is None:
            return
        for index, (position, commit) in enumerate(self.commits):
            if commit.epoch > found.epoch:
                empty = msgspec.structs.replace(commit, staged=[], splits=ledger.splits)
                self.commits[index] = (position, empty)
                self.marks[index] = (dict(ledger.ins), self.marks[index][1])

    def begin(self, position: int, body: CommitBody, snapshot: Ledger) -> None:
        """Starts from a snapshot instead of an empty ledger."""
        self.ledger = snapshot
        if not snapshot.control.savepoints:
            self.released = {
                stream: {split: state.position for split, state in splits.items()}
                for stream, splits in snapshot.splits.items()
            }
        self.snapshotted(position)
        self.retained = min(self.retained, body.retain or 1)
        self._remember(position, body.commit)
        if body.next is not None:
            self.ledger.planned(body.next)

    def restored(self, position: int, body: RestoreBody) -> None:
        """Starts from the ledger of an entry that restores a savepoint: nothing older counts."""
        generation = max(self.ledger.generation, body.ledger.generation)
        self.ledger = body.ledger
        self.ledger.generation = generation
        for window in (self.commits, self.segments, self.marks, self._rides_from):
            window.clear()
        self.released = {}
        self._snapshots = [position]

    def committed(self, commit: Commit, position: int) -> None:
        """Applies a commit."""
        if commit.epoch != self.ledger.epoch + 1:
            raise CorruptCheckpoint(
                f"log position {position} commits epoch {commit.epoch}, but the epoch before it "
                f"is {self.ledger.epoch}: entries of the log are missing; restore them from a copy"
            )
        if self.commits and commit.follows != self.commits[-1][1].nonce:
            raise CorruptCheckpoint(
                f"log position {position} commits epoch {commit.epoch} after another epoch "
                f"{self.ledger.epoch} than the one that lies before it: entries of two copies of "
                "this checkpoint are mixed; restore the whole checkpoint from one of them"
            )
        plan = self.ledger.open_plan
        self.ledger.committed(commit, position, self._limits)
        deploys.committed(self.ledger, plan)
        fold_done(self.ledger)
        self._remember(position, commit)

    def link(self, nonce: str) -> dict[str, str]:
        """The link of the next commit: its nonce, and the nonce of the commit before it."""
        return {"nonce": nonce, "follows": self.commits[-1][1].nonce if self.commits else ""}

    def nonces(self) -> dict[int, str]:
        """Epoch -> the nonce of its commit, for the window and the epoch before it."""
        known = {commit.epoch: commit.nonce for _, commit in self.commits}
        if self.commits and (oldest := self.commits[0][1]).follows:
            known[oldest.epoch - 1] = oldest.follows
        return known

    def snapshotted(self, position: int) -> None:
        """Notes that a commit carries a snapshot.

        Recovery may begin there once the window has passed it.
        """
        self._snapshots.append(position)

    def needed_from(self) -> int:
        """The first position that must be kept: recovery of this window begins there.

        Segments and feedback of the window that ride in earlier entries keep those (M1). Rows that
        ride to a sink are in the commits of the window.
        """
        oldest = self.commits[0][0] if self.commits else max(self._snapshots, default=0)
        before = [position for position in self._snapshots if position <= oldest]
        if len(before) > 1:
            self._snapshots = self._snapshots[len(before) - 1 :]
        riding = [position for position in self._rides_from if position is not None]
        return min([before[-1] if before else 0, *riding])

    def _remember(self, position: int, commit: Commit) -> None:
        self.commits.append((position, commit))
        self.segments.append(self.ledger.segments() | self.ledger.records())
        self.marks.append((dict(self.ledger.ins), self.ledger.wall))
        self._rides_from.append(self.ledger.rides_from())
        held = self.ledger.code.held
        # In a probation that may go back to an epoch, that epoch and all after it stay (L6).
        while len(self.commits) > self.retain and (held is None or self.commits[0][1].epoch < held):
            for kept in (self.commits, self.segments, self.marks, self._rides_from):
                kept.popleft()
        # A savepoint may be restored, and then its input is read again.
        keeps = held is not None or bool(self.ledger.control.savepoints)
        if len(self.commits) < self.retain or keeps:
            return
        # The oldest retained commit: epochs after it can run again, and read from its positions.
        self.released = {
            stream: {s: p for s, p in known.items() if s in self.ledger.splits.get(stream, {})}
            for stream, known in self.released.items()
        }
        for stream, splits in self.commits[0][1].splits.items():
            positions = {split: state.position for split, state in splits.items()}
            self.released[stream] = {**self.released.get(stream, {}), **positions}


def recover(log: EpochLog, retain: int) -> History:
    """Reads the log and returns its history; `log.position` is then the end of the log.

    It reads back to a snapshot that lies before the whole retention window, so that the window is
    the same after a crash as before. If the log is trimmed during the read, its oldest entries can
    disappear halfway: then it reads once more.
    """
    for _ in range(_READS_MAX):
        history = _recover(log, History(retain, log.limits))
        if history is not None:
            return history
    raise CorruptCheckpoint(
        "entries of the epoch log are missing, and no later one carries a snapshot: restore the "
        "log from a copy; nothing has been changed"
    )


def _recover(log: EpochLog, history: History) -> History | None:
    tail: list[tuple[int, LogEntry]] = []
    commits = 0
    base: tuple[int, CommitBody, Ledger] | None = None
    for position, entry in log.backwards():
        tail.append((position, entry))
        if entry.kind == RESTORE:
            base = None  # the window begins here, and this entry says all that was before
            break
        if entry.kind == COMMIT:
            commits += 1
            body = decode_body(position, entry, CommitBody)
            if body.snapshot is not None:
                base = (len(tail), body, body.snapshot)
                # Epochs that are perhaps undelivered lie before a snapshot in a probation.
                if commits >= history.retain and body.snapshot.code.held is None:
                    break
    whole = bool(tail) and (tail[-1][0] == 1 or tail[-1][1].kind == RESTORE)
    if base is None and tail and not whole:
        return None
    if base is not None and not whole:
        count, body, snapshot = base
        history.begin(tail[count - 1][0], body, snapshot)
        newer = tail[: count - 1]
    else:
        newer = tail
    for position, entry in reversed(newer):
        history.fold(position, entry)
    log.position = tail[0][0] if tail else 0
    log.generation = max((entry.generation for _, entry in tail), default=0)
    log.generation = max(log.generation, history.ledger.generation)
    return history


def decode_body(position: int, entry: LogEntry, kind: type[_Body]) -> _Body:
    """The decoded body of an entry; CorruptCheckpoint if it is not of this kind."""
    try:
        return msgspec.json.decode(entry.body, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"log position {position} cannot be decoded: {error}") from None
