"""The limit of a slot: it processes the first records of its input, and carries the rest (P2, P3).

The plan sets the limit, so that every attempt cuts at the same record. The order is that of B6,
with carried records first, so the records of a key keep their order.

A key that has carried records sees a watermark of its own, which keeps its timers from firing
before an older record that waits. In record hooks this is min(in(e), its oldest record that is not
late). In table hooks one call serves many keys, so their watermarks must be few: it is in(a-1),
where `a` is the epoch in which its first carried record arrived. Both only rise.

Without a limit and without carried records, nothing here is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.model.values.time import BEGINNING, END, oldest_on_time
from headrace.worker.overload.carried import carry_over
from headrace.worker.overload.shed import without_shed
from headrace.worker.slot_run import Arrival, ArrivedAt, SlotRun


def within_limit(run: SlotRun, waiting: list[Arrival], fresh: list[Arrival]) -> list[Arrival]:
    """The records that the slot processes in this epoch; it carries over, or drops, the others."""
    plan = run.order.plan
    limit = plan.limits.get(run.emitter.label)
    if limit is None:
        if waiting:
            run.held_before = watermarks(run, waiting, run.before)
        return [*waiting, *fresh]
    arrivals = [*waiting, *(stamped(run, arrival) for arrival in fresh)]
    run.held_before = watermarks(run, waiting, run.before)
    if run.node.name in plan.shed:
        return without_shed(run, arrivals, limit)
    taken, rest = cut(arrivals, limit)
    if rest:
        run.held_now = watermarks(run, rest, run.now)
        run.carried_hold = output_hold(run, rest)
        carry_over(run, rest)
    return taken


def stamped(run: SlotRun, arrival: Arrival) -> Arrival:
    """Records that have just arrived, with their places and the verdict late or not."""
    times = arrival.parcel.rows.timestamps
    late = np.zeros(len(times), np.bool_)
    if not arrival.feedback and not run.node.combines:
        late = times < oldest_on_time(run.before)
    places = np.arange(len(times), dtype=np.int64)
    arrived = ArrivedAt(run.order.plan.epoch, run.before, places, late)
    return Arrival(arrival.index, arrival.stream, arrival.parcel, arrival.feedback, arrived)


def cut(arrivals: list[Arrival], limit: int) -> tuple[list[Arrival], list[Arrival]]:
    """The first `limit` records, and the rest."""
    taken: list[Arrival] = []
    rest: list[Arrival] = []
    for arrival in arrivals:
        count = len(arrival.parcel.rows)
        if not count:
            continue
        first = min(limit, count)
        limit -= first
        if first:
            taken.append(_part(arrival, 0, first))
        if first < count:
            rest.append(_part(arrival, first, count))
    return taken, rest


def _part(arrival: Arrival, start: int, end: int) -> Arrival:
    if end - start == len(arrival.parcel.rows):
        return arrival
    known = arrival.arrived
    arrived = None
    if known is not None:
        places, late = known.places[start:end], known.late[start:end]
        arrived = ArrivedAt(known.epoch, known.before, places, late)
    parcel = arrival.parcel.part(start, end)
    return Arrival(arrival.index, arrival.stream, parcel, arrival.feedback, arrived)


def watermarks(run: SlotRun, waiting: list[Arrival], watermark: int) -> dict[bytes, int]:
    """Key -> the watermark that it sees, if records that wait keep it below `watermark`."""
    held: dict[bytes, int] = {}
    for arrival in waiting:
        keys = arrival.parcel.keys
        oldest = np.full(len(keys), END)
        np.minimum.at(oldest, arrival.parcel.codes, _times(run, arrival))
        for key, time in zip(keys, oldest.tolist(), strict=True):
            if time < held.get(key, watermark):
                held[key] = time
    return held


def output_hold(run: SlotRun, rest: list[Arrival]) -> int:
    """The time at which the records that wait hold the output watermark.

    An operator that produces behind its input watermark (a window with grace) does so for records
    that waited as well.
    """
    oldest = min(int(_times(run, arrival).min()) for arrival in rest)
    return oldest if oldest == END else max(oldest - run.node.template.lag_us, BEGINNING)


def _times(run: SlotRun, arrival: Arrival) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each record that waits, the time that the watermark of its key does not pass.

    After the end of the input, when no record is late, records hold nothing back: the watermark
    has passed them before they came.
    """
    arrived = arrival.arrived
    if arrived is None:
        raise AssertionError("a record that waits has no place of arrival")
    times = arrival.parcel.rows.timestamps
    if run.node.shape.takes_table:
        return np.full(len(times), arrived.before)
    return np.where(arrived.late, END, np.maximum(times, arrived.before))
