"""The data of one computation in one slot in one epoch: what hooks read, and what they change.

This is plain data. Either `records` or `tables` runs hooks over it; `delta` writes the changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.log.rings import ring_of
from headrace.pipeline.graph.graph import Node
from headrace.plan.epoch import WorkOrder
from headrace.plan.parcel import Parcel
from headrace.state.backend import StateView
from headrace.state.cache import WorkerCache
from headrace.state.segment import Cell
from headrace.state.slots import OpenSlot
from headrace.state.view import CellId
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.runtime import Live
from headrace.worker.timers import EVENT, TimerChanges


@dataclass(frozen=True, slots=True)
class ArrivedAt:
    """When and where records reached their computation, and which of them were late then (P2)."""

    epoch: int
    before: int
    """in(epoch - 1) of the computation."""
    places: np.ndarray[Any, np.dtype[np.int64]]
    """The place of each record among those of its input that its slot got in that epoch."""
    late: np.ndarray[Any, np.dtype[np.bool_]]


class Arrival:
    """The records of one input that reached a slot."""

    __slots__ = ("arrived", "feedback", "index", "parcel", "stream")

    def __init__(
        self,
        index: int,
        stream: str,
        parcel: Parcel,
        feedback: bool = False,
        arrived: ArrivedAt | None = None,
    ) -> None:
        self.index = index
        self.stream = stream
        self.parcel = parcel
        self.feedback = feedback
        self.arrived = arrived
        """Of carried records, and of all records of an epoch in which the slot has a limit."""


@dataclass
class SlotRun:
    """The data that the hooks of a slot share."""

    emitter: Emitter
    live: Live
    slot: OpenSlot
    state: StateView
    """Fields and map entries of the slot's keys."""
    before: int
    """in(e-1): the input watermark that decides which records are late."""
    now: int
    """in(e): the input watermark up to which timers fire."""
    timers: TimerChanges
    cells: list[Cell] = field(default_factory=list)
    """Changed fields and map entries."""
    objects: list[tuple[bytes, Any, bool]] = field(default_factory=list)
    """(key, object, whether it was touched before) of objects to keep for the next epoch."""
    waiting_values: dict[CellId, bytes] = field(default_factory=dict)
    """The encoded values of records that begin to wait in this epoch."""
    held_before: dict[bytes, int] = field(default_factory=dict)
    """Key -> its watermark before the epoch, if that was below `before`: records were carried."""
    held_now: dict[bytes, int] = field(default_factory=dict)
    """Key -> its watermark in this epoch, if that is below `now`: records are carried (P3)."""
    number: int = 0
    """The slot's number."""
    carried_hold: int | None = None
    """Keeps the output watermark back for the records that the slot carries over (P3)."""

    def before_of(self, key: bytes) -> int:
        """The watermark of a key before the epoch."""
        return self.held_before.get(key, self.before)

    def now_of(self, key: bytes) -> int:
        """The watermark of a key in this epoch: up to here its timers fire."""
        return self.held_now.get(key, self.now)

    @property
    def node(self) -> Node:
        """The computation in the graph."""
        return self.live.node

    @property
    def order(self) -> WorkOrder:
        """The work order of the epoch."""
        return self.emitter.order


def open_slot_run(emitter: Emitter, node: Node, slot: int, *, now: int) -> SlotRun:
    """Opens the slot's state as the last commit left it."""
    runtime, order = emitter.runtime, emitter.order
    # A repair opens the past: what is cached of the present stays.
    cache = runtime.cache if order.repairs is None else WorkerCache()
    opened = cache.open(
        runtime.store,
        order.checkpoint,
        node.name,
        slot,
        order.base(node.name, slot),
        ring_of(runtime.store, order, node.name).records(slot),
        bytes_max=order.cache_bytes,
    )
    before = order.ins.get(node.name, 0)
    timers = TimerChanges(opened.indexes)
    live = runtime.live(node)
    state: StateView = opened.view
    if (backend := runtime.backend(order)) is not None and order.applied is not None:
        name = order.applied.names.get(node.name, node.name)
        state = opened.over(backend, name, order.plan.epoch - 1, order.applied)
    return SlotRun(emitter, live, opened, state, before=before, now=now, timers=timers, number=slot)


def due_events(run: SlotRun) -> list[tuple[int, CellId]]:
    """The event timers that are due, each by the watermark of its key."""
    due = run.slot.indexes[EVENT].due(run.now)
    if not run.held_now:
        return due
    return [(at, cell) for at, cell in due if at <= run.now_of(cell[0])]
