"""Files of the outbox: records for one consumer that the next epoch reads (J9).

A file is sorted by hash and lists the slots that it has rows for, under the ring that it was
written with. In the next epoch it is given to these slots, and to every slot that has a class from
one of them since; whoever reads it takes the rows that it owns. Records of one key keep their
order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.log import paths
from headrace.log.content import map_named, verify
from headrace.log.rings import ring_of
from headrace.model.values.arrow import ipc_batch, ipc_bytes
from headrace.plan.epoch import OutboxFile, WorkOrder
from headrace.plan.parcel import Parcel
from headrace.plan.rings.ring import Ring
from headrace.store.store import Store


def encode_outbox(parcel: Parcel, ring: Ring) -> tuple[bytes, tuple[int, ...]]:
    """The file of some records, and the slots that it has rows for."""
    hashes = parcel.hashes()
    of_rows = hashes[parcel.codes]
    order = np.argsort(of_rows, kind="stable")
    ordered = Parcel(parcel.keys, parcel.codes[order], parcel.rows.take(order), parcel.key_column)
    blobs = pa.array(list(ordered.blobs()), pa.binary())
    slots = np.unique(ring.place(hashes[np.unique(parcel.codes)]))
    data = ipc_bytes(pa.RecordBatch.from_arrays([blobs], ["blob"]))
    return data, tuple(slots.tolist())


def files_for(order: WorkOrder, consumer: str, slot: int) -> Iterator[OutboxFile]:
    """The files that may have rows for a slot, in the order of labels."""
    came = {each.slot for each in order.base(consumer, slot).came}
    for file in sorted(order.outbox.get(consumer, ()), key=lambda f: f.label):
        if slot in file.slots or not came.isdisjoint(file.slots):
            yield file


def read_outbox(store: Store, order: WorkOrder, file: OutboxFile, slot: int) -> list[Parcel]:
    """The records of a file that a slot owns."""
    name = f"{paths.OUTBOX}/{file.name}"
    data = map_named(store, name, file.at)
    verify(name, data)
    ring = ring_of(store, order, file.consumer)
    found: list[Parcel] = []
    for blob in ipc_batch(data).column(0).to_pylist():
        parcel = Parcel.read(blob)
        mine = np.flatnonzero((ring.place(parcel.hashes()) == slot)[parcel.codes])
        if len(mine):
            rows = parcel.rows.take(mine)
            found.append(Parcel(parcel.keys, parcel.codes[mine], rows))
    return found
