"""The state of all computations as one epoch left it: looked up by key, or scanned.

It knows one ledger and reads files, and the state store where there is one; it writes nothing. A
running pipeline may collect a file that is not open yet: whoever needs more than one look pins the
files first (`pinning`). A state store goes on while it is read: nothing that was read counts before
`is_moment` has said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.errors import IncompatibleState
from headrace.log.rings import resolve
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import HASH_SPACE, decode_key, encode_key, hash_key
from headrace.model.values.time import BEGINNING, END
from headrace.plan.ledger import Ledger
from headrace.plan.rings.ring import NOWHERE, KeyInterval, SlotRecords
from headrace.state.backend import StateView, Stored
from headrace.state.backends.applied_view import AppliedView
from headrace.state.view import SlotView, open_view
from headrace.store.store import Store

KEYS_AT_ONCE, BYTES_AT_ONCE = 20_000, 16_000_000
"""About how many keys, and bytes of their cells, a scan reads at a time."""

State = dict[str, Any]
"""Field -> its value, and map -> its entries."""


class EpochState:
    """The committed state of a checkpoint after one epoch."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        access: StoreAccess | None = None,
        segments_in: Store | None = None,
    ) -> None:
        """`access` opens the state store, if there is one. `segments_in`: where segments lie, if
        not in the checkpoint."""
        self.store, self.ledger = store, ledger
        self.segments_in = segments_in or store
        self.access = access or StoreAccess(store)
        self.kept_in = ledger.applied.backend if ledger.applied.copies else ""
        """The state store; "" if there is none."""
        self._opened: list[AppliedView] = []

    @property
    def epoch(self) -> int:
        """The epoch that left this state."""
        return self.ledger.epoch

    @property
    def computations(self) -> list[str]:
        """The computations that have state."""
        return sorted(self.ledger.slots)

    @property
    def goes_on(self) -> bool:
        """Whether the state lies in a store that goes on while it is read."""
        return self.ledger.applied.copies

    def is_moment(self) -> bool:
        """Whether all that was read so far is the state of this epoch (O8)."""
        return all(view.is_moment() for view in self._opened)

    def is_one_run(self) -> bool:
        """Whether the state store has not restarted since it was opened here (O5)."""
        return all(view.is_one_run() for view in self._opened)

    def segments(self, computation: str) -> SlotView:
        """All segments of a computation as one map of cells, timers and waiting records included.

        An open segment can be read to its end, whatever is collected meanwhile. With a state store
        they lack what the store has.
        """
        self.require(computation)
        ring = resolve(self.store, self.ledger.rings[computation])
        view = SlotView([], NOWHERE, [], {})
        for slot in self.ledger.slots[computation]:
            view.join(self._slot(computation, slot, ring.records(slot), BEGINNING))
        return view

    def view(self, computation: str) -> StateView:
        """Fields and map entries of all keys of a computation."""
        if not self.goes_on:
            return self.segments(computation)
        self.require(computation)
        ring = resolve(self.store, self.ledger.rings[computation])
        newer = SlotView([], NOWHERE, [], {})
        for slot in self.ledger.slots[computation]:
            mark = self.ledger.applied.epoch
            newer.join(self._slot(computation, slot, ring.records(slot), mark))
        return self._over_store(computation, newer)

    def stored(self, computation: str, key: Any) -> Stored:
        """The cells of one key; only the segments of its slot are opened."""
        self.require(computation)
        encoded = encode_key(key)
        hashes = np.array([hash_key(encoded)], np.uint64)
        ring = resolve(self.store, self.ledger.rings[computation])
        slot = int(ring.place(hashes)[0])
        mark = self.ledger.applied.epoch if self.goes_on else BEGINNING
        view: StateView = self._slot(computation, slot, ring.records(slot), mark)
        if self.goes_on:
            view = self._over_store(computation, view)
        return view.fetch([encoded], hashes, maps=True)[0]

    def _slot(self, computation: str, slot: int, records: SlotRecords, after: int) -> SlotView:
        """The segments of a slot with epochs after a mark."""
        state = self.ledger.slots[computation][slot]
        entries = [entry for entry in state.entries if entry.last_epoch > after]
        return open_view(self.segments_in, entries, records, state.classes)

    def _over_store(self, computation: str, newer: StateView) -> AppliedView:
        view = self.access.view(self.ledger, computation, newer)
        self._opened.append(view)
        return view

    def get(self, computation: str, key: Any) -> State | None:
        """The state of one key; None if it has none."""
        stored = self.stored(computation, key)
        return plain_state(stored, encode_key(key), self.clock(computation)) or None

    def scan(self, computation: str) -> Iterator[tuple[Any, State]]:
        """(key, state) of every key, in the order of hashes; a part of the keys at a time."""
        return scan_view(self.view(computation), self.clock(computation))

    def sized_scan(self, computation: str) -> Iterator[tuple[Any, State, int]]:
        """(key, state, bytes of its cells) of every key, as `scan` finds them."""
        return sized_rows(self.view(computation), self.clock(computation))

    def clock(self, computation: str) -> int:
        """The time by which TTLs expire: the watermark, or the wall clock of the last plan."""
        ledger = self.ledger
        if computation in ledger.by_wall:
            return ledger.wall
        watermark = ledger.ins.get(computation, BEGINNING)
        return ledger.newest if watermark == END else watermark

    def require(self, computation: str) -> None:
        """Refuses a computation that has no state here."""
        if computation not in self.ledger.slots:
            have = ", ".join(self.computations) or "none"
            raise IncompatibleState(
                f"there is no computation {computation!r} here; there are: {have}"
            )


