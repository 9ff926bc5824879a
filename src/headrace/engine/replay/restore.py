"""Restores a savepoint: the state of a stopped pipeline goes back to it, under a new id (I10, F3).

In place:
1. No driver may lead: the lease is observed for its length.
2. A generation is appended: a driver that comes back is fenced.
3. One entry holds the whole ledger of the savepoint, with a new id. From here on it counts.
4. The new id is written into IDENTITY; a driver that finds the old one there completes this.

Epoch numbers go on after the last epoch: files of the epochs that no longer count keep their names,
and a driver that sleeps in its collection deletes nothing that is new. Sinks know the old id and
refuse the new one: a restored pipeline writes to fresh places, because the rows of the epochs that
no longer count are out.

Elsewhere (`to`): the files of the savepoint are copied, then the log is begun with the same entry,
and IDENTITY is written last, so that a copy that was interrupted is not a checkpoint. The pipeline
may run meanwhile.
"""

from __future__ import annotations

import msgspec

from headrace.engine.history.recovery import recover
from headrace.engine.history.savepoints import files_of, read_savepoint, restored_ledger
from headrace.engine.leading.alone import refuse_a_leader
from headrace.engine.primitives.backups.restoring import begin_log
from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.log import paths
from headrace.log.entry import RESTORE
from headrace.log.epochlog import EpochLog
from headrace.log.identity import Identity, read_identity, replace_identity
from headrace.plan.control import Savepoint
from headrace.plan.entries import RestoreBody
from headrace.plan.ledger import Ledger
from headrace.store.location import no_checkpoint
from headrace.store.store import Store

_RETAIN = 16


class Restored(msgspec.Struct, frozen=True):
    """What was restored."""

    pipeline: str
    savepoint: Savepoint
    epoch: int
    """The pipeline goes on after this epoch."""
    checkpoint: str
    """The new id."""
    location: str


def restore_savepoint(store: Store, name: str, to: Store | None = None) -> Restored:
    """Restores a savepoint in place, or as a new checkpoint in another place."""
    identity = read_identity(store)
    if identity is None:
        raise no_checkpoint(store)
    log = EpochLog(store)
    history = recover(log, _RETAIN)
    savepoint = _listed(history.ledger, name, store)
    if to is not None:
        return _copy(store, to, identity.pipeline, savepoint)
    refuse_a_leader(store, log)
    for position, entry in log.take_over():
        history.fold(position, entry)
    now = history.ledger
    if now.code.probation is not None:
        raise IncompatibleState(
            f"a deploy is on probation on {store.where()}: confirm it or take it back first"
        )
    savepoint = _listed(now, name, store)
    new = Identity(store.system.token_hex(8), identity.pipeline)
    ledger = restored_ledger(read_savepoint(store, savepoint), new.id)
    ledger = msgspec.structs.replace(
        ledger,
        epoch=now.epoch,
        wall=max(now.wall, ledger.wall),
        generation=log.generation,
        commit_position=log.position + 1,
        control=now.control,
    )
    log.append(RESTORE, RestoreBody(name, ledger))
    replace_identity(store, new)
    return Restored(identity.pipeline, savepoint, now.epoch, new.id, store.where())


def _listed(ledger: Ledger, name: str, store: Store) -> Savepoint:
    found = ledger.control.savepoints.get(name)
    if found is None:
        have = ", ".join(sorted(ledger.control.savepoints)) or "none"
        raise IncompatibleState(
            f"the checkpoint {store.where()} has no savepoint {name!r}; it has: {have}"
        )
    return found


def _copy(store: Store, to: Store, pipeline: str, savepoint: Savepoint) -> Restored:
    if to.list("") or to.location == store.location:
        raise InvalidPipeline(
            f"{to.where()} is not empty: a savepoint is restored into a place of its own"
        )
    saved = read_savepoint(store, savepoint)
    own = [found.name for found in store.walk(paths.SOURCES) if found is not None]
    to.make_directory("")
    for name in [*sorted(files_of(saved)), *own]:
        to.make_directory(name.rpartition("/")[0])
        to.write(name, store.read(name))
    new = begin_log(to, pipeline, saved, savepoint.name)
    return Restored(pipeline, savepoint, saved.epoch, new.id, to.where())
