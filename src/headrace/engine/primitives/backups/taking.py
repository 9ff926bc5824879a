"""Backups: the state of an epoch in another store, whole and by itself, taken while epochs go on.

A place with backups belongs to one checkpoint. Files are named by their content, so backups share
what they have in common, and a backup that was interrupted goes on where it stopped.

1. The files of the last epoch are pinned (`pinning`). What a state store has is copied into
   segments first (`standing`): a backup needs no state store, whatever its checkpoint has.
2. Workspaces of sources are copied, under the digest of each file. They are no part of the ledger:
   what the epoch needs of them stays for as long as it is in the retention window, or is the last
   durable one. If it is neither by then, a newer epoch is taken; only what is new is copied again.
3. The files are copied, each checked by the digest in its name before it is written. What rides in
   the log becomes a file of its own. A file that is there already is checked too, unless a complete
   backup names it.
4. The backup itself, with the ledger and the list of files, is written last. Without it there is no
   backup, only files that the next one finds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from headrace.engine.history.recovery import recover
from headrace.engine.history.savepoints import files_of, self_contained
from headrace.engine.history.shards import decode_body
from headrace.engine.primitives.epoch_state import EpochState
from headrace.engine.primitives.pinning import Moment
from headrace.engine.primitives.stores.standing import standing_state
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import (
    CorruptCheckpoint,
    HeadraceError,
    IncompatibleState,
    InvalidPipeline,
    StoreError,
)
from headrace.log import paths
from headrace.log.content import digest_of, verify
from headrace.log.entry import COMMIT, RESTORE
from headrace.log.epochlog import EpochLog
from headrace.log.identity import Identity, read_identity
from headrace.log.riders import map_rider
from headrace.log.sealed import seal, unseal
from headrace.plan.entries import CommitBody
from headrace.plan.ledger import Ledger
from headrace.store.location import no_checkpoint
from headrace.store.store import Store

TRIES_MAX = 20
"""How often a newer epoch is taken because files of the last one were collected meanwhile."""
COPIES = 4
"""How many files are copied at once."""

_PLACE, _BACKUP = b"headrace-backups", b"headrace-backup"


class FileCopy(msgspec.Struct, frozen=True, array_like=True):
    """The size of a file, and the digest of its bytes."""

    size: int
    digest: str


class BackupBody(msgspec.Struct, frozen=True):
    """One backup."""

    checkpoint: str
    """The id of the checkpoint that it is of."""
    pipeline: str
    epoch: int
    wall: int
    """When it was taken, in microseconds."""
    location: str
    """Where that checkpoint lay."""
    ledger: Ledger
    files: dict[str, FileCopy]
    """By the name that each has in the checkpoint."""
    workspaces: dict[str, FileCopy]
    """Files of sources' workspaces; they lie under their digests."""
    state: str = ""
    """The state store of that checkpoint, as `state=` named it; "" if it had none."""

    @property
    def bytes(self) -> int:
        """How large it is."""
        return sum(each.size for each in (*self.files.values(), *self.workspaces.values()))


class BackupReport(msgspec.Struct, frozen=True):
    """What a backup has done."""

    pipeline: str
    epoch: int
    files: int
    bytes: int
    copied: int
    """How many files had to be copied; the others were there from an earlier backup."""
    copied_bytes: int
    location: str


def back_up(
    store: Store, to: Store, moment: Moment = None, access: StoreAccess | None = None
) -> BackupReport:
    """Copies the state of the last epoch, or of a savepoint or a past epoch, into another place."""
    identity = read_identity(store)
    if identity is None:
        raise no_checkpoint(store)
    require_apart(store, to, "a backup")
    claim_place(to, identity)
    copying = _Copying(store, to)
    missing: CorruptCheckpoint | None = None
    for _ in range(TRIES_MAX):
        try:
            purpose = f"a backup to {to.where()}"
            with standing_state(store, moment, purpose, access) as (state, pin):
                found = copying.of(state, pin, identity)
        except FileNotFoundError as error:
            # Taken by a collection that slept while the pin was put.
            missing = CorruptCheckpoint(f"{store.where()}: {error} is missing from the checkpoint")
            continue
        if found is not None:
            return copying.report(found)
    raise missing or IncompatibleState(
        f"{store.where()}: each epoch had left the retention window before the workspaces of its "
        "sources were copied: run with a larger retain_epochs= (headrace run --retain N), or pause "
        "the pipeline for the backup"
    )