def scan_view(view: StateView, clock: int) -> Iterator[tuple[Any, State]]:
    """(key, state) of every key of a view that has any at a time, in the order of hashes."""
    return ((key, state) for key, state, _ in sized_rows(view, clock))


def sized_rows(view: StateView, clock: int) -> Iterator[tuple[Any, State, int]]:
    """(key, state, bytes of its cells) of every key of a view that has any at a time."""
    for some in fetch_all(view):
        for key, stored in zip(*some, strict=True):
            state, size = _sized_state(stored, key, clock)
            if state:
                yield decode_key(key), state, len(key) + size
        del some  # before the next part is read


def fetch_all(view: StateView) -> Iterator[tuple[list[bytes], Sequence[Stored]]]:
    """All keys of a view with their cells, in the order of hashes; some at a time."""
    for part in in_parts(view):
        places = sorted(set(part.scan()))
        for start in range(0, len(places), KEYS_AT_ONCE):
            some = places[start : start + KEYS_AT_ONCE]
            keys = [key for _, key in some]
            yield keys, part.fetch(keys, np.array([h for h, _ in some], np.uint64), maps=True)


def in_parts(view: StateView) -> Iterator[StateView]:
    """A view, cut so that each part has few keys and bytes: hashes are spread evenly over the key
    space."""
    if not isinstance(view, SlotView):
        yield view
        return
    count = 1 + max(view.rows // KEYS_AT_ONCE, view.size // BYTES_AT_ONCE)
    for number in range(count):
        low, high = HASH_SPACE * number // count, HASH_SPACE * (number + 1) // count
        yield view.inside(KeyInterval.between(low, high))


def plain_state(stored: Stored, key: bytes, clock: int) -> State:
    """The live fields of a key, then its maps with their live entries; all in order."""
    return _sized_state(stored, key, clock)[0]


def _sized_state(stored: Stored, key: bytes, clock: int) -> tuple[State, int]:
    """The live state of a key, and the bytes of its cells."""
    live = [
        (name, cell[0])
        for name, cell in sorted(stored.fields.items())
        if cell is not None and cell[1] > clock
    ]
    state: State = {name: decode_value(data) for name, data in live}
    size = sum(len(data) for _, data in live)
    for name in sorted(stored.map_names(key)):
        found = stored.map_of(key, name).scan(None, None)
        entries = sorted((entry, cell) for entry, cell in found if cell[1] > clock)
        if entries:
            state[name] = {decode_key(entry): decode_value(cell[0]) for entry, cell in entries}
            size += sum(len(entry) + len(cell[0]) for entry, cell in entries)
    return state, size
