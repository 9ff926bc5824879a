"""Native Structured Streaming: `groupBy(key).count()` (or a sum), no Python in the data path.

The strongest peer. The count is a built-in aggregate that Spark compiles to JVM
code and combines before the shuffle. It keeps the default state store provider
(HDFSBackedStateStoreProvider: a map on the heap, deltas on disk), which is faster
than RocksDB while the state fits the heap.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.bench.peers.streaming import StreamingPeer
from headrace.bench.workload import CountWorkload


def _changes(records: DataFrame, workload: CountWorkload) -> DataFrame:
    by_key = records.groupBy("key")
    return by_key.agg(F.sum("value").alias("count")) if workload.adds_values else by_key.count()


SPARK_NATIVE = StreamingPeer(name="spark-native", changes=_changes)
