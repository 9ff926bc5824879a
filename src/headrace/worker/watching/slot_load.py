"""The load of a slot in one epoch, as its input decides it: figures and a sketch (K1).

It is made only where the plan asks for it. Every correct attempt makes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.plan.elastic.load import SlotLoad
from headrace.plan.elastic.sketch import sketch_of
from headrace.plan.epoch import SlotDelta
from headrace.worker.slot_run import Arrival


def slot_load(arrivals: Sequence[Arrival], bytes_in: int, delta: SlotDelta) -> SlotLoad:
    """The load of a slot that got these records, and changed this much of its state."""
    parcels = [arrival.parcel for arrival in arrivals if len(arrival.parcel.rows)]
    hashes = [parcel.hashes() for parcel in parcels]
    counts = [np.bincount(parcel.codes, minlength=len(parcel.keys)) for parcel in parcels]
    every = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
    records = np.concatenate(counts).astype(np.int64) if counts else np.empty(0, np.int64)
    used = records > 0
    return SlotLoad(
        records=int(records.sum()),
        bytes_in=bytes_in,
        rows=delta.rows,
        bytes=delta.bytes,
        keys=len(np.unique(every[used])),
        sketch=sketch_of(every[used], records[used]),
    )
