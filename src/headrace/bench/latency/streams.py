"""The queries in Structured Streaming, as each of its peers expresses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from headrace.bench.latency.queries import BY_TIME, KEYED_COUNT, TOP_K
from headrace.bench.nexmark import answers as nexmark
from headrace.bench.nexmark import spark_native as native_nexmark
from headrace.bench.nexmark.spark_tws import rows_by_rows
from headrace.bench.nexmark.spark_tws_pandas import rows_by_frames
from headrace.bench.peers.spark_native import SPARK_NATIVE
from headrace.bench.peers.spark_tws import ROCKSDB_SETTINGS, SPARK_TWS
from headrace.bench.peers.spark_tws_row import SPARK_TWS_ROW
from headrace.bench.peers.spark_tws_windows import counts_as_frames, counts_as_rows
from headrace.bench.peers.spark_windows import native_rows
from headrace.bench.peers.streaming import INPUT_DDL, StreamingPeer
from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError


@dataclass(frozen=True)
class SparkForm:
    """One way to write queries for Structured Streaming."""

    counted: StreamingPeer
    windowed: Callable[[DataFrame, str, int], DataFrame]
    nexmark: Callable[[str, DataFrame], DataFrame]
    settings: Mapping[str, str]
    reads_twice: tuple[str, ...] = ()
    """The queries that read their input twice: Spark counts the records of every scan."""


FORMS: Mapping[str, SparkForm] = {
    "spark-native": SparkForm(
        SPARK_NATIVE, native_rows, native_nexmark.rows_of, {}, reads_twice=("q3", "q8")
    ),
    "spark-tws": SparkForm(SPARK_TWS, counts_as_frames, rows_by_frames, ROCKSDB_SETTINGS),
    "spark-tws-row": SparkForm(SPARK_TWS_ROW, counts_as_rows, rows_by_rows, ROCKSDB_SETTINGS),
}


def form_of(system: str, query: str) -> SparkForm:
    """How a system writes a query."""
    if system not in FORMS or (query == TOP_K and system != "spark-native"):
        raise HeadraceError(f"{system} has no form of {query}")
    return FORMS[system]


def schema_of(query: str) -> str:
    """The columns of the input."""
    return native_nexmark.EVENTS_DDL if query in nexmark.QUERIES else INPUT_DDL


def mode_of(query: str) -> str:
    """The output mode: rows that change, or rows that leave once."""
    return "update" if query == KEYED_COUNT else "append"


def rows_of(
    system: str, query: str, records: DataFrame, window_us: int, *, adds_values: bool
) -> DataFrame:
    """The rows of a query over a stream of its input."""
    form = form_of(system, query)
    if query in nexmark.QUERIES:
        return form.nexmark(query, records)
    if query in BY_TIME:
        return form.windowed(records, query, window_us).withColumnRenamed("start", "window_start")
    counted = CountWorkload(hook="record" if adds_values else "table")
    return form.counted.changes(records, counted)
