"""Keeps Spark warm for a driver that may have to take over.

A tiny job goes the way of an epoch: rows through one shuffle, Python workers at both ends, the
pipeline unpickled in them. Nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.functions import col

from headrace.engine.spark import pickled
from headrace.engine.tasks import ROW_SCHEMA, to_batches
from headrace.errors import InvalidPipeline
from headrace.pipeline.topology import Topology
from headrace.worker.envelope import REPORT, Envelope, Header

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = 4


class _WarmFunction:
    """Unpickles the pipeline, and passes a row on."""

    def __init__(self, pipeline: bytes) -> None:
        self.pipeline = pipeline

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.pipeline:
                cloudpickle.loads(self.pipeline)
            numbers: list[Any] = batch.column(0).to_pylist()
            yield from to_batches(
                Envelope(number % _TASKS, Header(0, 0, REPORT, ""), b"") for number in numbers
            )


def warm(spark: SparkSession, topology: Topology) -> None:
    """Runs that job; a pipeline that cannot travel yet stays behind."""
    try:
        function = _WarmFunction(pickled(topology))
    except InvalidPipeline:
        function = _WarmFunction(b"")
    numbers = spark.range(0, _TASKS, 1, _TASKS).mapInArrow(function, ROW_SCHEMA)
    numbers.repartitionById(_TASKS, col("partition")).mapInArrow(function, ROW_SCHEMA).collect()
