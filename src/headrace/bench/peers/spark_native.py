"""Native Structured Streaming: `groupBy(key).count()`, no Python in the data path.

The strongest rival. The count is a built-in aggregate that Spark compiles to JVM
code and combines before the shuffle. It keeps the default state store provider
(HDFSBackedStateStoreProvider: a map on the heap, deltas on disk), which is faster
than RocksDB while the state fits the heap.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headrace.bench.peers.streaming import StreamingPeer


def _changes(records: DataFrame) -> DataFrame:
    return records.groupBy("key").count()


SPARK_NATIVE = StreamingPeer(name="spark-native", changes=_changes)
