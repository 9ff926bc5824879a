"""Restores a backup as a new checkpoint, under a new id.

1. Every file is read from the backup, checked by its digest, and written. A restore that was
   interrupted goes on: what is there and whole is not copied again.
2. If the new checkpoint is to have a state store, the cells are written there, under the new id,
   and synced. An interrupted restore leaves cells that no checkpoint reads.
3. The log begins with a generation and one entry that holds the whole ledger, with the new id.
4. IDENTITY is written last: without it there is no checkpoint, only files of a restore.

Sinks know the old id and refuse the new one: a restored pipeline writes to fresh places, because
rows of epochs after the backup may be out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

import msgspec

from headrace.engine.history.savepoints import restored_ledger
from headrace.engine.primitives.backups.taking import (
    BackupBody,
    FileCopy,
    backups_in,
    read_place,
    require_apart,
)
from headrace.engine.primitives.epoch_state import EpochState
from headrace.engine.primitives.parts import live_cells
from headrace.errors import (
    CorruptCheckpoint,
    Fenced,
    HeadraceError,
    IncompatibleState,
    InvalidPipeline,
    StoreError,
)
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.entry import RESTORE
from headrace.log.epochlog import EpochLog
from headrace.log.identity import Identity, put_identity
from headrace.plan.control import ControlState
from headrace.plan.entries import RestoreBody
from headrace.plan.ledger import Ledger
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import IN_SEGMENTS, StateChoice
from headrace.state.backend import OpenState
from headrace.state.backends.opening import opener_of
from headrace.state.segment import ENTRY, FIELD
from headrace.store.store import Store

CELLS_AT_ONCE = 10_000
"""How many cells a state store is given at a time."""


class RestoredBackup(msgspec.Struct, frozen=True):
    """What was restored."""

    pipeline: str
    epoch: int
    """The pipeline goes on after this epoch."""
    wall: int
    """When the backup was taken, in microseconds."""
    checkpoint: str
    """The new id."""
    files: int
    bytes: int
    location: str
    state: str
    """Where the new checkpoint keeps its state, as `state=` names it."""
    state_before: str
    """Where the checkpoint kept it that the backup is of."""


def restore_backup(
    place: Store,
    to: Store,
    epoch: int | None = None,
    state: StateChoice = IN_SEGMENTS,
    opens: OpenState | None = None,
) -> RestoredBackup:
    """Restores the newest backup of a place, or that of an epoch, into an empty place.

    `state`: where the new checkpoint keeps its state; `opens` opens that store, for tests.
    """
    opens = opens or opener_of(state, to)
    body = chosen_backup(place, epoch)
    wanted = {name: (name, copy) for name, copy in body.files.items()}
    wanted |= {n: (paths.copied(copy.digest), copy) for n, copy in body.workspaces.items()}
    require_apart(place, to, "a restored checkpoint")
    _require_free(to, set(wanted))
    to.make_directory("")
    for directory in sorted({name.rpartition("/")[0] for name in wanted}):
        to.make_directory(directory)
    for name, (source, copy) in sorted(wanted.items()):
        if not _is_there(to, name, copy):
            to.write(name, _checked(place, source, copy))
    what = f"the backup of epoch {body.epoch}"
    fill = None if opens is None else partial(fill_store, to, opens, state)
    new = begin_log(to, body.pipeline, body.ledger, what, fill)
    return RestoredBackup(
        body.pipeline, body.epoch, body.wall, new.id, len(wanted), body.bytes, to.where(),
        state.shown, body.state or SEGMENTS,
    )  # fmt: skip


def fill_store(to: Store, opens: OpenState, state: StateChoice, ledger: Ledger) -> Ledger:
    """Writes all cells into the state store of a new checkpoint; the ledger then relies on it."""
    backend = opens(ledger.applied.id or ledger.identity)
    try:
        backend.lead(ledger.generation, "")
        run, epoch = backend.marks().run, ledger.epoch
        for name in ledger.slots if epoch else ():
            view = EpochState(to, ledger).segments(name)
            stored = ledger.applied.named(name)
            cells = (
                (stored, each) for each in live_cells(view.parts) if each.kind in (FIELD, ENTRY)
            )
            while some := list(islice(cells, CELLS_AT_ONCE)):
                backend.write(epoch, some)
        backend.raise_applied(epoch, run)
        backend.sync()
        marks, place = backend.marks(), backend.place()
    finally:
        backend.close()
    if marks.run != run or marks.applied != epoch:
        raise StoreError(
            f"the state store {state.shown!r} restarted during the restore: begin it again"
        )
    applied = msgspec.structs.replace(ledger.applied, backend=state.shown, epoch=epoch, place=place)
    return msgspec.structs.replace(ledger, applied=applied)


def chosen_backup(place: Store, epoch: int | None) -> BackupBody:
    """The newest backup of a place, or the newest of an epoch."""
    if read_place(place) is None:
        raise InvalidPipeline(
            f"{place.where()} holds no backups: there is no {paths.BACKUP} file. To put a "
            "checkpoint back to a savepoint, use `headrace restore`"
        )
    damaged: list[HeadraceError] = []
    found = backups_in(place, damaged)
    if not found and not damaged:
        raise IncompatibleState(f"{place.where()} holds no complete backup yet: take one more")
    for body in found:
        if epoch is None or body.epoch == epoch:
            return body
    if damaged:
        raise damaged[0]
    have = ", ".join(str(each) for each in sorted({body.epoch for body in found}))
    raise IncompatibleState(
        f"{place.where()} has no backup of epoch {epoch}; it has backups of: {have}"
    )


def begin_log(
    to: Store,
    pipeline: str,
    saved: Ledger,
    what: str,
    fill: Callable[[Ledger], Ledger] | None = None,
) -> Identity:
    """Makes a checkpoint of copied files: its log with one entry, then its identity.

    `fill` fills its state store.
    """
    to.make_directory(paths.log_directory(1, to.system.limits))
    new = Identity(to.system.token_hex(8), pipeline)
    log = EpochLog(to)
    for _ in log.take_over():
        pass  # entries of a restore that was interrupted: the one below counts instead
    begun = InvalidPipeline(
        f"{to.where()}: a pipeline, or another restore or import, has begun there: choose another "
        "place for this one"
    )
    if paths.IDENTITY in to.list(""):  # it was not there at first, and what the log says counts
        raise begun
    ledger = msgspec.structs.replace(
        restored_ledger(saved, new.id),
        generation=log.generation,
        commit_position=log.position + 1,
        control=ControlState(),
    )
    if fill is not None:
        ledger = fill(ledger)
    try:
        log.append(RESTORE, RestoreBody(what, ledger))
        found = put_identity(to, new)
        log.check()
    except Fenced:
        raise begun from None
    if found != new:
        raise begun
    return new


def _require_free(to: Store, wanted: set[str]) -> None:
    """Refuses a place that has anything but files of the same restore, interrupted."""
    if paths.IDENTITY in to.list(""):
        raise InvalidPipeline(
            f"{to.where()} holds a checkpoint already: restore into a place of its own"
        )
    names = [found.name for found in to.walk() if found is not None]
    begun = (f"{paths.LOG}/", f"{paths.CELLS}/")
    others = [n for n in names if n not in wanted and not n.startswith(begun)]
    if others:
        raise InvalidPipeline(
            f"{to.where()} is not empty (it has {others[0]}): restore into a place of its own"
        )


def _is_there(to: Store, name: str, copy: FileCopy) -> bool:
    try:
        return digest_of(to.map(name)) == copy.digest
    except FileNotFoundError:
        return False


def _checked(place: Store, name: str, copy: FileCopy) -> bytes:
    try:
        data = place.read(name)
    except FileNotFoundError:
        raise CorruptCheckpoint(
            f"{place.where(name)} is missing from the backup: take another backup, or restore one "
            "of another epoch"
        ) from None
    if digest_of(data) != copy.digest:
        raise CorruptCheckpoint(
            f"{place.where(name)} is damaged: its {len(data):,} bytes do not have the digest "
            f"{copy.digest}, which the backup says. Nothing of it has been restored"
        )
    return data
