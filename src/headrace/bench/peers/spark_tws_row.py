"""`transformWithState` with the Row interface: user code per key, records as rows.

The same kind of program that Headrace runs with `--hook record`: Python sees every
record as an object of its own, and reads its value. Set up like `spark_tws`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.bench.peers.spark_tws import COUNT_TYPE, ROCKSDB_SETTINGS
from headrace.bench.peers.streaming import StreamingPeer
from headrace.bench.workload import CountWorkload


class CountRows(StatefulProcessor):
    """Adds each row's value, or one, to a count in value state, read and written once per key."""

    def __init__(self, adds_values: bool) -> None:
        self._adds_values = adds_values

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the one piece of state."""
        self._count = handle.getValueState("count", COUNT_TYPE)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        """Count one key's records of this micro-batch."""
        stored = self._count.get()
        count = 0 if stored is None else stored[0]
        if self._adds_values:
            for row in rows:
                count += row.value
        else:
            for _ in rows:
                count += 1
        self._count.update((count,))
        yield Row(key=key[0], count=count)

    def close(self) -> None:
        """Nothing to release."""


def _changes(records: DataFrame, workload: CountWorkload) -> DataFrame:
    return records.groupBy("key").transformWithState(
        statefulProcessor=CountRows(workload.adds_values),
        outputStructType="key string, count bigint",
        outputMode="Update",
        timeMode="None",
    )


SPARK_TWS_ROW = StreamingPeer(
    name="spark-tws-row", changes=_changes, state_variable="count", settings=ROCKSDB_SETTINGS
)
