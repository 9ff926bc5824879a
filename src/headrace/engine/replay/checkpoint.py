"""Reads a checkpoint from outside, without running anything.

Checkpoint("state/orders").get("Orders", "o1")   ->  {"status": "paid", ...}
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.engine.history.recovery import recover
from headrace.engine.replay.epoch_at import kept_epochs
from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.log.rings import resolve
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key, encode_key, hash_key
from headrace.model.values.time import BEGINNING, END
from headrace.plan.ledger import Ledger
from headrace.state.backend import SegmentBackend, StateView, Stored
from headrace.state.view import SlotView, open_view
from headrace.store.location import checkpoint_store, no_checkpoint
from headrace.store.store import Store

_LOOKS_MAX = 5


class Checkpoint:
    """A checkpoint as its last commit left it."""

    def __init__(self, path: str | os.PathLike[str] | Store) -> None:
        self._store = checkpoint_store(path)
        identity = read_identity(self._store)
        if identity is None:
            raise no_checkpoint(self._store)
        self.id = identity.id
        self.pipeline = identity.pipeline
        self._ledger = self._last()

    def _last(self) -> Ledger:
        return recover(EpochLog(self._store), 1).ledger

    @property
    def epoch(self) -> int:
        """The last committed epoch."""
        return self._ledger.epoch

    @property
    def epochs(self) -> list[int]:
        """The past epochs of which every file is kept: `headrace replay` can run them again."""
        return kept_epochs(self._store)

    @property
    def watermarks(self) -> dict[str, int]:
        """The input watermark of every computation."""
        return dict(self._ledger.ins)

    @property
    def computations(self) -> list[str]:
        """The computations that have state in this checkpoint."""
        return sorted(self._ledger.slots)

    def view(self, computation: str) -> StateView:
        """All segments of a computation as one map of cells.

        A running pipeline may collect a segment just before it is opened here; then this method
        retries with the newest commit. An open segment can be read to its end.
        """
        for _ in range(_LOOKS_MAX):
            try:
                return self._view(computation)
            except CorruptCheckpoint:
                epoch, self._ledger = self.epoch, self._last()
                if self.epoch == epoch:
                    break
        return self._view(computation)

    def _view(self, computation: str) -> StateView:
        slots = self._ledger.slots.get(computation)
        if slots is None:
            have = ", ".join(self.computations) or "none"
            raise IncompatibleState(
                f"there is no computation {computation!r} here; there are: {have}"
            )
        ring = resolve(self._store, self._ledger.rings[computation])
        view = SlotView([], ring.records(ring.slots[0]), [], {})
        for slot, state in slots.items():
            view.join(open_view(self._store, state.entries, ring.records(slot), state.classes))
        return SegmentBackend().open(computation, view)

    def stored(self, computation: str, key: Any) -> Stored:
        """The cells of one key."""
        encoded = encode_key(key)
        hashes = np.array([hash_key(encoded)], np.uint64)
        return self.view(computation).fetch([encoded], hashes, maps=True)[0]

    def get(self, computation: str, key: Any) -> dict[str, Any] | None:
        """The state of one key; None if it has none."""
        stored = self.stored(computation, key)
        return _plain(stored, encode_key(key), self.clock(computation)) or None

    def scan(self, computation: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        """(key, state) of every key, in the order of hashes."""
        view, clock = self.view(computation), self.clock(computation)
        keys = sorted(set(view.scan()))
        encoded = [key for _, key in keys]
        hashes = np.array([h for h, _ in keys], np.uint64)
        for key, stored in zip(encoded, view.fetch(encoded, hashes, maps=True), strict=True):
            state = _plain(stored, key, clock)
            if state:
                yield decode_key(key), state

    def clock(self, computation: str) -> int:
        """The time by which TTLs expire: the watermark, or the wall clock of the last plan."""
        ledger = self._ledger
        if computation in ledger.by_wall:
            return ledger.wall
        watermark = ledger.ins.get(computation, BEGINNING)
        return ledger.newest if watermark == END else watermark


def _plain(stored: Stored, key: bytes, clock: int) -> dict[str, Any]:
    state: dict[str, Any] = {
        name: decode_value(cell[0])
        for name, cell in stored.fields.items()
        if cell is not None and cell[1] > clock
    }
    for name in stored.map_names(key):
        found = stored.map_of(key, name).scan(None, None)
        entries = sorted((entry, cell) for entry, cell in found if cell[1] > clock)
        if entries:
            state[name] = {decode_key(entry): decode_value(cell[0]) for entry, cell in entries}
    return state
