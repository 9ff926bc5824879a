"""A model of a keyed computation: keys with weights per epoch, and slots that work for them.

Everything between the notes and the wanted ring is the engine's own code: sketches, meter, figures,
the ledger's fold, the decision. The model only draws records and carries out moves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np

from headrace.model.values.keys import HASH_SPACE, encode_key, hash_key
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.figures import LoadFigures, LoadState
from headrace.plan.elastic.load import SlotLoad, SlotNote
from headrace.plan.elastic.meter import LoadMeter
from headrace.plan.elastic.settings import Elasticity
from headrace.plan.elastic.sketch import sketch_of
from headrace.plan.elastic.view import RingView
from headrace.plan.rings.wanted import Wanted

EPOCH_US = 1_000_000
NAME = "Count"

Floats = np.ndarray[Any, np.dtype[np.float64]]
Weights = Callable[[int], Floats]
"""Epoch -> how many records each key gets, on average."""


def even_ring(slots: int) -> RingView:
    return RingView.of([HASH_SPACE * i // slots for i in range(slots)], list(range(slots)))


def zipf(keys: int, exponent: float, records: int) -> Floats:
    weights = 1 / np.arange(1, keys + 1) ** exponent
    return weights / weights.sum() * records


@cache
def hashes_of(keys: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array([hash_key(encode_key(f"key {i}")) for i in range(keys)], np.uint64)


class Model:
    """One computation, epoch by epoch; `log` has all that commits said of load and rings."""

    def __init__(
        self,
        keys: int,
        weights: Weights,
        ring: RingView,
        settings: Elasticity,
        *,
        every: int = 2,
        cost_us: float = 10.0,
        noise: float = 0.0,
        seed: int = 1,
        fixed_us: int = 2000,
    ) -> None:
        self.hashes = hashes_of(keys)
        self.weights, self.ring, self.settings = weights, ring, settings
        self.every, self.cost_us, self.noise = every, cost_us, noise
        self.fixed_us = fixed_us
        """What each slot does in an epoch besides its records."""
        self.left: int | None = 0
        """How many records wait to be read; None: the source cannot say."""
        self.random = np.random.default_rng(seed)
        self.state = LoadState()
        self.meter = LoadMeter()
        self.wanted: Wanted | None = None
        self.epoch, self.wall = 0, 1_700_000_000_000_000
        self.mute: Callable[[int, int], bool] = lambda epoch, slot: False
        """Whether the note of a slot is lost."""
        self.log: list[tuple[LoadFigures | None, Decided, RingView, int, int]] = []
        self.loads: list[dict[int, int]] = []
        """Records of each slot, by epoch."""
        self.heaviest: list[int] = []
        self.moved = 0.0
        """How much of the key space has moved, in wholes of it."""

    def run(self, epochs: int) -> Model:
        for _ in range(epochs):
            self.step()
        return self

    def step(self) -> None:
        self.epoch += 1
        self.wall += EPOCH_US
        changed = self._move()
        self.meter.planned(self.epoch, self.wall)
        if changed:
            self.meter.ring_changed(NAME, self.epoch)
        records = self.random.poisson(self.weights(self.epoch))
        owners = self.ring.owners[
            np.searchsorted(self.ring.lows, self.hashes, side="right").astype(np.int64) - 1
        ]
        loads: dict[int, SlotLoad] = {}
        notes = []
        longest = 0
        for slot in self.ring.slots:
            mine = owners == slot
            count = int(records[mine].sum())
            factor = 1 + self.noise * (2 * self.random.random() - 1)
            busy = int(count * self.cost_us * factor)
            if not self.mute(self.epoch, slot):
                label = f"{NAME}/{slot}"
                notes.append(SlotNote(self.epoch, label, busy + self.fixed_us, records_us=busy))
            longest = max(longest, busy)
            loads[slot] = SlotLoad(count, sketch=sketch_of(self.hashes[mine], records[mine]))
        self.loads.append({slot: load.records for slot, load in loads.items()})
        self.heaviest.append(int(records.max()))
        self.meter.offered(self.epoch, int(records.sum()), self.left)
        self.meter.ran(self.epoch, longest + self.fixed_us)
        self.meter.heard(notes)
        if changed:
            self.state = self.state.without(NAME)
        figures = None
        if self.epoch % self.every == 0 or self.state.soon:
            sizes = {NAME: self.ring.slots}
            figures = self.meter.report(
                self.epoch, self.state, {NAME: loads}, sizes, {NAME: len(self.ring)}, self.settings
            )
        self.commit(figures)

    def commit(self, figures: LoadFigures | None) -> None:
        """The commit, as a driver folds it and decides; through JSON, as it lies in the log."""
        figures = msgspec.json.decode(msgspec.json.encode(figures), type=LoadFigures | None)
        if figures is not None:
            self.state = self.state.reported(figures, [NAME])
        wanted = () if self.wanted is None else (NAME,)
        decided = Decided()
        if figures is not None:
            decided = decide_rings(
                self.state.of, {NAME: self.ring}, wanted, self.settings,
                epoch=self.epoch, wall=self.wall, early=self.state.early,
                overhead=self.state.overhead,
            )  # fmt: skip
        self.state = self.state.decided(decided)
        self.wanted = decided.wanted.get(NAME, self.wanted)
        self.log.append((figures, decided, self.ring, self.epoch, self.wall))

    def _move(self) -> bool:
        """The plan carries out what is wanted."""
        wanted, self.wanted = self.wanted, None
        if wanted is None:
            return False
        if wanted.slots:
            version = self.ring.version + 1
            ring = even_ring(wanted.slots)
            self.ring = RingView(ring.lows, ring.owners, version, ring.slots)
            return True
        assert wanted.expects == self.ring.version
        assert_net(self.ring, wanted)
        self.moved += sum(m.last - m.low + 1 for m in wanted.moves) / HASH_SPACE
        self.ring = self.ring.after(wanted.moves)
        return True

    def ratio(self, back: int = 1) -> float:
        """The busiest slot over its bound, max(1.3 x mean, 1.1 x heaviest key), in an epoch."""
        loads = self.loads[-back]
        mean = sum(loads.values()) / len(loads)
        return max(loads.values()) / max(1.3 * mean, 1.1 * self.heaviest[-back])

    @property
    def decisions(self) -> list[int]:
        """The epochs with a decision."""
        return [epoch for _, decided, _, epoch, _ in self.log if decided]


def assert_net(ring: RingView, wanted: Wanted) -> None:
    """Moves are in order, do not overlap, and each goes to another slot than the owner's."""
    end = -1
    for move in wanted.moves:
        assert end < move.low <= move.last < HASH_SPACE
        end = move.last
        first = int(np.searchsorted(ring.lows, np.uint64(move.low), side="right")) - 1
        last = int(np.searchsorted(ring.lows, np.uint64(move.last), side="right")) - 1
        assert move.to not in set(ring.owners[first : last + 1].tolist())
