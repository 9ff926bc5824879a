"""Recovery of the ledger from the log: read back to a snapshot, then apply the later entries.

A snapshot of the ledger has no manifests. It says where the newest snapshot of each shard of them
is, somewhat further back; each shard is folded from there on its own (J12).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from headrace.engine.history.shards import begins_at, decode_body, fold_shards
from headrace.errors import CorruptCheckpoint
from headrace.limits import LIMITS, Limits
from headrace.log.entry import (
    ACCEPT,
    CHECKPOINT,
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
from headrace.plan.entries import (
    AcceptBody,
    CheckpointBody,
    CommitBody,
    ControlBody,
    RestoreBody,
    VoidBody,
)
from headrace.plan.epoch import Commit, Drop, Plan
from headrace.plan.ledger import Ledger
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.shards import Shards, first_position
from headrace.plan.state.applied import StoreMark

_READS_MAX = 3


class History:
    """The ledger, and what the commits of the retention window name."""

    def __init__(self, retain: int, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self.ledger = Ledger()
        self.retain = max(retain, 1)
        self.commits: deque[tuple[int, Commit]] = deque()
        self._left: deque[tuple[int, frozenset[str]]] = deque()
        """(epoch, files that its commit took from manifests or records), in the window (J13)."""
        self.marks: deque[tuple[dict[str, int], int]] = deque()
        self._rides_from: deque[int | None] = deque()
        """For each commit, the first log position that holds bytes of its state (M1)."""
        self._durable = 0
        """The last epoch that was durable before the last commit: sinks have it, if they wait."""
        self.retained = self.retain
        """No driver of the window can have collected files of this many last epochs."""
        self._snapshots: list[tuple[int, int]] = []
        """(log position of a snapshot, first position that a recovery from it reads)."""
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
            self._apply(body.commit, position, {}, body.shards)
            ledger.carries(body.shards, position)
            ledger.applied = ledger.applied.marked(body.applied)
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
            handover = decode_body(position, entry, Handover)
            before = self._named() if handover.dropped else set()
            deploys.handed_over(ledger, handover)
            self._note_left(before)
        elif entry.kind == CONFIRM:
            deploys.confirm(ledger, decode_body(position, entry, ConfirmBody))
        elif entry.kind == LAPSE:
            deploys.lapsed(ledger, decode_body(position, entry, LapseBody))
        elif entry.kind == CONTROL:
            fold_control(ledger, decode_body(position, entry, ControlBody), self._limits)
        elif entry.kind == CHECKPOINT:
            kept = decode_body(position, entry, CheckpointBody)
            ledger.kept(kept.interval, kept.adoptions, position)
        elif entry.kind == RESTORE:
            self.restored(position, decode_body(position, entry, RestoreBody))
        else:
            raise CorruptCheckpoint(f"log position {position}: unknown kind {entry.kind!r}")

    def led(self, body: GenerationBody) -> None:
        """Applies a generation. If it took a deploy back, epochs of the probation have no rows."""
        found, ledger = self.ledger.code.probation, self.ledger
        fold_generation(ledger, body)
        before = self._named() if ledger.saved is not None else set()
        if not deploys.led(ledger, body) or found is None:
            return
        ledger.shards = {}  # the next commit carries them all: epochs of the probation never were
        self._note_left(before)
        for index, (position, commit) in enumerate(self.commits):
            if commit.epoch > found.epoch:
                empty = msgspec.structs.replace(commit, staged=[], splits=ledger.splits, deltas={})
                self.commits[index] = (position, empty)
                self.marks[index] = (dict(ledger.ins), self.marks[index][1])

    def begin(self, entries: Sequence[tuple[int, LogEntry]]) -> None:
        """Starts from the snapshot in the last of these entries, instead of an empty ledger.

        The entries go back to the oldest shard that the snapshot names.
        """
        position, entry = entries[-1]
        body = decode_body(position, entry, CommitBody)
        if body.snapshot is None:
            raise CorruptCheckpoint(f"log position {position} has no snapshot")
        self.ledger = body.snapshot
        self.ledger.slots = fold_shards(entries, self.ledger.shards, self._limits)
        if not self.ledger.control.savepoints:
            self.released = {
                stream: {split: state.position for split, state in splits.items()}
                for stream, splits in self.ledger.splits.items()
            }
        self.snapshotted(position)
        self.retained = min(self.retained, body.retain or 1)
        self._durable = self.ledger.interval.durable(self.ledger.epoch)
        self._remember(position, body.commit)
        if body.next is not None:
            self.ledger.planned(body.next)

    def restored(self, position: int, body: RestoreBody) -> None:
        """Starts from the ledger of an entry that restores a savepoint: nothing older counts."""
        generation = max(self.ledger.generation, body.ledger.generation)
        self.ledger = body.ledger
        self.ledger.generation = generation
        self.ledger.shards = {}  # the next commit carries them all
        for window in (self.commits, self.marks, self._rides_from, self._left):
            window.clear()
        self.released = {}
        self._snapshots = [(position, position)]

    def committed(
        self, commit: Commit, position: int, changes: Mapping[str, RingChange] | None = None
    ) -> Shards:
        """Applies a commit of the leader; returns the shards that its entry is to carry."""
        changes = changes or {}
        self._apply(commit, position, changes, {})
        shards = self.ledger.carried(commit, changes, self._limits)
        self.ledger.carries(shards, position)
        return shards

    def _apply(
        self, commit: Commit, position: int, changes: Mapping[str, RingChange], shards: Shards
    ) -> None:
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
        replaced = {name for each in commit.sealed.values() for name in each.replaces}
        bases = {ref.base for ref in self.ledger.rings.values()} if commit.steps else set()
        bases |= self.ledger.table_files()
        said = commit.interval
        if said is not None:  # what waits for its checkpoint is delivered after this commit (M7)
            said = msgspec.structs.replace(said, checkpoint=0)
        self._durable = self.ledger.interval.committed(commit.epoch, said).durable(commit.epoch)
        self.ledger.committed(commit, position, self._limits, changes, shards)
        deploys.committed(self.ledger, plan)
        fold_done(self.ledger)
        bases -= {ref.base for ref in self.ledger.rings.values()} | self.ledger.table_files()
        left = replaced | bases | set(self.ledger.tally.take_left())
        if left:
            self._left.append((commit.epoch, frozenset(left)))
        self._remember(position, commit)

    def files(self) -> frozenset[str]:
        """Segments, records of what was read and ring objects that a commit of the window needs.

        A file that left with a commit is needed by the one before it.
        """
        oldest = self.commits[0][1].epoch if self.commits else 0
        while self._left and self._left[0][0] <= oldest:
            self._left.popleft()
        return frozenset(self._named()).union(*(files for _, files in self._left))

    def _named(self) -> set[str]:
        """Every file that the ledger names."""
        ledger = self.ledger
        others = ledger.records() | ledger.ring_objects() | ledger.table_files()
        return {*ledger.tally.files, *ledger.tally.left} | others

    def _note_left(self, before: set[str]) -> None:
        """Notes which of these files the ledger no longer names, since an entry after a commit."""
        left = frozenset(before - self._named())
        if left:
            self._left.append((self.ledger.epoch + 1, left))

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
        first = first_position(self.ledger.shards)
        self._snapshots.append((position, position if first is None else min(first, position)))

    def needed_from(self) -> int:
        """The first position that must be kept: recovery of this window begins there.

        Segments and feedback of the window that ride in earlier entries keep those (M1). Rows that
        ride to a sink are in the commits of the window.
        """
        oldest = self.commits[0][0] if self.commits else max(self._snapshots, default=(0, 0))[0]
        before = [each for each in self._snapshots if each[0] <= oldest]
        if len(before) > 1:
            self._snapshots = self._snapshots[len(before) - 1 :]
        riding = [position for position in self._rides_from if position is not None]
        return min([before[-1][1] if before else 0, *riding])

    @property
    def _unapplied(self) -> int:
        """The first epoch that the state store may not have (O4)."""
        applied = self.ledger.applied
        return applied.epoch + 1 if applied.copies else self.ledger.epoch

    def _remember(self, position: int, commit: Commit) -> None:
        self.commits.append((position, commit))
        self.marks.append((dict(self.ledger.ins), self.ledger.wall))
        self._rides_from.append(self.ledger.rides_from())
        held = self.ledger.code.held
        # In a probation that may go back to an epoch, that epoch and all after it stay (L6).
        # What is only written may have to be made again, from the last checkpoint on (M5). And what
        # the state store may not have yet, may have to be applied (O4).
        first = min([self._durable, *([] if held is None else [held]), self._unapplied])
        while len(self.commits) > self.retain and self.commits[0][1].epoch < first:
            for kept in (self.commits, self.marks, self._rides_from):
                kept.popleft()
        # A savepoint may be restored, and then its input is read again.
        keeps = held is not None or bool(self.ledger.control.savepoints)
        if len(self.commits) < self.retain or keeps or self.commits[0][1].epoch > self._durable:
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
    mark: StoreMark | None = None
    reach: int | None = None
    """The first position that a recovery from a snapshot before the window reads."""
    checkpoint = 0
    """The last checkpoint that entries before the last commit say: sinks have its epochs (M7)."""
    for position, entry in log.backwards():
        tail.append((position, entry))
        if entry.kind == RESTORE:
            break  # the window begins here, and this entry says all that was before
        if entry.kind == CHECKPOINT and commits:
            kept = decode_body(position, entry, CheckpointBody)
            checkpoint = max(checkpoint, kept.interval.checkpoint)
        if entry.kind == COMMIT and reach is None:
            commits += 1
            body = decode_body(position, entry, CommitBody)
            said = 0 if body.commit.interval is None else body.commit.interval.checkpoint
            checkpoint = max(checkpoint, said if commits > 1 else 0)
            first = begins_at(position, body)
            well = commits >= history.retain and not (said and commits == 1)
            mark = mark or body.applied  # the newest commit's: all epochs after it are needed
            well = well and (mark is None or body.commit.epoch <= mark.epoch + 1)
            if first is not None and well and _is_before(body, checkpoint):
                reach = first
        if reach is not None and position <= reach:
            break
    tail.reverse()
    if not tail:
        return history
    newer = based(history, tail)
    if newer is None:
        return None
    for position, entry in newer:
        history.fold(position, entry)
    log.position = tail[-1][0]
    log.generation = max(entry.generation for _, entry in tail)
    log.generation = max(log.generation, history.ledger.generation)
    return history


def _is_before(body: CommitBody, checkpoint: int) -> bool:
    """Whether a snapshot lies before all that may be delivered, or made, again.

    Epochs that are perhaps undelivered lie before a snapshot in a probation (L6). Epochs after the
    last checkpoint, which the entries behind the snapshot name, may be repaired (M5).
    """
    if body.snapshot is None or body.snapshot.code.held is not None:
        return False
    epoch = body.commit.epoch
    return max(checkpoint, body.snapshot.interval.durable(epoch)) >= epoch


def based(
    history: History, entries: list[tuple[int, LogEntry]]
) -> list[tuple[int, LogEntry]] | None:
    """Starts a history from the first snapshot whose shards are all in these entries.

    Returns the entries after it; all, if the log or a restored past begins with them; None if
    there is no snapshot.
    """
    if not entries or entries[0][0] == 1 or entries[0][1].kind == RESTORE:
        return entries
    for place, (position, entry) in enumerate(entries):
        if entry.kind != COMMIT:
            continue
        first = begins_at(position, decode_body(position, entry, CommitBody))
        if first is not None and first >= entries[0][0]:
            history.begin(entries[: place + 1])
            return entries[place + 1 :]
    return None
