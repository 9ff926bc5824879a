"""What the log says about a past epoch: its plan, its commit, and the ledger before it.

No file lists the epochs that can run again: that follows from the remaining log and files. It
includes at least the epochs after the oldest commit that the retention setting keeps, and more
until the next collection.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.engine.history.adopted import adopt, fragments_of
from headrace.engine.history.recovery import History, based
from headrace.engine.history.shards import begins_at, decode_body
from headrace.errors import IncompatibleState
from headrace.limits import Limits
from headrace.log import paths
from headrace.log.entry import COMMIT, PLAN, RESTORE, VOID, LogEntry
from headrace.log.epochlog import EpochLog
from headrace.log.riders import is_there
from headrace.plan.entries import CommitBody, VoidBody
from headrace.plan.epoch import Commit, Plan
from headrace.plan.interval.state import CommitInterval
from headrace.plan.ledger import Ledger
from headrace.plan.rings.refs import even_slots
from headrace.store.store import Store


class Past(msgspec.Struct):
    """A committed epoch, and the state that it started from."""

    epoch: int
    plan: Plan
    commit: Commit
    ledger: Ledger
    """The ledger as it was when the epoch ran."""
    log_from: int
    """The first position of the log that this was read from."""
    position: int
    """The log position of the commit."""
    voided: tuple[str, ...] = ()
    """Why earlier plans of this epoch were voided."""

    def files(self) -> set[str]:
        """Every file of the checkpoint that a replay reads, except the log and logged answers."""
        found = {name for name, at in self._reads() if not at}
        named = {base for base in self.plan.ring_bases.values() if even_slots(base) is None}
        tables = {version.file for version in self.plan.tables.values()}
        return found | named | tables | self.ledger.ring_objects()

    def positions(self) -> set[int]:
        """The log positions whose entries hold segments or feedback that a replay reads (M1)."""
        return {at for _, at in self._reads() if at}

    def _reads(self) -> Iterator[tuple[str, int]]:
        """Name and log position of everything that is read, position 0 if it is a file."""
        # A move names the entries of slots as they are, so those before it are all there are.
        for name in self.plan.rings:
            for slot in self.ledger.slots.get(name, {}).values():
                yield from ((entry.segment, entry.at) for entry in slot.entries)
        for files in self.ledger.outbox.values():
            yield from ((f"{paths.OUTBOX}/{file.name}", file.at) for file in files)


def past_epoch(store: Store, epoch: int) -> Past:
    """A committed epoch; the message of IncompatibleState says which epochs are available."""
    log = EpochLog(store)
    entries = _entries(log, epoch)
    if not entries:
        raise IncompatibleState("nothing has run on this checkpoint yet")
    found = _found(entries, epoch, log.limits)
    if found is not None:
        return found
    last, _, open_plan, reasons = _state_of(entries)
    if epoch > last:
        raise IncompatibleState(_not_committed(epoch, last, open_plan, reasons.get(epoch, [])))
    raise not_kept(store, epoch)


def ledger_after(store: Store, epoch: int) -> Ledger:
    """The ledger as an epoch left it, and as the epoch after it began.

    IncompatibleState if the epoch is not committed, or if a file of its state was collected.
    """
    log = EpochLog(store)
    entries = _entries(log, epoch + 1)
    if not entries:
        raise IncompatibleState("nothing has run on this checkpoint yet")
    history, rest = _based(entries, log.limits)
    for position, entry in rest:
        is_later = entry.kind == COMMIT and epoch_of(position, entry) > epoch
        if is_later:
            break
        history.fold(position, entry)
    ledger = history.ledger
    if ledger.epoch == epoch and not ledger.interval.is_durable:
        # What was only written may lie elsewhere, or be lost; the fragments of a checkpoint are not
        adoptions, position = fragments_of(store, epoch)
        adopt(ledger, adoptions, position)
        if adoptions:
            ledger.interval = ledger.interval.kept(CommitInterval(checkpoint=epoch))
    if ledger.epoch == epoch and _has_all(store, ledger, entries):
        return ledger
    last, _, open_plan, reasons = _state_of(entries)
    if epoch > last and ledger.epoch < epoch:
        raise IncompatibleState(_not_committed(epoch, last, open_plan, reasons.get(epoch, [])))
    raise not_kept(store, epoch)


def epoch_of(position: int, entry: LogEntry) -> int:
    """The epoch of a commit."""
    return decode_body(position, entry, CommitBody).commit.epoch


def state_files(ledger: Ledger) -> tuple[set[str], set[int]]:
    """Every file that a state consists of, and the log positions whose entries hold the rest."""
    files: set[str] = ledger.records() | ledger.ring_objects() | ledger.table_files()
    positions: set[int] = set()
    for name, at in _state_of_slots(ledger):
        if at:
            positions.add(at)
        else:
            files.add(name)
    return files, positions


def _state_of_slots(ledger: Ledger) -> Iterator[tuple[str, int]]:
    """Name and log position of all segments and feedback; position 0 if it is a file."""
    for of_name in ledger.slots.values():
        for slot in of_name.values():
            yield from ((entry.segment, entry.at) for entry in slot.entries)
    for files in ledger.outbox.values():
        yield from ((f"{paths.OUTBOX}/{file.name}", file.at) for file in files)


def _has_all(store: Store, ledger: Ledger, entries: list[tuple[int, LogEntry]]) -> bool:
    """Whether every file of a state exists, and every entry of the log in which a part rides."""
    files, positions = state_files(ledger)
    directories = {name.rpartition("/")[0] for name in files}
    there = {f"{d}/{name}" for d in directories for name in store.list(d)}
    first = entries[0][0]
    return files <= there and all(at >= first or is_there(store, at) for at in positions)


def delivered_files(history: History) -> frozenset[str]:
    """Rows and feedback of the commits of the window, by the names of their files."""
    found: set[str] = set()
    for _, commit in history.commits:
        found |= {f"{paths.OUTBOX}/{file.name}" for file in commit.outbox if not file.rides}
        for file in commit.staged:
            if not file.rides and not file.own:
                found.add(f"{paths.staged_directory(file.sink)}/{file.name}")
    return frozenset(found)


def not_kept(store: Store, epoch: int) -> IncompatibleState:
    """The error for an epoch whose files or log entries were collected."""
    entries = _entries(EpochLog(store), 0)
    _, retain, _, _ = _state_of(entries)
    kept = kept_epochs(store, entries)
    have = "none is" if not kept else f"{_spans(kept)} {'are' if len(kept) > 1 else 'is'}"
    return IncompatibleState(
        f"epoch {epoch} is not kept any more; {have}. The last run kept {max(retain - 1, 0)} "
        "epochs: run with a larger retain_epochs= (headrace run --retain N) to keep more"
    )


def kept_epochs(store: Store, entries: list[tuple[int, LogEntry]] | None = None) -> list[int]:
    """The epochs whose plan, commit and files all exist."""
    if entries is None:
        entries = _entries(EpochLog(store), 0)
    there = {
        f"{directory}/{name}"
        for directory in [
            paths.OUTBOX,
            paths.RINGS,
            *(f"{d}/{c}" for d in (paths.STATE, paths.TABLES) for c in store.list(d)),
        ]
        for name in store.list(directory)
    }
    kept: list[int] = []
    history, rest = _based(entries, store.system.limits)
    for position, entry in rest:
        if entry.kind == COMMIT and history.ledger.open_plan is not None:
            body = decode_body(position, entry, CommitBody)
            plan, ledger = history.ledger.open_plan, history.ledger
            past = Past(body.commit.epoch, plan, body.commit, ledger, 0, position)
            first = entries[0][0]
            if past.files() <= there and min(past.positions(), default=first) >= first:
                kept.append(past.epoch)
        history.fold(position, entry)
    return kept


def _entries(log: EpochLog, epoch: int) -> list[tuple[int, LogEntry]]:
    """The log, oldest entry first, as far as a snapshot before `epoch` needs it (0: all of it)."""
    found: list[tuple[int, LogEntry]] = []
    first: int | None = None
    for position, entry in log.backwards():
        found.append((position, entry))
        if entry.kind == RESTORE:
            break  # what was before it is another past
        if entry.kind == COMMIT and first is None:
            body = decode_body(position, entry, CommitBody)
            if body.commit.epoch < epoch:
                first = begins_at(position, body)
        if first is not None and position <= first:
            break
    found.reverse()
    return found


def _based(
    entries: list[tuple[int, LogEntry]], limits: Limits
) -> tuple[History, list[tuple[int, LogEntry]]]:
    """A history, empty or from the first usable snapshot, and the entries after it."""
    history = History(1, limits)
    return history, based(history, entries) or []


def _found(entries: list[tuple[int, LogEntry]], epoch: int, limits: Limits) -> Past | None:
    history, rest = _based(entries, limits)
    reasons: list[str] = []
    for position, entry in rest:
        if entry.kind == VOID:
            body = decode_body(position, entry, VoidBody)
            if body.epoch == epoch:
                reasons.append(body.reason)
        if entry.kind == COMMIT:
            commit = decode_body(position, entry, CommitBody).commit
            plan = history.ledger.open_plan
            if commit.epoch == epoch and plan is not None:
                for old, new in commit.renamed.items():
                    history.ledger.rename(old, new)  # as the driver had done when the epoch ran
                log_from = entries[0][0]
                return Past(epoch, plan, commit, history.ledger, log_from, position, tuple(reasons))
        history.fold(position, entry)
    return None


def _state_of(
    entries: list[tuple[int, LogEntry]],
) -> tuple[int, int, Plan | None, dict[int, list[str]]]:
    """(last epoch, retention, open plan, epoch -> why plans of it were voided)."""
    last, retain = 0, 0
    open_plan: Plan | None = None
    reasons: dict[int, list[str]] = {}
    for position, entry in entries:
        if entry.kind == COMMIT:
            body = decode_body(position, entry, CommitBody)
            last, retain, open_plan = body.commit.epoch, body.retain, body.next
        elif entry.kind == PLAN:
            open_plan = decode_body(position, entry, Plan)
        elif entry.kind == VOID:
            void = decode_body(position, entry, VoidBody)
            reasons.setdefault(void.epoch, []).append(void.reason)
            open_plan = None
    return last, retain, open_plan, reasons


def _not_committed(epoch: int, last: int, open_plan: Plan | None, reasons: list[str]) -> str:
    told = f"epoch {epoch} is not committed; the last one that is: {last or 'none'}."
    if open_plan is not None and open_plan.epoch == epoch:
        return f"{told} It is planned, and runs now or when the pipeline starts again"
    if reasons:
        return f"{told} Its plan was voided: {reasons[-1]}"
    return told


def _spans(epochs: list[int]) -> str:
    """Ranges of epochs as text: `3 to 7, 9`."""
    spans: list[list[int]] = []
    for epoch in epochs:
        if spans and spans[-1][1] == epoch - 1:
            spans[-1][1] = epoch
        else:
            spans.append([epoch, epoch])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)
