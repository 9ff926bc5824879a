"""A computation's slots driven by hand: deltas, drops, merges of segments and moves of the ring.

It uses the ledger's own fold and the real segments, view and compaction; only the
engine around them is left out. `truth` is what a plain dict would hold.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
from tests.unit.rings import changes_in, lead, plan_of, ring_of

from headrace.limits import LIMITS, Limits
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.plan.counters import Counters
from headrace.plan.epoch import Adoption, Commit, SlotDelta
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice, SlotBase
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.towards import net_moves
from headrace.plan.rings.wanted import Move
from headrace.state import compaction
from headrace.state.segment import ENTRY, FIELD, TIMER, Cell, encode_batch, encode_segment
from headrace.store.memory import MemoryStore
from headrace.system import System

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

    def __init__(self, slots: int = 1, limits: Limits = LIMITS) -> None:
        self.store = MemoryStore(System(limits=limits))
        self.ledger = Ledger()
        self.truth: State = {}
        self.plan = plan_of(self.ledger, slots, name=NAME)
        self.commit({})

    @property
    def ring(self) -> Ring:
        """The ring of the open plan."""
        if not self.ledger.rings:
            return Ring.even(int(self.plan.ring_bases[NAME].removeprefix("even/")))
        changes = changes_in(self.ledger, self.plan)
        return changes[NAME].ring if changes else ring_of(self.ledger, NAME)

    def owner(self, key: bytes) -> int:
        return int(self.ring.place(np.array([hash_key(key)], np.uint64))[0])

    def base(self, slot: int) -> SlotBase:
        changes = changes_in(self.ledger, self.plan)
        known = self.ledger.bases(self.plan, changes)[NAME]
        came = changes[NAME].came.get(slot, ()) if NAME in changes else ()
        return known[slot].base(came)

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
        ring = (
            self.ring
            if self.ledger.rings
            else Ring.even(len(self.ledger.bases(self.plan, {})[NAME]))
        )
        for slot in ring.slots:
            mine = {i: now for i, now in changes.items() if self.owner(i[0]) == slot}
            segment = self.write(slot, mine)
            size = len(self.store.files[segment]) if segment else 0
            deltas[slot] = SlotDelta(segment, len(mine), size)
        lead(
            self.ledger,
            Commit(
                epoch=self.ledger.epoch + 1, ins={}, outs={}, splits={}, rings={},
                deltas={NAME: deltas}, outbox=[], staged=[], counters=Counters(), newest=0,
                adoptions=list(adoptions),
            ),
            self.ledger.epoch + 1,
            plan=self.plan,
        )  # fmt: skip
        self.plan = plan_of(self.ledger, name=NAME)
        for identity, now in changes.items():
            if now is None:
                self.truth.pop(identity, None)
            else:
                self.truth[identity] = now

    def merge(self, dice: random.Random, expired_before: int = -1) -> list[Adoption]:
        """A merge of a random permitted run of a random slot, to be adopted by the next commit."""
        ring = ring_of(self.ledger, NAME)
        slot = dice.choice(ring.slots)
        state = self.ledger.slots[NAME][slot]
        entries = list(state.entries)
        epochs = sorted({e.last_epoch for e in entries}, reverse=True)
        if not epochs:
            return []
        start = 0 if dice.random() < 0.5 else dice.randrange(len(epochs))
        chosen = set(epochs[start : start + dice.choice((1, 3, 6, 99))])
        run = [e for e in entries if e.last_epoch in chosen]
        run.sort(key=lambda e: -e.last_epoch)
        bottom = compaction.is_bottom(run, entries)
        parts = compaction.parts_of(self.store, run, ring.records(slot), state.classes)
        batch = compaction.merge(parts, bottom=bottom, expired_before=expired_before)
        data = encode_batch(batch)
        digest = digest_of(data)
        name = paths.content_name(self.ledger.epoch + 1, f"{NAME}/{slot}~", digest, ".arrow")
        full = f"{paths.state_directory(NAME)}/{name}"
        self.store.write(full, data)
        last = max(e.last_epoch for e in run)
        entry = SegmentSlice(full, last, batch.num_rows, len(data), bottom)
        replaces = tuple((e.segment, e.of) for e in run)
        later = compaction.later_classes(run, state.classes)
        return [Adoption(NAME, slot, replaces, entry, classes=later)]

    def move(self, dice: random.Random) -> None:
        """Another ring from the next commit on: splits, merges, moves."""
        cuts = sorted({hash_key(dice.choice(KEYS)) for _ in range(dice.randrange(4))} - {0})
        bounds = [0, *cuts, 2**64]
        moves = [Move(a, b - 1, dice.randrange(3)) for a, b in pairwise(bounds)]
        net = net_moves(ring_of(self.ledger, NAME), moves)
        self.plan = plan_of(self.ledger, moves=net, name=NAME)


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
