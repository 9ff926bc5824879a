"""Load shedding: a limited slot drops the records beyond its limit, instead of carrying them.

What is dropped depends on the plan and the records alone, so every attempt drops the same: the
records of the lowest priority first, if there is a priority function, and among equals the oldest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.errors import UserCodeError
from headrace.model.values.shown import shown
from headrace.operators.windows.partials import records_in
from headrace.pipeline.graph.graph import Shed
from headrace.worker.slot_run import Arrival, ArrivedAt, SlotRun
from headrace.worker.watching.tracebacks import describe


def without_shed(run: SlotRun, arrivals: list[Arrival], limit: int) -> list[Arrival]:
    """The records that are kept, in their order; the dropped ones are counted by stream."""
    total = sum(len(arrival.parcel.rows) for arrival in arrivals)
    if total <= limit:
        return arrivals
    times = np.concatenate([arrival.parcel.rows.timestamps for arrival in arrivals])
    ranks = np.concatenate([_priorities(run, arrival) for arrival in arrivals])
    order = np.lexsort((np.arange(total), times, ranks))
    keeps = np.zeros(total, np.bool_)
    keeps[order[total - limit :]] = True
    kept, first = [], 0
    shed = run.emitter.counters.shed_of
    for arrival in arrivals:
        mask = keeps[first : first + len(arrival.parcel.rows)]
        first += len(mask)
        dropped = arrival.parcel.rows.take(np.flatnonzero(~mask))
        if len(dropped):
            # A combined row stands for several records.
            count = records_in(dropped) if run.node.shape.combines_rows else len(dropped)
            shed[arrival.stream] = shed.get(arrival.stream, 0) + count
        if mask.any():
            kept.append(_taken(arrival, np.flatnonzero(mask)))
    return kept


def _taken(arrival: Arrival, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Arrival:
    known = arrival.arrived
    arrived = None
    if known is not None:
        arrived = ArrivedAt(known.epoch, known.before, known.places[rows], known.late[rows])
    parcel = arrival.parcel.take(rows)
    return Arrival(arrival.index, arrival.stream, parcel, arrival.feedback, arrived)


def _priorities(run: SlotRun, arrival: Arrival) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The priority of each record; all are equal without a function."""
    policy, rows = run.node.overload, arrival.parcel.rows
    found = np.zeros(len(rows), np.float64)
    if not isinstance(policy, Shed) or policy.priority is None:
        return found
    for i, value in enumerate(rows.values()):
        try:
            found[i] = policy.priority(value)
        except Exception as error:
            what = f"shed(priority=) of record {shown(value, 200)} of {arrival.stream!r}"
            raise UserCodeError(describe(run.node, None, what, error)) from error
    return np.nan_to_num(found, nan=-np.inf)
