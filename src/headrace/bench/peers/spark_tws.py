"""`transformWithStateInPandas`: user code per key, records as pandas frames.

The same kind of program that Headrace runs with a vectorised hook: the processor
sees all of a key's records of the epoch at once and counts them by length. State
goes through RocksDB, which `transformWithState` requires, with changelog
checkpoints, which commit less per micro-batch than the default snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from headrace.bench.peers.streaming import ROCKSDB, StreamingPeer
from headrace.bench.workload import CountWorkload

COUNT_TYPE = StructType([StructField("count", LongType())])
ROCKSDB_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class CountFrames(StatefulProcessor):
    """Adds the length of each key's frames, or their values, to a count in value state."""

    def __init__(self, adds_values: bool) -> None:
        self._adds_values = adds_values

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the one piece of state."""
        self._count = handle.getValueState("count", COUNT_TYPE)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """Count one key's records of this micro-batch."""
        stored = self._count.get()
        count = 0 if stored is None else stored[0]
        for frame in rows:
            count += int(frame["value"].sum()) if self._adds_values else len(frame)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "count": [count]})

    def close(self) -> None:
        """Nothing to release."""


def _changes(records: DataFrame, workload: CountWorkload) -> DataFrame:
    return records.groupBy("key").transformWithStateInPandas(
        statefulProcessor=CountFrames(workload.adds_values),
        outputStructType="key string, count bigint",
        outputMode="Update",
        timeMode="None",
    )


SPARK_TWS = StreamingPeer(
    name="spark-tws", changes=_changes, state_variable="count", settings=ROCKSDB_SETTINGS
)
