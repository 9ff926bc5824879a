"""A computation's slots driven by hand: deltas, drops, merges of segments and moves of the ring.

It uses the ledger's own fold and the real segments, view and compaction; only the
engine around them is left out. `truth` is what a plain dict would hold.
"""

from __future__ import annotations

import random

import numpy as np

from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.plan.counters import Counters
from headrace.plan.epoch import Adoption, Commit, SegmentSlice, SlotBase, SlotDelta
from headrace.plan.ledger import Ledger
from headrace.plan.rings.ring import Ring
from headrace.state import compaction
from headrace.state.segment import ENTRY, FIELD, TIMER, Cell, Segment, encode_batch, encode_segment
from headrace.store.memory import MemoryStore

NAME = "C"
KEYS = [encode_key(f"key {i}") for i in range(5)]

State = dict[tuple[bytes, int, str, bytes], tuple[bytes, int, int]]
"""(key, kind, field, entry) -> (value, time, expires)."""


def cell(identity: tuple[bytes, int, str, bytes], now: tuple[bytes, int, int] | None) -> Cell:
    """A row: a version of a cell, or its deletion."""
    key, kind, field, entry = identity
    value, time, expires = now if now is not None else (b"", 0, END)
    return Cell(hash_key(key), key, kind, field, entry, value, time, expires, 1, now is None)


class Slots:
    """The committed state of one computation, and the log's view of it."""

    def __init__(self, slots: int = 1) -> None:
        self.store = MemoryStore()
        self.ledger = Ledger()
        self.ring = Ring.even(slots)
        self.truth: State = {}
        self.ledger.rings[NAME] = self.ring
        self.commit({})
        self.ledger.epoch = 0

    def owner(self, key: bytes) -> int:
        return int(self.ring.place(np.array([hash_key(key)], np.uint64))[0])

    def base(self, slot: int) -> SlotBase:
        return self.ledger.bases({NAME: self.ring})[NAME][slot]

    def write(self, slot: int, changes: dict) -> str | None:
        """An attempt's segment, which counts for nothing yet."""
        if not changes:
            return None
        data = encode_segment([cell(identity, now) for identity, now in changes.items()])
        label = f"{NAME}/{slot}"
        epoch = self.ledger.epoch + 1
        name = paths.content_name(epoch, label, digest_of(data), ".arrow")
        full = f"{paths.state_directory(NAME)}/{name}"
        self.store.write(full, data)
        return full

    def commit(self, changes: dict, adoptions: list[Adoption] = ()) -> None:
        """An epoch with these changes of all slots."""
        deltas = {}
        for slot in self.ring.slots:
            mine = {i: now for i, now in changes.items() if self.owner(i[0]) == slot}
            segment = self.write(slot, mine)
            size = len(self.store.files[segment]) if segment else 0
            deltas[slot] = SlotDelta(segment, len(mine), size)
        self.ledger.committed(
            Commit(
                epoch=self.ledger.epoch + 1, ins={}, outs={}, splits={}, rings={NAME: self.ring},
                deltas={NAME: deltas}, outbox=[], staged=[], counters=Counters(), newest=0,
                adoptions=list(adoptions),
            ),
            self.ledger.epoch + 1,
        )  # fmt: skip
        for identity, now in changes.items():
            if now is None:
                self.truth.pop(identity, None)
            else:
                self.truth[identity] = now

    def merge(self, dice: random.Random, expired_before: int = -1) -> list[Adoption]:
        """A merge of a random permitted run of a random slot, to be adopted by the next commit."""
        slot = dice.choice(self.ring.slots)
        entries = list(self.ledger.slots[NAME][slot].entries)
        epochs = sorted({e.last_epoch for e in entries}, reverse=True)
        if not epochs:
            return []
        start = 0 if dice.random() < 0.5 else dice.randrange(len(epochs))
        chosen = set(epochs[start : start + dice.choice((1, 3, 6, 99))])
        run = [e for e in entries if e.last_epoch in chosen]
        run.sort(key=lambda e: -e.last_epoch)
        bottom = compaction.is_bottom(run, entries)
        parts = [(Segment.open(self.store, e.segment), e.interval) for e in run]
        batch = compaction.merge(parts, bottom=bottom, expired_before=expired_before)
        data = encode_batch(batch)
        digest = digest_of(data)
        name = paths.content_name(self.ledger.epoch + 1, f"{NAME}/{slot}~", digest, ".arrow")
        full = f"{paths.state_directory(NAME)}/{name}"
        self.store.write(full, data)
        last = max(e.last_epoch for e in run)
        entry = SegmentSlice(
            full, compaction.hull_of(run), last, batch.num_rows, len(data), bottom
        )  # fmt: skip
        return [Adoption(NAME, slot, tuple(e.segment for e in run), entry)]

    def move(self, dice: random.Random) -> None:
        """Another ring from the next commit on: splits, merges, moves."""
        cuts = sorted({hash_key(dice.choice(KEYS)) for _ in range(dice.randrange(4))} - {0})
        lows = (0, *cuts)
        self.ring = Ring(lows, tuple(dice.randrange(3) for _ in lows))


def random_changes(dice: random.Random, truth: State, clock: int) -> dict:
    """Puts, deletes, map entries, timers and values that expire."""
    found: dict = {}
    for _ in range(dice.randrange(6)):
        key = dice.choice(KEYS)
        kind = dice.choice((FIELD, FIELD, ENTRY, TIMER))
        field = "event" if kind == TIMER else dice.choice("nm")
        entry = b"" if kind == FIELD else b"%d" % dice.randrange(2)
        identity = (key, kind, field, entry)
        if dice.random() < 0.5:
            if identity in truth:
                found[identity] = None
        elif kind == TIMER:
            at = dice.randrange(100)
            found[identity] = (b"", at, dice.choice((at, at - 5)))
        else:
            expires = END if dice.random() < 0.7 else clock + dice.randrange(10)
            found[identity] = (b"%d" % dice.randrange(1000), 0, expires)
    return found
