"""The ledger: the sum of all entries of the epoch log.

It is a pure fold over the log's entries, without files: every driver that reads the same log has
the same ledger. Some commits carry a snapshot of it, so that recovery reads a bounded tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.limits import LIMITS, Limits
from headrace.model.source import Seen
from headrace.model.values.time import BEGINNING, END
from headrace.plan.control import ControlState
from headrace.plan.counters import Counters
from headrace.plan.deploy.code import CodeState
from headrace.plan.elastic.figures import LoadState
from headrace.plan.epoch import (
    Adoption,
    Commit,
    Drop,
    OutboxFile,
    Plan,
    RecordFile,
    Sealing,
    SplitState,
    TableVersion,
    WatermarkBound,
)
from headrace.plan.interval.state import CommitInterval, IntervalState
from headrace.plan.overload import SlotLimit
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.ledger import RingLedger
from headrace.plan.rings.manifest import earliest
from headrace.plan.rings.shards import Shards
from headrace.plan.state.applied import AppliedState

Rows = dict[tuple[str, str], Seen | None]


class FinishedInput(msgspec.Struct, frozen=True):
    """The splits that a stream has read to their end and that the ledger no longer lists."""

    files: tuple[RecordFile, ...] = ()
    """The files that list them, the newest first: of two rows for one split the newer counts."""
    newest: int = BEGINNING
    """The newest time that any of those splits reached."""


class Ledger(RingLedger):
    """The state of a pipeline after its last commit."""

    epoch: int = 0
    wall: int = 0
    """The wall time of the last plan, including voided plans."""
    ins: dict[str, int] = {}
    outs: dict[str, int] = {}
    splits: dict[str, dict[str, SplitState]] = {}
    """Stream -> its splits that are not finished, or not yet in the record of finished splits."""
    finished: dict[str, FinishedInput] = {}
    tasks: int = 0
    """How many tasks a level has (J10); 0: as many as the substrate runs at once."""
    load: LoadState = LoadState()
    """The load of each computation, and the last decisions that followed from it (K3)."""
    outbox: dict[str, list[OutboxFile]] = {}
    limits: dict[str, SlotLimit] = {}
    """Label of an overloaded slot -> its limit in the next plans (P7)."""
    counters: Counters = msgspec.field(default_factory=Counters)
    recent_records: int = 0
    """How many records the largest of the last epochs had; half as many with each epoch since."""
    newest: int = 0
    by_wall: tuple[str, ...] = ()
    """Computations whose TTLs expire by the wall clock."""
    keys: dict[str, dict[str, str]] = {}
    """Computation -> stream -> what it was keyed by in its last run; see `hints`."""
    open_plan: Plan | None = None
    generation: int = 0
    commit_position: int = 0
    """The log position of the last commit."""
    determinants: int = 0
    """The directory for calls that must not be repeated, as the last plan named it; 0: none yet."""
    given_up: dict[int, int] = {}
    """Epoch -> the wall time of its last voided plan, since that directory was begun."""
    voided_reads: dict[str, dict[str, int]] = {}
    """Stream -> split -> how far voided plans read that may have called an external system."""
    bounds_of_voided: dict[str, WatermarkBound] = {}
    """Computation -> bound of its time in those plans; resolved once all of it is read again."""
    unpassed: dict[str, int] = {}
    """Computation -> the time that it must pass before timers of those plans cannot fire again."""
    unpassed_wall: int | None = None
    """The same for the wall clock."""
    unpassed_carried: int = 0
    """Records that wait after this epoch may be causes too; 0 if none is (P2)."""
    code: CodeState = CodeState()
    """Which code may lead (L)."""
    saved: Ledger | None = None
    """In a restore-mode probation: the ledger at the hand-over, to which a rollback goes back."""
    control: ControlState = ControlState()
    """What was asked of the pipeline, and decided (I)."""
    identity: str = ""
    """The id that the checkpoint got when it was restored; empty: that of its IDENTITY file."""
    applied: AppliedState = AppliedState()
    """The state store, and how far it is applied (O)."""
    tables: dict[str, TableVersion] = {}
    """Look-up -> the version of its table in the last epoch, if it is refreshed."""
    interval: IntervalState = IntervalState()
    """Which epochs are durable, and which only written (M)."""

    # The fold -------------------------------------------------------------

    def planned(self, plan: Plan) -> None:
        """Applies the entry of a plan."""
        self.open_plan = plan
        self.wall = max(self.wall, plan.wall)
        if self.applied.backend != plan.state:
            self.applied = msgspec.structs.replace(self.applied, backend=plan.state)
        if plan.determinants:
            self.determinants, self.given_up = plan.determinants, plan.given_up

    def voided(
        self,
        skipped: dict[str, dict[str, SplitState]] | None = None,
        records: int = 0,
        limits: dict[str, SlotLimit] | None = None,
    ) -> None:
        """Applies the void of the open plan, and marks its input as read if that is skipped."""
        self.limits = {**self.limits, **(limits or {})}
        if self.open_plan is not None and self.open_plan.determinants:
            # Wall time only rises, so a plan of this epoch that is committed is later.
            self.given_up = {**self.given_up, self.open_plan.epoch: self.open_plan.wall}
            self._note_voided(self.open_plan, skipped or {})
        self.open_plan = None
        for stream, splits in (skipped or {}).items():
            self.splits[stream] = {**self.splits.get(stream, {}), **splits}
        self.counters.skipped += records

    def given_up_with(self, plan: Plan) -> None:
        """Notes a plan whose epoch will not count: its calls are those of a voided plan (L7)."""
        self.determinants = plan.determinants
        self.given_up = {**self.given_up, plan.epoch: plan.wall}
        self._note_voided(plan, {})

    def accepted(self, splits: dict[str, dict[str, SplitState]]) -> None:
        """Replaces the state of splits whose input has changed, after the change was accepted."""
        for stream, states in splits.items():
            self.splits[stream] = {**self.splits.get(stream, {}), **states}

    def committed(
        self,
        commit: Commit,
        position: int,
        limits: Limits = LIMITS,
        changes: Mapping[str, RingChange] | None = None,
        shards: Shards | None = None,
    ) -> None:
        """Applies the commit of an epoch.

        The leader gives the ring changes that its plan made; others give the shards that the
        entry carries, and repeat no move (J12).
        """
        plan = self.open_plan
        leaving = {stream: self.leaving(stream) for stream in commit.sealed}
        self.epoch = commit.epoch
        self.commit_position = position
        self.tables = plan.tables if plan is not None else self.tables
        self.open_plan = None
        for old, new in commit.renamed.items():
            self.rename(old, new)
        self.by_wall = commit.by_wall
        self.keys = {**self.keys, **commit.keys}
        self.ins = {**self.ins, **commit.ins}
        self.outs = {**self.outs, **commit.outs}
        self.newest = max(self.newest, commit.newest)
        self.limits = self.limits if commit.limits is None else commit.limits
        self.interval = self.interval.committed(commit.epoch, commit.interval)
        for stream, splits in commit.splits.items():
            known = self.splits.get(stream, {})
            read = {split: _read_on(known.get(split), state) for split, state in splits.items()}
            self.splits[stream] = {**known, **read}
        self.turn(commit, plan, position, limits, changes or {}, shards or {})
        for name in commit.steps:
            self.load = self.load.without(name)
        self.outbox = {}
        for file in commit.outbox:
            kept = msgspec.structs.replace(file, at=position) if file.rides else file
            self.outbox.setdefault(file.consumer, []).append(kept)
        self.counters.add(commit.counters)
        self.recent_records = max(commit.counters.records, self.recent_records // 2)
        if not self.is_clear():
            self._forget_voided(commit, plan)
        for stream, sealing in commit.sealed.items():
            self._seal(stream, sealing, leaving[stream])

    def _seal(self, stream: str, sealing: Sealing, leaving: Rows) -> None:
        """Removes finished splits that are in the record now, but keeps their newest time."""
        known, before = dict(self.splits[stream]), self.finished.get(stream, FinishedInput())
        gone = [known.pop(split) for split, name in leaving if not name]
        newest = max([before.newest, *(state.mark.newest for state in gone)])
        for split in {split for split, _ in leaving if split in known}:
            state = known[split]
            seen = {n: each for n, each in state.seen.items() if (split, n) not in leaving}
            known[split] = msgspec.structs.replace(state, seen=seen)
        self.splits[stream] = known
        kept = [file for file in before.files if file.name not in sealing.replaces]
        self.finished[stream] = FinishedInput((sealing.file, *kept), newest)

    def dropped(self, drop: Drop, position: int) -> None:
        """Applies a drop by a person. A timer without state may become due: it finds nothing."""
        self.manifests.dropped(drop, self.epoch, position)
        if drop.whole:
            self.applied = self.applied.forgotten(drop.computation, self.epoch)

    def kept(self, said: CommitInterval, adoptions: list[Adoption], position: int) -> None:
        """Applies an entry that adopts the fragments of a checkpoint (M3)."""
        self.manifests.kept(adoptions, position)
        self.interval = self.interval.kept(said)

    def is_clear(self) -> bool:
        """Whether no cause of an external call by a voided plan can occur again."""
        return not self._has_voided() and not self.unpassed_carried

    def _has_voided(self) -> bool:
        """Whether commits have not yet come as far as voided plans had."""
        told = self.voided_reads or self.bounds_of_voided or self.unpassed
        return bool(told) or self.unpassed_wall is not None

    def _note_voided(self, plan: Plan, skipped: dict[str, dict[str, SplitState]]) -> None:
        """Notes the records and timers for which a voided plan may have called an external system.

        Its timers may have fired early: a split was idle then and is no longer, or more was
        read. They fire again when commits have reached the same time, and not before.
        """
        for read in (read for task in plan.reads for read in task):
            ends = self.voided_reads.setdefault(read.stream, {})
            # A skipped range is never read; the records after it show how far time has come.
            end = read.range.end + (read.split in skipped.get(read.stream, {}))
            ends[read.split] = max(ends.get(read.split, 0), end)
        for name, bound in (plan.bounds or dict.fromkeys(plan.rings, WatermarkBound())).items():
            if bound.cap is not None or plan.final:
                time = END if bound.cap is None else bound.cap
                self.unpassed[name] = max(self.unpassed.get(name, 0), time)
            elif name in self.bounds_of_voided:
                known = self.bounds_of_voided[name]
                some = bool(known.injectors and bound.injectors)
                both = tuple(dict.fromkeys(known.injectors + bound.injectors)) if some else ()
                self.bounds_of_voided[name] = WatermarkBound(
                    None, both, max(known.floor, bound.floor)
                )
            else:
                self.bounds_of_voided[name] = bound
        self.unpassed_wall = plan.wall

    def _forget_voided(self, commit: Commit, plan: Plan | None) -> None:
        """Forgets records and timers of voided plans that cannot occur again after a commit."""
        if self._has_voided():
            self.unpassed_carried = commit.epoch
        if plan is not None:  # a stream without readers is not waited for
            streams = {*plan.injectors, *(read.stream for task in plan.reads for read in task)}
            self.voided_reads = {s: ends for s, ends in self.voided_reads.items() if s in streams}
        for stream, ends in list(self.voided_reads.items()):
            known = self.splits.get(stream, {})
            left = {
                s: end for s, end in ends.items() if s not in known or not _is_read(known[s], end)
            }
            if left:
                self.voided_reads[stream] = left
            else:
                del self.voided_reads[stream]
        if not self.voided_reads:
            for name, bound in self.bounds_of_voided.items():
                time = max(self.unpassed.get(name, 0), self._upper_bound(bound))
                self.unpassed[name] = time
            self.bounds_of_voided = {}
        self.unpassed = {
            name: time for name, time in self.unpassed.items() if commit.ins.get(name, END) < time
        }
        slots = [slot for name in commit.rings for slot in self.slots.get(name, {}).values()]
        wall = earliest(slot.next_wall_timer for slot in slots)
        if self.unpassed_wall is not None and (wall is None or wall > self.unpassed_wall):
            self.unpassed_wall = None
        # Records that a voided plan processed may be carried over by the plan after it, and what
        # they lead to by the next level. They and the timers of their keys are causes until
        # nothing waits that was carried since.
        if self.unpassed_carried:
            waits = any(file.since for files in self.outbox.values() for file in files)
            self.unpassed_carried = commit.epoch if waits else 0

    def _upper_bound(self, bound: WatermarkBound) -> int:
        """The highest time that a computation can have reached, by what has been read so far."""
        if not bound.injectors:
            return max(bound.floor, self.newest)
        marks = [s.mark for name in bound.injectors for s in self.splits.get(name, {}).values()]
        newest = [self.newest_of(name) for name in bound.injectors]
        return max([bound.floor, *newest, *(mark.value for mark in marks)])

    # Queries --------------------------------------------------------------

    def leaving(self, stream: str) -> Rows:
        """(split, part) -> what was read to its end there, and may move into the record."""
        found: Rows = {}
        for split, state in self.splits.get(stream, {}).items():
            if state.finished:
                found[split, ""] = state.seen.get("")
            found.update({(split, n): seen for n, seen in state.seen.items() if n and seen.whole})
        return found

    def newest_of(self, stream: str) -> int:
        """The newest time that any split of a stream has reached, including finished splits."""
        marks = [state.mark.newest for state in self.splits.get(stream, {}).values()]
        return max([self.finished.get(stream, FinishedInput()).newest, *marks])

    def records(self) -> set[str]:
        """Every file of the record of finished splits."""
        return {file.name for each in self.finished.values() for file in each.files}

    def table_files(self) -> set[str]:
        """Every file of a lookup table."""
        return {version.file for version in self.tables.values()}

    def next_determinants(self, limits: Limits = LIMITS) -> int:
        """The directory for the next plan's calls that must not be repeated.

        Every plan in which a cause may occur again must use the directory of the first one. So a
        new directory is begun only when commits have read all that voided plans had read, and
        have passed the times that those plans had reached. While a rollback is possible that
        makes plans count as voided, none is begun.
        """
        following = self.epoch + 1
        full = following - self.determinants >= limits.determinants_epochs
        begins = not self.determinants or (full and self.is_clear() and self.saved is None)
        return following if begins else self.determinants

    def rides_from(self) -> int | None:
        """The first log position whose entry holds bytes of the state; None if there is none."""
        positions = [file.at for files in self.outbox.values() for file in files if file.at]
        return earliest((self.tally.rides_from(), *positions))

    def rename(self, old: str, new: str) -> None:
        """Moves a computation's state to another name."""
        mappings: list[dict[str, Any]] = [
            self.ins, self.outs, self.outbox, self.bounds_of_voided, self.unpassed, self.keys,
        ]  # fmt: skip
        for mapping in mappings:
            if old in mapping:
                mapping[new] = mapping.pop(old)
        self.load = self.load.renamed(old, new)
        self.applied = self.applied.renamed(old, new)
        self.rename_rings(old, new)


def _read_on(before: SplitState | None, now: SplitState) -> SplitState:
    """A split after a commit; the commit describes only the input of its own epoch."""
    if before is None or not before.seen:
        return now
    seen = dict(before.seen)
    for name, more in now.seen.items():
        seen[name] = seen[name].then(more) if name in seen else more
    return msgspec.structs.replace(now, seen=seen)


def _is_read(split: SplitState, end: int) -> bool:
    return split.finished or split.position >= end
