"""Rings and ring changes for tests, without a log: plans and commits that a ledger takes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from headrace.limits import LIMITS, Limits
from headrace.log.rings import resolve
from headrace.plan.epoch import Commit, Plan
from headrace.plan.ledger import Ledger
from headrace.plan.rings.changes import RingChange, change_ring
from headrace.plan.rings.classes import SlotClass
from headrace.plan.rings.ring import Ring, SlotRecords
from headrace.plan.rings.shards import Shards
from headrace.plan.rings.towards import net_moves
from headrace.plan.rings.wanted import Move
from headrace.store.memory import MemoryStore

FIRST = (SlotClass(0, 0),)
"""The classes of the only slot of a first ring."""
WHOLE = Ring.even(1).records(0)
"""The intervals of that slot."""
STORE = MemoryStore()


def records(*intervals: tuple[int, int], of: int = 0) -> SlotRecords:
    """The intervals (low, last) of a slot, all of one class."""
    lows, lasts = zip(*intervals, strict=True)
    classes = np.full(len(lows), of, np.int64)
    return SlotRecords(np.array(lows, np.uint64), np.array(lasts, np.uint64), classes)


def ring_of(ledger: Ledger, name: str = "C") -> Ring:
    """The ring that a computation has."""
    return resolve(STORE, ledger.rings[name])


def plan_of(
    ledger: Ledger, slots: int = 1, moves: Sequence[Move] = (), name: str = "C", wall: int = 0
) -> Plan:
    """The next plan, with a first ring of so many slots, or with moves."""
    known = ledger.rings.get(name)
    version = 1 if known is None else known.version + bool(moves)
    return Plan(
        ledger.epoch + 1, wall, 0, "", [], {}, {name: version},
        moves={name: tuple(moves)} if moves else {},
        ring_bases={} if known is not None else {name: f"even/{slots}"},
    )  # fmt: skip


def changes_in(ledger: Ledger, plan: Plan, limits: Limits = LIMITS) -> dict[str, RingChange]:
    """The ring changes of a plan."""
    return {
        name: change_ring(
            ledger.rings[name], ring_of(ledger, name), ledger.slots[name], moves, plan.epoch,
            limits.chains_kept,
        )
        for name, moves in plan.moves.items()
    }  # fmt: skip


def lead(
    ledger: Ledger,
    commit: Commit,
    position: int,
    *,
    plan: Plan | None = None,
    limits: Limits = LIMITS,
) -> tuple[Commit, Shards]:
    """What the leader does with a commit; returns it as it is written, and what it carries."""
    plan = plan or plan_of(ledger)
    changes = changes_in(ledger, plan, limits)
    steps = {name: change.step.classes for name, change in changes.items()}
    commit = msgspec.structs.replace(commit, steps=steps, rings=plan.rings)
    ledger.planned(plan)
    ledger.committed(commit, position, limits, changes)
    shards = ledger.carried(commit, changes, limits)
    ledger.carries(shards, position)
    return commit, shards


def to(ledger: Ledger, goes: Mapping[tuple[int, int], int], name: str = "C") -> tuple[Move, ...]:
    """Net moves: (low, last) -> slot."""
    moves = [Move(low, last, slot) for (low, last), slot in goes.items()]
    return net_moves(ring_of(ledger, name), moves)
