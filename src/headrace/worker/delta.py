"""The delta of a slot: all changes of one epoch, as one segment.

Invariant: a delta has no effect until a commit names its segment.
"""

from __future__ import annotations

from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.values.keys import hash_key
from headrace.plan.epoch import SlotDelta
from headrace.state import segment as kinds
from headrace.state.segment import encode_segment
from headrace.worker.cells import timed_cell
from headrace.worker.slot_run import SlotRun
from headrace.worker.timers import EVENT, HOLD, WAITING, WALL

_KINDS = {EVENT: kinds.TIMER, WALL: kinds.TIMER, HOLD: kinds.HOLD, WAITING: kinds.WAITING}


def write_delta(run: SlotRun) -> tuple[SlotDelta, int | None]:
    """Writes the changes; returns the delta and the earliest hold on the watermark."""
    changes = run.timers.by_index()
    version = run.live.shape.options.version
    values = run.waiting_values
    for name, changed in changes.items():
        kind = _KINDS[name]
        run.cells.extend(
            timed_cell(hash_key(cell[0]), kind, cell, values.get(cell, b""), timed, version)
            for cell, timed in changed.items()
        )
    indexes = run.slot.indexes
    holds = [indexes[n].earliest_hold(changes[n]) for n in (EVENT, HOLD, WAITING, WALL)]
    oldest = min((hold for hold in holds if hold is not None), default=None)
    next_event = indexes[EVENT].earliest_time(changes[EVENT])
    next_wall = indexes[WALL].earliest_time(changes[WALL])
    segment, size, rides = _write_segment(run) if run.cells else (None, 0, False)
    run.slot.leave(segment, changes, run.objects)
    written = run.emitter.written
    return SlotDelta(segment, len(run.cells), size, next_event, next_wall, rides, written), oldest


def _write_segment(run: SlotRun) -> tuple[str, int, bool]:
    emitter = run.emitter
    data = encode_segment(run.cells, f"slot {emitter.label}")
    epoch = run.order.plan.epoch
    name = paths.content_name(epoch, emitter.label, digest_of(data), ".arrow")
    segment = f"{paths.state_directory(run.node.name)}/{name}"
    rides = emitter.keep(segment, data, delta=True)
    if rides:  # the next task of the slot, here or nearby, need not read the log for it
        emitter.runtime.cache.keep(emitter.runtime.store, segment, data)
        emitter.runtime.store.keep_near(segment, data)
    emitter.made(segment)
    return segment, len(data), rides
