"""Verifies a checkpoint: every checksum, every file that a commit names, and what nobody names.

A *problem* is damage that can stop the pipeline, or a tool: a file that the state, a savepoint or
an undelivered epoch needs is missing, or its bytes are not those that were written. A *note* is
harmless: an orphan, a lease that cannot be read, a past epoch that cannot be replayed. Nothing is
changed, and the pipeline may run meanwhile: what is collected while it is looked at does not count.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from headrace.engine.history.epoch_at import delivered_files, state_files
from headrace.engine.history.recovery import History, recover
from headrace.engine.history.savepoints import files_of, read_savepoint
from headrace.engine.history.shards import decode_body
from headrace.engine.leading.lease import read_lease
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.primitives.stores.verify_store import damage_of_store
from headrace.engine.primitives.verified import Problem, Verified, shown_names
from headrace.engine.primitives.verify_log import LogCheck
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import CorruptCheckpoint, HeadraceError, IncompatibleState, StoreError
from headrace.log import paths
from headrace.log.content import digest_of, map_named
from headrace.log.entry import (
    COMMIT,
    LogEntry,
)
from headrace.log.epochlog import EpochLog
from headrace.log.identity import Identity, read_identity
from headrace.log.missing import without_log
from headrace.log.rings import resolve
from headrace.log.sealed import check_seal
from headrace.plan import entries as bodies
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice
from headrace.state.record import FinishedFile
from headrace.state.segment import WAITING, Segment
from headrace.store.location import no_checkpoint
from headrace.store.store import Store

PIN_S = 600.0
"""How long a pin outlives this process."""

_BY_CONTENT = (paths.STATE, paths.READ, paths.RINGS, paths.TABLES, paths.OUTBOX, paths.STAGED,
               paths.SAVEPOINTS)  # fmt: skip
_UNCHECKED = (paths.MERGED, paths.WORK, paths.SOURCES, paths.SINKS, paths.CELLS, paths.STATUS)
"""What bears no checksum of ours, is checked by whoever uses it, or is only for people."""


def verify_checkpoint(store: Store, access: StoreAccess | None = None) -> Verified:
    """Checks everything in a checkpoint, and its state store."""
    return _Verifier(store, access).run()


class _Verifier:
    """One verification."""

    def __init__(self, store: Store, access: StoreAccess | None) -> None:
        self._store, self._access = store, access
        self.found = Verified(store.where())
        self._checked: set[str] = set()
        self._segments: set[tuple[str, int]] = set()
        """Segments that were checked, with the log positions in which they ride."""
        self._log = LogCheck(store, self._problem, self._count)
        self._retain = 1
        """How many epochs are retained."""
        self._written: set[str] = set()
        """Segments that no checkpoint has yet: a power loss may have taken them (M2)."""

    def run(self) -> Verified:
        identity = self._identity()
        if identity is None:
            return self.found
        self.found.pipeline = identity.pipeline
        entries = self._log.run()
        history = self._history(entries)
        if history is not None:
            self._contents(history)
        if read_lease(self._store) is None and paths.LEASE in self._store.list(""):
            self.found.notes.append("LEASE cannot be read: it is only a hint, and is written anew")
        return self.found

    def _problem(self, file: str, what: object) -> None:
        if file in self._written:
            note = f"{file} was not durable yet, and is made again at the next start"
            self.found.notes += [note] if note not in self.found.notes else []
            return
        if (found := Problem(file, str(what))) not in self.found.problems:
            self.found.problems.append(found)

    def _count(self, size: int) -> None:
        self.found.files += 1
        self.found.bytes += size

    def _identity(self) -> Identity | None:
        try:
            found = read_identity(self._store)
        except (CorruptCheckpoint, IncompatibleState) as error:
            self._problem(paths.IDENTITY, error)
            return None
        if found is None:
            raise no_checkpoint(self._store)
        self._count(len(self._store.read(paths.IDENTITY)))
        return found

    def _history(self, entries: list[tuple[int, LogEntry]]) -> History | None:
        """What the log says; None if it cannot be read to its end."""
        if not entries and not self.found.problems and (missing := without_log(self._store)):
            self._problem(paths.LOG, missing)
        if self.found.problems or not entries:
            return None
        commits = (
            decode_body(p, e, bodies.CommitBody) for p, e in reversed(entries) if e.kind == COMMIT
        )
        last = next(commits, None)
        try:
            self._retain = 1 if last is None else max(last.retain, 1)
            history = recover(EpochLog(self._store), self._retain)
        except StoreError:
            raise  # an outage is no damage
        except HeadraceError as error:
            self._problem(paths.LOG, error)
            return None
        self.found.epoch = history.ledger.epoch
        return history

    # Files ----------------------------------------------------------------

    def _contents(self, history: History) -> None:
        files, positions = state_files(history.ledger)
        pin = HeldPin(
            self._store, "a verification", files, seconds=PIN_S, log_from=min(positions, default=0)
        )
        pin.keep()
        try:
            self._state_store(history.ledger, pin)
            needed = self._state(history.ledger, pin)
            needed |= self._savepoints(history.ledger, pin)
            self._log.follow()
            self._log.written -= needed
            window = history.files() | delivered_files(history)
            self._all(history.ledger.epoch, needed, window, pin)
        finally:
            pin.release()
        self._forget_collected()

    def _state(self, ledger: Ledger, pin: HeldPin) -> set[str]:
        """Checks the state of a ledger; returns the files that it needs."""
        slots_of = [slot for slots in ledger.slots.values() for slot in slots.values()]
        self._written |= {e.segment for slot in slots_of for e in slot.entries if e.written}
        for computation, slots in ledger.slots.items():
            try:
                resolve(self._store, ledger.rings[computation])
            except (CorruptCheckpoint, IncompatibleState) as error:
                self._problem(ledger.rings[computation].base, error)
            for slot in slots.values():
                for entry in slot.entries:
                    self._segment(entry)
                    pin.keep()
        for name in ledger.records():
            self._record(name)
        for name in state_files(ledger)[0]:
            self._named(name)
        return state_files(ledger)[0]

    def _state_store(self, ledger: Ledger, pin: HeldPin) -> None:
        """The cells of a state store are read, each once: every store checks what it reads."""
        for problem in damage_of_store(self._store, ledger, self._access, self.found, pin):
            self._problem(f"{_IN_STORE}{ledger.applied.backend}", problem)

    def _record(self, name: str) -> None:
        try:
            FinishedFile.open(self._store, name)
        except (CorruptCheckpoint, IncompatibleState) as error:
            self._problem(name, error)

    def _segment(self, entry: SegmentSlice) -> None:
        """A segment is what its manifest entry says, and keeps the invariants of segments."""
        if (entry.segment, entry.at) in self._segments:
            return
        self._segments.add((entry.segment, entry.at))
        limits = self._store.system.limits
        where = paths.log_entry(entry.at, limits) if entry.at else entry.segment
        try:
            segment = Segment.open(self._store, entry.segment, entry.at)
        except (CorruptCheckpoint, IncompatibleState) as error:
            self._problem(where, error)
            return
        hashes = segment.hashes
        if len(hashes) != entry.rows:
            self._problem(where, f"{len(hashes):,} rows; its manifest says {entry.rows:,}")
        if (hashes[1:] < hashes[:-1]).any() or (segment.kinds > WAITING).any():
            self._problem(where, "its rows are not those of a segment: hashes are not in order")
        if not segment.bloom.may_have(np.asarray(hashes)).all():
            self._problem(where, "its Bloom filter misses keys that it has")

    def _named(self, name: str) -> None:
        """Checks a file that is needed, by the digest in its name."""
        if name in self._checked:
            return
        self._checked.add(name)
        try:
            data = map_named(self._store, name)
        except CorruptCheckpoint:
            self._problem(name, _MISSING)
            return
        self._count(len(data))
        if digest_of(data) != paths.digest_in(name):
            self._problem(name, "its bytes do not have the digest in its name: it is damaged")

    def _savepoints(self, ledger: Ledger, pin: HeldPin) -> set[str]:
        needed: set[str] = set()
        for savepoint in ledger.control.savepoints.values():
            needed.add(savepoint.snapshot)
            try:
                saved = read_savepoint(self._store, savepoint)
            except (CorruptCheckpoint, IncompatibleState) as error:
                self._problem(savepoint.snapshot, f"savepoint {savepoint.name!r}: {error}")
                continue
            needed |= files_of(saved) | self._state(saved, pin)
        for name in needed:
            self._named(name)
        return needed

    def _all(self, closed: int, needed: set[str], window: frozenset[str], pin: HeldPin) -> None:
        """Looks at every file that is there, and for those that past epochs need."""
        there: set[str] = set()
        unknown: list[str] = []
        for info in self._store.walk():
            pin.keep()
            if info is None:
                continue
            there.add(info.name)
            top = info.name.partition("/")[0]
            if top in _BY_CONTENT:
                self._by_content(info.name, info.size, closed, needed | window)
            elif top in (paths.CONTROL, paths.DETERMINANTS, paths.PINS):
                self._sealed(info.name)
            elif top not in (*_UNCHECKED, paths.LOG, paths.IDENTITY, paths.LEASE):
                unknown.append(info.name)
        if unknown:
            self.found.notes.append(f"not files of a checkpoint: {shown_names(unknown)}")
        gone = sorted(self._still_named(window - there - needed - self._log.riding))
        if gone:
            self.found.notes.append(f"past epochs cannot be replayed without: {shown_names(gone)}")

    def _still_named(self, gone: frozenset[str]) -> frozenset[str]:
        """Of some missing files, those that the newest window names, and that do not ride."""
        if not gone:
            return gone
        newest = recover(EpochLog(self._store), self._retain)
        self._log.follow()
        return (gone & (newest.files() | delivered_files(newest))) - self._log.riding

    def _by_content(self, name: str, size: int, closed: int, named: set[str]) -> None:
        try:
            epoch, _, digest = paths.parse_content_name(name.rpartition("/")[2])
        except ValueError:
            self.found.notes.append(f"not a file of a checkpoint: {name}")
            return
        if name in self._checked:
            return
        self._checked.add(name)
        try:
            whole = digest_of(self._store.map(name)) == digest
        except FileNotFoundError:
            return  # collected meanwhile
        self._count(size)
        if name in self._log.written and not whole:
            self.found.notes.append(f"past epochs cannot be replayed without: {name}")
        elif name in named:
            if not whole:
                self._problem(name, "its bytes do not have the digest in its name: it is damaged")
        elif epoch <= closed:
            self.found.orphans.append(name)
            self.found.orphan_bytes += size

    def _sealed(self, name: str) -> None:
        try:
            data = self._store.read(name)
        except FileNotFoundError:
            return
        if not data:
            return  # a marker
        if not name.startswith(f"{paths.PINS}/"):  # one of them is that of this verification
            self._count(len(data))
        try:
            check_seal(data, name)
        except (CorruptCheckpoint, IncompatibleState) as error:
            if name.startswith(f"{paths.DETERMINANTS}/"):
                self._problem(name, error)
            else:
                self.found.notes.append(f"{name} cannot be read, and is ignored: {error}")

    def _forget_collected(self) -> None:
        """Drops complaints about files that are not there, and that no newer commit names."""
        absent = [each for each in self.found.problems if not self._is_there(each.file)]
        if not absent:
            return
        now = recover(EpochLog(self._store), 1).ledger
        needed, positions = state_files(now)
        needed |= {paths.log_entry(at, self._store.system.limits) for at in positions}
        for saved in now.control.savepoints.values():
            needed.add(saved.snapshot)
            with suppress(CorruptCheckpoint, IncompatibleState):  # that is a complaint of its own
                needed |= files_of(read_savepoint(self._store, saved))
        forgotten = [each for each in absent if each.file not in needed]
        self.found.problems = [each for each in self.found.problems if each not in forgotten]

    def _is_there(self, name: str) -> bool:
        if name.startswith(_IN_STORE):
            return True  # a state store, whose name may be a URL
        try:
            return self._store.stat(name) is not None
        except FileNotFoundError:
            return False


_IN_STORE = f"{paths.CELLS} in "
_MISSING = "it is missing, though a commit names it"
