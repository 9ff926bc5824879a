"""What tasks do with the deltas that their executor holds: merge them, or say which are missing."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from headrace.engine.spark.python_worker import acknowledge_at_once, spare_collection
from headrace.engine.spark.segment_copies import store_on_executor
from headrace.engine.spark.tasks import drain, partition
from headrace.engine.upkeep import held
from headrace.plan.progress import StoreUse
from headrace.store.store import Store

SCHEMA = (
    StructType().add("told", BinaryType()).add("process", StringType()).add("use", BinaryType())
)
"""What a task says; and once, by the name of its process, what that has asked of the store."""
MAKE, LOOK = "make", "look"

_stores: dict[tuple[str, int], tuple[Store, str]] = {}
"""Stores that this process has opened, and a name for both together."""


class HeldFunction:
    """One task of such a job: the partition number is the number of the task."""

    def __init__(self, location: str, near_bytes: int, what: str, work: dict[int, bytes]) -> None:
        """`work`: task -> its part, pickled: numbered fragment jobs, or names of segments."""
        self.location, self.near_bytes, self.what, self.work = location, near_bytes, what, work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        acknowledge_at_once()
        mine = self.work.get(partition())
        if mine is not None:
            store, process = self._store()
            for each in pickle.loads(mine):
                said = held.make(store, *each) if self.what == MAKE else held.missing(store, [each])
                yield _told(pickle.dumps(said))
            use = msgspec.msgpack.encode(StoreUse(store.requests()))
            yield _told(b"", process, use)
        drain(batches)
        spare_collection()

    def _store(self) -> tuple[Store, str]:
        key = (self.location, self.near_bytes)
        if key not in _stores:
            store = store_on_executor(self.location, self.near_bytes, holds=True)
            _stores[key] = store, secrets.token_hex(8)
        return _stores[key]


def _told(data: bytes, process: str = "", use: bytes = b"") -> pa.RecordBatch:
    columns = [pa.array([data], pa.binary()), pa.array([process]), pa.array([use], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["told", "process", "use"])
