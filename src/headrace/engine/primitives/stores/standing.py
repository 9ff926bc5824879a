"""State that stands still while it is read for long: exported, queried, cut or backed up.

Segments stand still by themselves, once they are pinned. A state store goes on with the pipeline,
so its cells are copied into segments in a scratch directory:

1. The files of the last epoch are pinned, and its cells are read from the store, some at a time.
   The store goes on meanwhile: some of these cells are of later epochs.
2. The log is followed, and the deltas of those later epochs are copied before they are collected
   (`later_deltas`). They lie over the copy, so all of it is the state of the last one.
3. It counts only if the store has not restarted since 1, because it might have lost something (O5),
   and if state was changed by deltas alone: a ring change, or a new driver, begins the copy again.

What comes out is a ledger whose state lies in segments alone, so everything else works as it does
without a state store.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np

from headrace.engine.history.recovery import History, recover
from headrace.engine.primitives.epoch_state import BYTES_AT_ONCE, KEYS_AT_ONCE, EpochState
from headrace.engine.primitives.pinning import Moment, lacks, pin_of, pinned_state
from headrace.engine.primitives.stores.later_deltas import LaterDeltas
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import CorruptCheckpoint, StoreError
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.epochlog import EpochLog
from headrace.log.rings import resolve
from headrace.model.values.keys import hash_key
from headrace.model.values.time import BEGINNING
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice, SlotLedger
from headrace.plan.state.applied import AppliedState
from headrace.plan.state.choice import refuse_without_history
from headrace.state.backend import PlaceGone, StateView, Stored
from headrace.state.backends.moment import TRIES_MAX
from headrace.state.compaction import merge_run, parts_of
from headrace.state.segment import ENTRY, FIELD, Cell, encode_segment
from headrace.store.disk import DiskStore
from headrace.store.store import Store

FIRST_KEYS = 1000
"""How many keys are copied at once before it is known how large their values are."""

Chosen = Callable[[EpochState], Sequence[str]]
"""Which computations of a state are needed."""


def all_computations(state: EpochState) -> Sequence[str]:
    """Every computation that has state."""
    return state.computations


@contextmanager
def standing_state(
    store: Store,
    moment: Moment,
    purpose: str,
    access: StoreAccess | None = None,
    chosen: Chosen = all_computations,
) -> Iterator[tuple[EpochState, HeldPin]]:
    """The state of a moment, which stays as it is inside the block as long as the pin is kept."""
    for _ in range(TRIES_MAX):
        log = EpochLog(store)
        history = recover(log, 1)
        if not history.ledger.applied.copies:
            with pinned_state(store, moment, purpose) as found:
                if not found[0].goes_on:
                    yield found
                    return
            continue  # its first epoch was planned meanwhile, and names a state store
        if moment is not None:
            refuse_without_history(history.ledger, "looking at a past epoch")
        with tempfile.TemporaryDirectory(prefix="headrace-state-") as scratch:
            copying = _Copying(store, log, history, DiskStore(scratch), purpose)
            copy = copying.run(access or StoreAccess(store), chosen)
            if copy is not None:
                try:
                    yield copy
                finally:
                    copy[1].release()
                return
    raise StoreError(
        f"{purpose} of {store.where()} needs all state of one epoch, and in {TRIES_MAX} tries the "
        "state store restarted, or slots or drivers changed meanwhile: pause the pipeline for it "
        "(`headrace pause`)"
    )


class _Copying:
    """One try to copy the state of some computations out of a state store."""

    def __init__(
        self, store: Store, log: EpochLog, history: History, to: Store, purpose: str
    ) -> None:
        self._store, self._log, self._history, self._to = store, log, history, to
        self._purpose = purpose

    def run(self, access: StoreAccess, chosen: Chosen) -> tuple[EpochState, HeldPin] | None:
        """The state of the epoch at the end of the copy, and a pin of its files; None if the copy
        does not count."""
        begin = _as_of_now(self._history.ledger)
        state = EpochState(self._store, begin, access)
        names = chosen(state)
        for name in names:
            state.require(name)
        later = LaterDeltas(self._store, self._log, self._history, self._to, names)
        pin = pin_of(self._store, begin, self._purpose)
        try:
            if lacks(self._store, begin) is not None:
                return None
            slots = self._copied(state, names, later, pin)
            if not later.fit or not state.is_one_run():
                return None
        except (CorruptCheckpoint, PlaceGone):
            if later.follow():
                return None  # collected meanwhile, or the store has another place by now
            raise
        finally:
            pin.release()
        return self._standing(state, slots)

    def _copied(
        self, state: EpochState, names: Sequence[str], later: LaterDeltas, pin: HeldPin
    ) -> dict[str, dict[int, tuple[SegmentSlice, ...]]]:
        def tick() -> None:
            pin.keep()
            later.follow()

        base: dict[str, dict[int, list[SegmentSlice]]] = {}
        for name in names:
            self._to.make_directory(paths.state_directory(name))
        for name in names:
            base[name] = _CellCopy(state, self._to, name, tick).run()
        later.follow()
        return {
            name: {slot: (*later.of(name, slot), *found) for slot, found in of_name.items()}
            for name, of_name in base.items()
        }

    def _standing(
        self, began: EpochState, slots: dict[str, dict[int, tuple[SegmentSlice, ...]]]
    ) -> tuple[EpochState, HeldPin] | None:
        ledger = self._history.ledger
        made = {
            name: {
                slot: msgspec.structs.replace(ledger.slots[name][slot], entries=entries)
                for slot, entries in of_name.items()
            }
            for name, of_name in slots.items()
        }
        copy: Ledger = msgspec.structs.replace(
            ledger, slots={**ledger.slots, **made}, applied=AppliedState(), shards={}
        )
        # The segments of the copy are its own; what else the epoch consists of must be there.
        rest = msgspec.structs.replace(ledger, slots={})
        pin = pin_of(self._store, rest, self._purpose)
        if lacks(self._store, rest) is not None:
            pin.release()
            return None
        found = EpochState(self._store, copy, segments_in=self._to)
        found.kept_in = began.kept_in
        return found, pin


class _CellCopy:
    """Copies the cells of one computation, as far as one ledger names them."""

    def __init__(self, state: EpochState, to: Store, name: str, tick: Callable[[], None]) -> None:
        self._state, self._to, self._name, self._tick = state, to, name, tick
        self._ring = resolve(state.store, state.ledger.rings[name])

    def run(self) -> dict[int, list[SegmentSlice]]:
        """The segments of all slots."""
        view = self._state.view(self._name)
        places = sorted(set(view.scan()))
        owners = self._ring.place(np.array([h for h, _ in places], np.uint64))
        keys: dict[int, list[bytes]] = {}
        for slot, (_, key) in zip(owners.tolist(), places, strict=True):
            keys.setdefault(slot, []).append(key)
        return {
            slot: list(self._slot(slot, of_slot, view, keys.get(slot, [])))
            for slot, of_slot in self._state.ledger.slots[self._name].items()
        }

    def _slot(
        self, slot: int, of_slot: SlotLedger, view: StateView, keys: Sequence[bytes]
    ) -> Iterator[SegmentSlice]:
        where = f"{self._name}/{slot}"
        start, count = 0, FIRST_KEYS
        while start < len(keys):
            some = keys[start : start + min(count, KEYS_AT_ONCE)]
            hashes = np.array([hash_key(key) for key in some], np.uint64)
            found = zip(some, hashes.tolist(), view.fetch(some, hashes, maps=True), strict=True)
            cells = [cell for key, at, each in found for cell in _cells(at, key, each)]
            self._tick()
            if cells:
                yield self._made(f"{where}~{start or ''}", encode_segment(cells, where), len(cells))
            # How large values are is known only when they were read.
            size = sum(len(cell.entry) + len(cell.value) for cell in cells)
            start, count = start + len(some), count_for(len(some), size)
        # What is found by time lies in segments, also where there is a state store (O1).
        parts = parts_of(
            self._state.store, of_slot.entries, self._ring.records(slot), of_slot.classes
        )
        epoch = self._state.epoch
        timed = merge_run(parts, bottom=True, expired_before=BEGINNING, applied=epoch)
        for number, (data, rows) in enumerate(timed):
            if rows:
                yield self._made(f"{where}~t{number}", data, rows)

    def _made(self, label: str, data: bytes, rows: int) -> SegmentSlice:
        """Of the last epoch, so it counts in every class of its slot (J2)."""
        epoch = self._state.epoch
        file = paths.content_name(epoch, label, digest_of(data), ".arrow")
        name = f"{paths.state_directory(self._name)}/{file}"
        self._to.write(name, data)
        return SegmentSlice(name, epoch, rows, len(data), True)


def count_for(keys: int, size: int) -> int:
    """How many keys to copy at once, if the last ones had so many bytes."""
    return max(1, min(2 * keys, keys * BYTES_AT_ONCE // max(1, size)))


def _as_of_now(ledger: Ledger) -> Ledger:
    """A ledger apart from one that goes on with the log."""
    slots = {name: dict(of_name) for name, of_name in ledger.slots.items()}
    outbox = {stream: list(files) for stream, files in ledger.outbox.items()}
    return msgspec.structs.replace(
        ledger, slots=slots, outbox=outbox, rings=dict(ledger.rings), ins=dict(ledger.ins)
    )


def _cells(hash: int, key: bytes, stored: Stored) -> Iterator[Cell]:
    """The live fields and map entries of a key."""
    for field, cell in stored.fields.items():
        if cell is not None:
            value, expires = cell
            yield Cell(hash, key, FIELD, field, b"", value, 0, expires, stored.version)
    version = 0
    for name in stored.map_names(key):
        for entry, (value, expires) in stored.map_of(key, name).scan(None, None):
            version = version or stored.entries_version(key)
            yield Cell(hash, key, ENTRY, name, entry, value, 0, expires, version)
