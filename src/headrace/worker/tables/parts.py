"""What one call of a table hook gets: the records of an input together, of keys that see the same.

Usually that is everything a slot has. Where records are carried over, some keys see a watermark of
their own (P3), but a table hook sees one watermark for all its keys. So there is one call for each
pair of watermarks, before and in this epoch. There are few: one per epoch in which records began
to wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace.pipeline.graph.graph import Node
from headrace.plan.parcel import Parcel
from headrace.state.view import CellId
from headrace.worker.slot_run import Arrival, SlotRun


@dataclass(frozen=True)
class TablePart:
    """The records and due timers of keys that see the same watermarks."""

    run: SlotRun
    """The data of the slot, with those watermarks."""
    arrivals: list[Arrival]
    due: list[CellId]


def inputs_apart(node: Node) -> bool:
    """Whether a computation reads its inputs from `ctx.inputs()`, not as one common table."""
    return len(node.inputs) > 1 and not node.template.reads_values


def one_per_input(node: Node, arrivals: list[Arrival]) -> list[Arrival]:
    """The records of each input together, carried ones first.

    If a common table shows the records of several inputs, they stay in the order of arrival.
    """
    several = len(node.inputs) > 1 and not inputs_apart(node)
    if several or len({arrival.index for arrival in arrivals}) == len(arrivals):
        return arrivals
    found: list[Arrival] = []
    for index in sorted({arrival.index for arrival in arrivals}):
        mine = [arrival for arrival in arrivals if arrival.index == index]
        parcel = Parcel.merge([arrival.parcel for arrival in mine])
        found.append(Arrival(index, mine[0].stream, parcel, mine[0].feedback))
    return found


def by_watermarks(run: SlotRun, arrivals: list[Arrival], due: list[CellId]) -> list[TablePart]:
    """One part for each pair of watermarks that keys see, before and in this epoch."""
    usual = (run.before, run.now)
    own = {key: (run.before_of(key), run.now_of(key)) for key in (*run.held_before, *run.held_now)}
    parts = []
    for before, now in sorted({usual, *own.values()}):
        seen = (before, now)
        mine = [_of_keys(a, own, seen, usual) for a in arrivals]
        timers = [cell for cell in due if own.get(cell[0], usual) == seen]
        part = replace(run, before=before, now=now, held_before={}, held_now={})
        parts.append(TablePart(part, [a for a in mine if len(a.parcel.rows)], timers))
    return parts


def _of_keys(
    arrival: Arrival,
    own: dict[bytes, tuple[int, int]],
    seen: tuple[int, int],
    usual: tuple[int, int],
) -> Arrival:
    """The records of the keys that see these watermarks."""
    parcel = arrival.parcel
    chosen = np.fromiter((own.get(key, usual) == seen for key in parcel.keys), np.bool_)
    taken = parcel.take(np.flatnonzero(chosen[parcel.codes]))
    taken.rows.schema = parcel.rows.schema
    return Arrival(arrival.index, arrival.stream, taken, arrival.feedback)
