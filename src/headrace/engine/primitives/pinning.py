"""Keeps the files of a state while it is read, copied or compared, on a running pipeline.

1. The ledger says which files the state of an epoch consists of.
2. They are pinned, then looked for: a collection that began before the pin may have deleted some.
   Then the newest epoch is taken instead; with a checkpoint interval, if that has lost files that
   were not durable, the last epoch that is.
3. The pin is renewed while the work lasts, and deleted at its end. If this process dies, the pin
   expires.

What remains is a collection that slept between its look for pins and its deletions (C8). A file
that it takes is missed when it is read: whoever copies begins again with a newer epoch, and keeps
what was copied.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from headrace.engine.history.epoch_at import ledger_after, state_files
from headrace.engine.history.recovery import recover
from headrace.engine.history.savepoints import read_savepoint
from headrace.engine.primitives.durable import durable_epoch
from headrace.engine.primitives.epoch_state import EpochState
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import CorruptCheckpoint, IncompatibleState, StoreError
from headrace.log.epochlog import EpochLog
from headrace.log.riders import is_there
from headrace.plan.control import is_epoch
from headrace.plan.ledger import Ledger
from headrace.store.store import Store

_logger = logging.getLogger("headrace.state")

PIN_S = 600.0
"""How long a pin outlives a process that died."""
LOOKS_MAX = 8

Moment = int | str | None
"""Which state: of a past epoch, of a savepoint by its name, or (None) of the last commit. Digits as
text are an epoch, unless there is a savepoint of that name: earlier releases took such names."""


def ledger_of(store: Store, moment: Moment = None) -> Ledger:
    """The ledger of a moment."""
    if isinstance(moment, int):
        return ledger_after(store, moment)
    last = recover(EpochLog(store), 1).ledger
    if moment is None:
        return last
    listed = last.control.savepoints.get(moment)
    if listed is None and is_epoch(moment):
        return ledger_after(store, int(moment))
    if listed is None:
        have = ", ".join(sorted(last.control.savepoints)) or "none"
        raise IncompatibleState(
            f"{store.where()} has no savepoint {moment!r}; it has: {have}. An epoch is a number"
        )
    return msgspec.structs.replace(read_savepoint(store, listed), epoch=listed.epoch)


@contextmanager
def pinned_state(
    store: Store, moment: Moment, purpose: str, access: StoreAccess | None = None
) -> Iterator[tuple[EpochState, HeldPin]]:
    """The state of a moment, whose files stay inside the block as long as the pin is kept."""
    before: Ledger | None = None
    missing: str | None = None
    for _ in range(LOOKS_MAX):
        ledger = ledger_of(store, moment)
        pin = pin_of(store, ledger, purpose)
        missing = lacks(store, ledger)
        if missing is None:
            try:
                yield EpochState(store, ledger, access), pin
            finally:
                pin.release()
            return
        pin.release()
        stands = before is not None and before.commit_position == ledger.commit_position
        elsewhere = store.is_far and not ledger.interval.is_durable  # on executors' own disks
        if stands or elsewhere:
            if ledger.interval.is_durable:
                break
            # Written state may be lost before its checkpoint (M2): the driver makes it again.
            durable = durable_epoch(ledger)
            if moment is not None or not durable:
                raise StoreError(
                    f"{store.where()}: {missing} is missing: it was lost before it was durable, or "
                    "lies on the disk of an executor. A driver makes it again before its next "
                    "epoch: try again while one runs, after a checkpoint"
                )
            moment = durable
            if elsewhere:
                say_older(store, durable, ledger.epoch)
        before = ledger
    raise CorruptCheckpoint(
        f"{store.where()}: {missing} is missing, though a commit names it; restore the file from a "
        "copy, or begin again from a backup (`headrace state verify` lists all that is missing)"
    )


def say_older(store: Store, epoch: int, newest: int) -> None:
    """Says that an older epoch is shown than the newest one."""
    _logger.warning(
        "%s: this is the state of epoch %d, and not of epoch %d: newer changes lie on executors' "
        "own disks until the next checkpoint", store.where(), epoch, newest,
    )  # fmt: skip


def pin_of(store: Store, ledger: Ledger, purpose: str) -> HeldPin:
    """Pins all files of a state; `lacks` then says whether a collection was faster."""
    files, positions = state_files(ledger)
    pin = HeldPin(store, purpose, files, seconds=PIN_S, log_from=min(positions, default=0))
    pin.keep()
    return pin


def lacks(store: Store, ledger: Ledger) -> str | None:
    """A file of a state, or an entry of the log, that is not there."""
    files, positions = state_files(ledger)
    directories = {name.rpartition("/")[0] for name in files}
    there = {f"{d}/{name}" for d in directories for name in store.list(d)}
    for name in sorted(files - there):
        return name
    return next((f"log entry {at}" for at in sorted(positions) if not is_there(store, at)), None)