def claim_place(to: Store, identity: Identity) -> None:
    """Makes a place one for backups of a checkpoint; refuses one that has anything else."""
    found = read_place(to)
    if found is None:
        if to.list(""):
            raise InvalidPipeline(
                f"{to.where()} is not empty and holds no backups: give a backup a place of its own"
            )
        to.make_directory("")
        to.put_if_absent(paths.BACKUP, seal(_PLACE, msgspec.json.encode(identity)))
        found = read_place(to)
    if found != identity:
        owner = "nobody" if found is None else f"{found.pipeline!r}, id {found.id}"
        raise IncompatibleState(
            f"{to.where()} holds backups of another checkpoint ({owner}), and this one is "
            f"{identity.pipeline!r}, id {identity.id}: give it a place of its own"
        )


def read_place(to: Store) -> Identity | None:
    """Of which checkpoint the backups in a place are; None if it is no such place."""
    try:
        data = to.read(paths.BACKUP)
    except FileNotFoundError:
        return None
    where = to.where(paths.BACKUP)
    try:
        return msgspec.json.decode(unseal(_PLACE, data, where), type=Identity)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{where} cannot be decoded: {error}") from None


def backups_in(place: Store, damaged: list[HeadraceError]) -> list[BackupBody]:
    """The backups in a place, the newest first; `damaged` gets the errors of the others."""
    found: list[BackupBody] = []
    for name in place.list(paths.BACKUPS):
        try:
            found.append(read_backup(place, f"{paths.BACKUPS}/{name}"))
        except (CorruptCheckpoint, IncompatibleState) as error:
            damaged.append(error)
    return sorted(found, key=lambda each: (-each.epoch, -each.wall))


def read_backup(place: Store, name: str) -> BackupBody:
    """One backup by the name of its file."""
    data, where = place.read(name), place.where(name)
    verify(name, data)
    try:
        return msgspec.json.decode(unseal(_BACKUP, data, where), type=BackupBody)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{where} cannot be decoded: {error}") from None


