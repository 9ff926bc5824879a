"""Verifies a state store: its marks, and every cell, by reading each once; and that none is lost.

Stores in the checkpoint's directory have a checksum for every file or record and check it when they
read; a server answers for its own. A cell that is not there looks as if it had never been, so a
store counts what it was given (`StateBackend.lost`); for one that does not, a note says so. A
running pipeline goes on meanwhile, and no value is compared: whether the cells are those of one
epoch is not the question here.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engine.history.recovery import recover
from headrace.engine.primitives.epoch_state import EpochState, fetch_all
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.primitives.verified import Verified
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import CorruptCheckpoint, IncompatibleState, StoreError
from headrace.log.epochlog import EpochLog
from headrace.plan.ledger import Ledger
from headrace.state.backend import Stored
from headrace.state.backends.moment import TRIES_MAX
from headrace.store.store import Store


def damage_of_store(
    store: Store, ledger: Ledger, access: StoreAccess | None, found: Verified, pin: HeldPin
) -> list[str]:
    """What is wrong with the state store of a checkpoint; counts what was read in `found`.

    What a newer commit no longer names does not count: then all is read again.
    """
    problems: list[str] = []
    for _ in range(TRIES_MAX if ledger.applied.copies else 0):
        found.cells = 0
        problems = list(_damage(EpochState(store, ledger, access), found, pin))
        newest = recover(EpochLog(store), 1).ledger
        if not problems or newest.commit_position == ledger.commit_position:
            break
        ledger = newest
    return problems


def _damage(state: EpochState, found: Verified, pin: HeldPin) -> Iterator[str]:
    for name in state.computations:
        try:
            for keys, some in fetch_all(state.view(name)):
                pin.keep()
                found.cells += sum(_read(key, each) for key, each in zip(keys, some, strict=True))
        except (CorruptCheckpoint, IncompatibleState, StoreError) as error:
            yield f"computation {name!r}: {error}"
    if state.computations:
        yield from _lost(state, found)


def _lost(state: EpochState, found: Verified) -> Iterator[str]:
    backend = state.access.backend(state.ledger)
    try:
        yield from _ahead(state, backend.marks().applied)
        lost = backend.lost()
    except (CorruptCheckpoint, IncompatibleState, StoreError) as error:
        lost = str(error)
    if lost is None:
        note = (
            f"cells that the state store {backend.name!r} has lost are not noticed here: it does "
            "not count them, or went on all the time"
        )
        found.notes += [note] if note not in found.notes else []
    elif lost:
        yield lost


def _ahead(state: EpochState, applied: int) -> Iterator[str]:
    """Whether the store has an epoch that the log, which is read after its mark, has not."""
    committed = recover(EpochLog(state.store), 1).ledger.epoch
    if applied > committed:
        yield (
            f"it has epoch {applied}, and the log of this checkpoint ends with epoch {committed}: "
            "the end of the log is missing, or one of the two is an older copy. Put back copies of "
            "the same time"
        )


def _read(key: bytes, stored: Stored) -> int:
    """Reads all cells of a key; returns how many there are."""
    maps = (stored.map_of(key, name) for name in stored.map_names(key))
    return len(stored.fields) + sum(len(each.versions(None, None)) for each in maps)
