"""Ordered computations: their records wait until the watermark has passed them.

Waiting records are stored in the state as WAITING cells. When the watermark has passed them, they
are merged with the new records in the order (timestamp, order of inputs, origin, arrival).
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Any

from headrace.causal.lineage import identity_part, origin_part
from headrace.model.record import Record
from headrace.model.values.codec import decode_value, encode_value
from headrace.model.values.keys import decode_key
from headrace.model.values.time import END, oldest_on_time
from headrace.worker.records.arrivals import Grouped
from headrace.worker.slot_run import SlotRun
from headrace.worker.timers import WAITING

OrderedByKey = dict[bytes, tuple[list[Record[Any]], list[bytes]]]
"""Key -> its records in time order, and their identities."""

# Unique among a key's waiting records. The value, not this number, decides their order.
_WAITING_ENTRY = struct.Struct(">qqHI")
_order = itemgetter(0)


def take_passed(run: SlotRun, groups: list[Grouped]) -> OrderedByKey:
    """The records that the watermark has passed. The others are stored, or stay stored."""
    ready: dict[bytes, list[tuple[tuple[Any, ...], Record[Any], bytes]]] = {}
    topology = run.emitter.runtime.topology
    with_identity = topology.needs_identity
    passed = run.now if run.now == END else run.now - 1
    due = run.slot.indexes[WAITING].due(passed)
    live = {cell for _, cell in due}
    if run.held_now:
        live = {cell for time, cell in due if _is_passed(time, run.now_of(cell[0]))}
    for cell, data in run.slot.view.waiting(due[0][0], passed) if live else ():
        if cell not in live:
            continue
        live.discard(cell)
        timestamp, index, origin, epoch, position, late, value = decode_value(data)
        schema = topology.graph.schemas.get(cell[1])
        value = value if schema is None else schema.of(value)
        record: Record[Any] = Record(value, timestamp, decode_key(cell[0]), cell[1], late)
        if cell[1] in with_identity:
            origin, identity = origin_part(origin), identity_part(origin)
        else:
            identity = b""
        order = (timestamp, index, origin, epoch, position)
        ready.setdefault(cell[0], []).append((order, record, identity))
        run.timers.set(WAITING, cell, None)
    for group in groups:
        index, stream = group.arrival.index, group.arrival.stream
        arrived = group.arrival.arrived
        epoch = run.order.plan.epoch if arrived is None else arrived.epoch
        before = 0 if group.arrival.feedback else oldest_on_time(run.before)
        for key, (start, end) in group.spans.items():
            shown, now = decode_key(key), run.now_of(key)
            values: list[Any] | None = None
            raw: list[Any] | None = None
            places = group.places(key)
            for position, timestamp in zip(range(start, end), group.times(key), strict=True):
                carried = group.origins[position] if group.origins else b""
                place, late = position, timestamp < before
                if places is not None:
                    place, late = places[position - start]
                if timestamp < now or now == END:
                    traced = stream in with_identity
                    origin = origin_part(carried) if traced else carried
                    order = (timestamp, index, origin, epoch, place)
                    if values is None:
                        values = group.values(key, shown)
                    record = Record(values[position - start], timestamp, shown, stream, late)
                    ready.setdefault(key, []).append((order, record, identity_part(carried)))
                    continue
                if raw is None:
                    raw = group.raw(key, shown)
                cell = (key, stream, _WAITING_ENTRY.pack(timestamp, epoch, index, place))
                run.timers.set(WAITING, cell, (timestamp, timestamp))
                run.waiting_values[cell] = encode_value(
                    (
                        timestamp,
                        index,
                        carried,
                        epoch,
                        place,
                        late,
                        raw[position - start],
                    )
                )
    # Sort by key, because compaction changes the order of waiting records in segments.
    found: OrderedByKey = {}
    for key in sorted(ready):
        rows = sorted(ready[key], key=_order)
        found[key] = [record for _, record, _ in rows], [identity for _, _, identity in rows]
    return found


def _is_passed(timestamp: int, watermark: int) -> bool:
    """Whether a watermark has passed a record."""
    return timestamp < watermark or watermark == END
