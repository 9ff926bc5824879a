"""Late records. A record is late by the input watermark that the previous epoch committed (D2).

The computation's `late=` policy decides whether late records are processed, dropped, or sent to
another stream. Feedback is never late (D6). After the end of the input no record is late.
"""

from __future__ import annotations

import numpy as np

from headrace.model.values.rows import Rows
from headrace.model.values.time import END, oldest_on_time
from headrace.pipeline.graph.graph import Node, To
from headrace.plan.parcel import Parcel
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.slot_run import Arrival, SlotRun


def keep_on_time(emitter: Emitter, node: Node, rows: Rows, before: int) -> Rows:
    """Applies the late policy; returns the rows to process."""
    if before == END:
        return rows  # a loop may produce after the end, when no record is late (D2)
    late = rows.timestamps < before
    count = int(late.sum())
    if not count:
        return rows
    _count(emitter, node, count)
    if node.late == "process":
        return rows
    if isinstance(node.late, To):
        emitter.emit(node.late.stream, rows.take(np.flatnonzero(late)))
    return rows.take(np.flatnonzero(~late))


def keep_arrival_on_time(run: SlotRun, arrival: Arrival) -> Arrival:
    """Applies the late policy to the rows, with keys, that arrived at a slot."""
    if arrival.feedback or run.node.combines or run.before == END:
        return arrival
    parcel = arrival.parcel
    late = parcel.rows.timestamps < run.before
    if not late.any():
        return arrival
    rows = keep_on_time(run.emitter, run.node, parcel.rows, run.before)
    if run.node.late != "process":
        kept = np.flatnonzero(~late)
        parcel = Parcel(parcel.keys, parcel.codes[kept], rows)
    return Arrival(arrival.index, arrival.stream, parcel)


def keep_combined_on_time(emitter: Emitter, node: Node, parcel: Parcel) -> Parcel:
    """Applies the late policy before rows are combined, as a combined row has no single time.

    Late rows that are not dropped are combined with the others.
    """
    late = parcel.rows.timestamps < oldest_on_time(emitter.order.ins.get(node.name, 0))
    _count(emitter, node, int(late.sum()))
    if node.late != "drop" or not late.any():
        return parcel
    kept = np.flatnonzero(~late)
    return Parcel(parcel.keys, parcel.codes[kept], parcel.rows.take(kept), parcel.key_column)


def _count(emitter: Emitter, node: Node, late: int) -> None:
    if late and node.template.counts_late:
        counters = emitter.counters
        counters.late += late
        counters.late_of[node.name] = counters.late_of.get(node.name, 0) + late
