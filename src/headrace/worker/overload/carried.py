"""Carried records: input that a limited slot leaves to the next epoch, in files of the outbox.

A file holds what one slot carried of one input: the records with their keys, and for each of them
the epoch and place of its arrival, and whether it was late then. That verdict is given once (P2).
Whoever owns a key in the next epoch reads its records: rings may have moved since, so a reader
takes the rows whose hashes it owns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headrace.log import paths
from headrace.log.content import digest_of, map_named, verify
from headrace.log.rings import ring_of
from headrace.model.values.arrow import ipc_batch, ipc_bytes
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node
from headrace.plan.epoch import CARRIED, OutboxFile, WorkOrder
from headrace.plan.parcel import Parcel
from headrace.plan.watermarks import Histogram
from headrace.worker.exchange.outbox import files_for
from headrace.worker.runtime import Runtime
from headrace.worker.slot_run import Arrival, ArrivedAt, SlotRun

_SCHEMA = pa.schema(
    [
        ("blobs", pa.list_(pa.binary())),
        ("epoch", pa.int64()),
        ("before", pa.int64()),
        ("places", pa.binary()),
        ("late", pa.binary()),
    ]
)
_PLACE, _LATE = np.dtype("<i8"), np.dtype("?")

Pieces = list[tuple[Parcel, ArrivedAt]]


def waiting_of(runtime: Runtime, order: WorkOrder, node: Node, slot: int) -> list[Arrival]:
    """The carried records of a slot: by epoch of arrival, then in the order of B6."""
    files = [file for file in files_for(order, node.name, slot) if file.kind == CARRIED]
    if not files:
        return []
    graph = runtime.topology.graph
    streams = [given.stream for given in node.inputs]
    found: dict[tuple[int, int], Pieces] = {}
    for file in files:
        for parcel, arrived in _read(runtime, order, node, slot, file):
            place = (arrived.epoch, streams.index(file.stream))
            found.setdefault(place, []).append((parcel, arrived))
    arrivals = []
    for epoch, index in sorted(found):
        stream = streams[index]
        parcel, arrived = _joined(found[epoch, index])
        parcel.rows.schema = graph.schemas.get(stream)
        arrivals.append(Arrival(index, stream, parcel, stream in graph.feedback, arrived))
    return arrivals


def _read(
    runtime: Runtime, order: WorkOrder, node: Node, slot: int, file: OutboxFile
) -> Iterable[tuple[Parcel, ArrivedAt]]:
    """What one file holds for this slot, by epoch of arrival."""
    ring = ring_of(runtime.store, order, node.name)
    name = f"{paths.OUTBOX}/{file.name}"
    data = map_named(runtime.store, name, file.at)
    verify(name, data)
    for row in ipc_batch(data).to_pylist():
        parcel = Parcel.merge([Parcel.read(blob) for blob in row["blobs"]])
        places = np.frombuffer(row["places"], _PLACE)
        late = np.frombuffer(row["late"], _LATE)
        mine = np.flatnonzero((ring.place(parcel.hashes()) == slot)[parcel.codes])
        if len(mine):
            arrived = ArrivedAt(row["epoch"], row["before"], places[mine], late[mine])
            yield (parcel if len(mine) == len(places) else parcel.take(mine)), arrived


def _joined(pieces: Pieces) -> tuple[Parcel, ArrivedAt]:
    """Records of one epoch and input that several slots carried, by their places."""
    if len(pieces) == 1:
        return pieces[0]
    parcel = Parcel.merge([parcel for parcel, _ in pieces])
    places = np.concatenate([arrived.places for _, arrived in pieces])
    late = np.concatenate([arrived.late for _, arrived in pieces])
    order = np.argsort(places, kind="stable")
    first = pieces[0][1]
    return parcel.take(order), ArrivedAt(first.epoch, first.before, places[order], late[order])


def carry_over(run: SlotRun, rest: list[Arrival]) -> None:
    """Writes the records that the slot does not process in this epoch."""
    for index, given in enumerate(run.node.inputs):
        mine = [arrival for arrival in rest if arrival.index == index]
        if mine:
            _write(run, given.stream, index, mine)


def _write(run: SlotRun, stream: str, index: int, rest: list[Arrival]) -> None:
    emitter = run.emitter
    rows, since = [], END
    for arrival in rest:
        parcel, arrived = arrival.parcel, arrival.arrived
        if arrived is None:
            raise AssertionError("records of a limited slot have no place of arrival")
        since = min(since, arrived.epoch)
        rows.append(
            {
                "blobs": list(parcel.part(0, len(parcel.rows)).blobs()),
                "epoch": arrived.epoch,
                "before": arrived.before,
                "places": arrived.places.astype(_PLACE).tobytes(),
                "late": arrived.late.astype(_LATE).tobytes(),
            }
        )
    data = ipc_bytes(pa.RecordBatch.from_pylist(rows, _SCHEMA))
    name = paths.content_name(
        run.order.plan.epoch, f"{emitter.label}>carried>{index}", digest_of(data), ".arrow"
    )
    rides = emitter.keep(f"{paths.OUTBOX}/{name}", data)
    emitter.made(name)
    times = np.concatenate([arrival.parcel.rows.timestamps for arrival in rest])
    emitter.outbox.append(
        OutboxFile(
            name,
            run.node.name,
            stream,
            emitter.label,
            int(times.min()),
            len(times),
            rides,
            kind=CARRIED,
            since=since,
            slots=(run.number,),
            histogram=None if run.node.percentile is None else Histogram.of(times),
        )
    )