class _Copying:
    """Copies files of a checkpoint, over several tries."""

    def __init__(self, store: Store, to: Store) -> None:
        self._store, self._to = store, to
        self._complete: dict[str, int] = {}
        """File -> its size, of complete backups: these are trusted if their size is right."""
        self._last: BackupBody | None = None
        for body in backups_in(to, []):
            self._last = self._last or body
            self._complete.update({name: each.size for name, each in body.files.items()})
        self._done: dict[str, FileCopy] = {}
        self._versions: dict[str, tuple[str, FileCopy]] = {}
        """Workspace file -> the version that was copied."""
        self._made: tuple[Store, set[str]] = store, set()
        """Where the segments lie that were made of a state store, and which these are."""
        self._copied, self._copied_bytes = 0, 0
        self._lock = threading.Lock()  # never held during a call of a store
        self._failed = False
        """Whether a copy has failed: those that have not begun are left out."""

    def of(self, state: EpochState, pin: HeldPin, identity: Identity) -> BackupBody | None:
        """One try; None if the epoch has left the retention window meanwhile."""
        ledger = self_contained(state.ledger)
        rides = _riding(state.ledger)
        workspaces = self._workspaces(pin)
        if workspaces and not _is_retained(self._store, state.epoch):
            return None
        for name in sorted({paths.BACKUPS, *map(_directory, files_of(ledger))}):
            self._to.make_directory(name)
        made = ledger.segments() if state.segments_in is not state.store else set()
        self._made = state.segments_in, made
        files = self._files(sorted(files_of(ledger)), rides, pin)
        wall = int(self._store.system.wall_s() * 1e6)
        place = self._store.location
        id = state.ledger.identity or identity.id
        body = BackupBody(
            id,
            identity.pipeline,
            state.epoch,
            wall,
            place,
            ledger,
            files,
            workspaces,
            state.kept_in,
        )
        if self._last is None or _content(self._last) != _content(body):
            data = seal(_BACKUP, msgspec.json.encode(body))
            self._to.write(paths.backup(state.epoch, digest_of(data)), data)
        return body

    def report(self, body: BackupBody) -> BackupReport:
        """What was done."""
        count = len(body.files) + len(body.workspaces)
        return BackupReport(
            body.pipeline, body.epoch, count, body.bytes, self._copied, self._copied_bytes,
            self._to.where(),
        )  # fmt: skip

    def _files(
        self, names: Iterable[str], rides: dict[str, int], pin: HeldPin
    ) -> dict[str, FileCopy]:
        pool = self._store.system.executor("headrace-backup", COPIES)
        self._failed = False

        def one(name: str) -> FileCopy | None:
            if self._failed:
                return None
            try:
                pin.keep()
                return self._copy(name, rides.get(name, 0))
            except BaseException:
                self._failed = True
                raise

        todo = {name: pool.submit(one, name) for name in names}
        pool.shutdown(wait=True)
        for each in todo.values():
            if (failure := each.exception()) is not None:
                raise failure
        return {name: copy for name, each in todo.items() if (copy := each.result()) is not None}

    def _copy(self, name: str, at: int) -> FileCopy:
        """Copies one file that is named by its content, unless it is there."""
        if name in self._done:
            return self._done[name]
        digest = paths.digest_in(name)
        size = self._size_there(name)
        if size is None:
            store = self._made[0] if name in self._made[1] else self._store
            data = map_rider(store, name, at) if at else store.map(name)
            verify(name, data)
            size = len(data)
            self._write(name, bytes(data))
        self._done[name] = FileCopy(size, digest)
        return self._done[name]

    def _size_there(self, name: str) -> int | None:
        """The size of a file in the other place, if it is there and whole."""
        try:
            size = self._to.stat(name).size
            if self._complete.get(name) == size:
                return size
            verify(name, self._to.map(name))
        except (FileNotFoundError, CorruptCheckpoint):
            return None
        return size

    def _workspaces(self, pin: HeldPin) -> dict[str, FileCopy]:
        found: dict[str, FileCopy] = {}
        self._to.make_directory(_directory(paths.copied("")))
        for info in self._store.walk(paths.SOURCES):
            if info is None:
                continue
            known = self._versions.get(info.name)
            if known is None or known[0] != info.version:
                try:
                    data = self._store.read(info.name)
                except FileNotFoundError:
                    continue  # its source has released it
                copy = FileCopy(len(data), digest_of(data))
                self._put_copied(copy, data)
                known = self._versions[info.name] = (info.version, copy)
            found[info.name] = known[1]
            pin.keep()
        return found

    def _put_copied(self, copy: FileCopy, data: bytes) -> None:
        name = paths.copied(copy.digest)
        try:
            if digest_of(self._to.map(name)) == copy.digest:
                return
        except FileNotFoundError:
            pass
        self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        try:
            self._to.write(name, data)
        except FileNotFoundError as error:
            raise StoreError(f"cannot write {self._to.where(name)}: {error}") from error
        with self._lock:
            self._copied += 1
            self._copied_bytes += len(data)


def _content(body: BackupBody) -> tuple[object, ...]:
    return body.epoch, body.ledger.commit_position, body.files, body.workspaces


def _directory(name: str) -> str:
    return name.rpartition("/")[0]


def _riding(ledger: Ledger) -> dict[str, int]:
    """What rides in the log: name -> log position."""
    found: dict[str, int] = {}
    for of_name in ledger.slots.values():
        for slot in of_name.values():
            found.update({each.segment: each.at for each in slot.entries if each.at})
    for files in ledger.outbox.values():
        found.update({f"{paths.OUTBOX}/{file.name}": file.at for file in files if file.at})
    return found


def _is_retained(store: Store, epoch: int) -> bool:
    """Whether sources still have all that comes after an epoch.

    It is in the retention window; or a savepoint from before it is kept, which may be restored; or
    no later epoch is durable (M3).
    """
    ledger = recover(EpochLog(store), 1).ledger
    if any(each.epoch <= epoch for each in ledger.control.savepoints.values()):
        return True
    if not ledger.interval.is_durable and epoch >= ledger.interval.checkpoint:
        return True
    for position, entry in EpochLog(store).backwards():
        if entry.kind == RESTORE:
            break
        if entry.kind == COMMIT:
            body = decode_body(position, entry, CommitBody)
            return epoch > body.commit.epoch - max(body.retain, 1)
    return True  # no epoch was committed since it was restored


def require_apart(store: Store, to: Store, what: str) -> None:
    """Refuses a place of which one lies in the other."""
    inside = f"{to.location}/".startswith(f"{store.location}/")
    if inside or f"{store.location}/".startswith(f"{to.location}/"):
        raise InvalidPipeline(
            f"one of {to.where()} and {store.where()} lies in the other: {what} needs a place of "
            "its own"
        )
