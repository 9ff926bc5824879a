"""Runs record hooks in one slot: loads the keys' state, runs their hooks, collects changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.errors import UserCodeError
from headrace.model.values.keys import decode_key, hash_key
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import To
from headrace.state.backend import Stored
from headrace.state.view import CellId
from headrace.worker import key_state
from headrace.worker.key_state import KeyState
from headrace.worker.records.arrivals import Grouped, keys_of
from headrace.worker.records.key_records import KeyRecords, OrderedRecords
from headrace.worker.records.ordered import OrderedByKey, take_passed
from headrace.worker.records.outputs import outputs_of
from headrace.worker.records.parallel import KeyWork, run_keys
from headrace.worker.records.traced_context import Identities
from headrace.worker.slot_run import Arrival, SlotRun, due_events
from headrace.worker.timers import WALL

DueByKey = dict[bytes, list[tuple[int, CellId]]]


def run_records(run: SlotRun, arrivals: list[Arrival]) -> None:
    """Runs the hooks of every key that has records or due timers."""
    groups = [Grouped(arrival) for arrival in arrivals]
    due = _by_key(due_events(run))
    due_wall = _by_key(run.slot.indexes[WALL].due(run.order.plan.wall))
    ordered = take_passed(run, groups) if run.node.ordered else None
    arrived = keys_of(groups) if ordered is None else ordered
    keys = list(dict.fromkeys([*arrived, *due, *due_wall]))
    if not keys:
        return
    run.slot.expect(keys)
    found = _load(run, keys, lambda key: _first_time(run, key, groups, ordered, due))
    again = isinstance(run.node.errors, To)

    def inputs_of(key: bytes) -> tuple[KeyRecords, Identities]:
        if ordered is not None:
            records, identities = ordered.get(key, ([], []))
            return OrderedRecords(records, again=again), lambda: identities
        shown = decode_key(key)
        parts = [group.part(key, shown, run.before) for group in groups if key in group.spans]
        return KeyRecords(parts), lambda: [i for g in groups for i in g.identities(key)]

    work = (KeyWork(key, *found[key][:2], due.get(key, []), due_wall.get(key, [])) for key in keys)
    outputs = outputs_of(run)
    for key, state, last_time in run_keys(run, outputs, work, inputs_of):
        _change(run, key, state, last_time)
        run.objects.append((key, state, found[key][2]))
    outputs.emit(run.emitter)


def _first_time(
    run: SlotRun,
    key: bytes,
    groups: list[Grouped],
    ordered: OrderedByKey | None,
    due: DueByKey,
) -> int:
    """The time of a key's first hook (D11)."""
    if run.live.shape.options.clock == WALL:
        return run.order.plan.wall
    if ordered is not None:
        times = [record.timestamp for record in ordered.get(key, ([], []))[0]]
    else:
        times = [time for group in groups for time in group.times(key)]
    oldest = min(times, default=END)
    fired = min((at for at, _ in due.get(key, ()) if at <= oldest), default=None)
    before = run.before_of(key)
    first = fired if fired is not None else times[0] if times else before
    return max(first, before)


def _load(
    run: SlotRun, keys: list[bytes], first_time: Callable[[bytes], int]
) -> dict[bytes, tuple[KeyState, Stored, bool]]:
    """The state of all keys: cached objects, and one multi-get for the others."""
    found: dict[bytes, tuple[KeyState, Stored, bool]] = {}
    # After a failed hook the stored bytes are needed again, so errors=to() uses no cached objects.
    warm = not isinstance(run.node.errors, To)
    cold = []
    for key in keys:
        state, again = run.slot.objects.take(key) if warm else (None, False)
        if state is None:
            cold.append(key)
        else:
            found[key] = (state, Stored(), again)
    if cold:
        hashes = np.fromiter(map(hash_key, cold), np.uint64, len(cold))
        stored = run.state.fetch(cold, hashes, maps=run.live.shape.reads_maps)
        for key, cells in zip(cold, stored, strict=True):
            if 0 < cells.version < run.live.shape.options.version:
                cells.clock = first_time(key)
            found[key] = (key_state.load(run.live, key, cells), cells, False)
    return found


def _change(run: SlotRun, key: bytes, state: KeyState, last_time: int) -> None:
    try:
        run.cells.extend(key_state.changes(run.live, key, state, last_time))
    except (TypeError, AttributeError) as error:
        raise UserCodeError(
            f"computation {run.node.name!r}, key {decode_key(key)!r:.100}: {error}"
        ) from error


def _by_key(due: list[tuple[int, CellId]]) -> DueByKey:
    found: DueByKey = {}
    for at, cell in due:
        found.setdefault(cell[0], []).append((at, cell))
    return found
