"""The queries in PyFlink; run by PyFlink's own interpreter: `python pyflink_program.py TASK.json`.

The DataStream interface with user code in Python, as in Headrace: keyed process functions with
value state, and Flink's own tumbling windows with a Python aggregate. The set-up is Flink's
cheapest: a local cluster in one process, state on the heap, no checkpoints, large bundles between
the JVM and its Python workers. The package has no reader for Parquet, so the input is the same
records as CSV, written before any time runs, and parsed in the JVM.

The task is a JSON object: `query`, `adds_values`, `files`, `window_us`, `parallelism`, `mode`
(`process` or `thread`), `warm_records` and `directory`, where each Python worker writes a file when
its input has ended: `rows` (`[key, number]`, the last of every key), `seen` records, `warm` records
that came before `began`, and `ended`, in seconds of one clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterable
from typing import Any

BUNDLE_RECORDS = 100_000
GAP_US = 10_000_000
END_OF_TIME = 2**62

# What Python gets of Nexmark's events, chosen in the JVM: a key, a text or null, and a number.
CHOSEN = {
    "q3": """SELECT CAST(CASE WHEN kind = 'person' THEN id ELSE seller END AS STRING),
        CASE WHEN kind = 'person' THEN name || '|' || city || '|' || state END, id FROM records
        WHERE (kind = 'person' AND UPPER(state) IN ('OR', 'ID', 'CA'))
        OR (kind = 'auction' AND category = 10)""",
    "q8": """SELECT CAST(CASE WHEN kind = 'person' THEN id ELSE seller END AS STRING),
        CASE WHEN kind = 'person' THEN CAST(id AS STRING) || '|' || name END,
        date_time - MOD(date_time, 10000000) FROM records WHERE kind <> 'bid'""",
    "q11": """SELECT CAST(bidder AS STRING), CAST(NULL AS STRING), date_time FROM records
        WHERE kind = 'bid'""",
}


def main(task_file: str) -> None:
    """Runs the query over all files."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    with open(task_file, encoding="utf-8") as file:
        task = json.load(file)
    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.client.executable", sys.executable)
    settings.set_string("python.execution-mode", task["mode"])
    settings.set_string("python.fn-execution.bundle.size", str(BUNDLE_RECORDS))
    settings.set_string("rest.bind-address", "127.0.0.1")
    settings.set_string("rest.port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(task["parallelism"])
    if task["query"] in CHOSEN:
        answered(task, read(env, task["files"], task["columns"], CHOSEN[task["query"]]))
        env.execute("bench")
        return
    columns = "`key` STRING, ts BIGINT, `value` BIGINT"
    records = read(env, task["files"], columns, "SELECT * FROM records")
    if task["query"] == "windowed-count":
        windowed(task, records)
    else:
        counted(task, records)
    env.execute("bench")


def read(env: Any, directory: str, columns: str, chosen: str) -> Any:
    """What is chosen of the records of all files of a directory, as rows that Python can read."""
    from pyflink.table import StreamTableEnvironment

    tables = StreamTableEnvironment.create(env)
    tables.execute_sql(
        f"""CREATE TABLE records ({columns})
        WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'csv',
        'csv.null-literal' = '')"""
    )
    return tables.to_data_stream(tables.sql_query(chosen))


def counted(task: dict[str, Any], records: Any) -> None:
    """Counts records, or adds up their values, with a call per record."""
    from pyflink.common import Types
    from pyflink.datastream import KeyedProcessFunction, RuntimeContext
    from pyflink.datastream.state import ValueStateDescriptor

    adds_values = task["adds_values"]

    class Count(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
            self._notes = WorkerNotes(task)

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            count = (self._count.value() or 0) + (value[2] if adds_values else 1)
            self._count.update(count)
            self._notes.row(value[0], count)
            self._notes.took(1)
            yield value[0], count

        def close(self) -> None:
            self._notes.write()

    changes = records.key_by(lambda record: record[0], key_type=Types.STRING()).process(
        Count(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    discard(changes)


def answered(task: dict[str, Any], records: Any) -> None:
    """A join, or sessions, as a keyed process function; rows are named by a text.

    Rows leave as soon as they are known: a session when the next one begins, or at the end.
    """
    from pyflink.common import Types
    from pyflink.datastream import KeyedProcessFunction, RuntimeContext
    from pyflink.datastream.state import ValueStateDescriptor

    query = task["query"]

    class Answer(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            described = ValueStateDescriptor("state", Types.PICKLED_BYTE_ARRAY())
            self._state = runtime_context.get_state(described)
            self._notes = WorkerNotes(task)

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            stored = self._state.value()
            if query == "q11" and stored is None:
                ctx.timer_service().register_event_time_timer(END_OF_TIME)
            state, rows = STEPS[query](stored, value[0], value[1], value[2])
            self._state.update(state)
            self._notes.took(1)
            for name, number in rows:
                self._notes.row(name, number)
                yield name, number

        def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
            name, number = session_row(ctx.get_current_key(), *self._state.value())
            self._notes.row(name, number)
            yield name, number

        def close(self) -> None:
            self._notes.write()

    rows = records.key_by(lambda record: record[0], key_type=Types.STRING()).process(
        Answer(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    discard(rows)


def join_step(state: Any, key: str, text: str | None, number: int) -> tuple[Any, list[Any]]:
    """q3: auctions with their seller; both are kept for ever."""
    seller, offers = state or (None, [])
    if text is not None:
        seller = text
    else:
        offers = [*offers, number]
    if seller is None:
        return (None, offers), []
    return (seller, []), [(f"{seller}|{offer}", 1) for offer in offers]


def window_step(state: Any, key: str, text: str | None, window: int) -> tuple[Any, list[Any]]:
    """q8: a row as soon as a person has registered and sold in one window."""
    windows = state or {}
    name, sold = windows.get(window, (None, False))
    was = name is not None and sold
    name, sold = text or name, sold or text is None
    windows = {**windows, window: (name, sold)}
    new = name is not None and sold and not was
    return windows, [(f"{name}|{window}", 1)] if new else []


def session_step(state: Any, key: str, text: str | None, at: int) -> tuple[Any, list[Any]]:
    """q11: a row when the next session begins."""
    if state is None:
        return (at, at, 1), []
    start, last, count = state
    if at - last > GAP_US:
        return (at, at, 1), [session_row(key, *state)]
    return (start, at, count + 1), []


def session_row(bidder: str, start: int, last: int, count: int) -> tuple[str, int]:
    """A session that has ended."""
    return f"{bidder}|{start}|{last + GAP_US}", count


STEPS = {"q3": join_step, "q8": window_step, "q11": session_step}


def windowed(task: dict[str, Any], records: Any) -> None:
    """Counts in Flink's tumbling windows; a row when a window closes."""
    from pyflink.common import Time, Types, WatermarkStrategy
    from pyflink.common.watermark_strategy import TimestampAssigner
    from pyflink.datastream import AggregateFunction, ProcessWindowFunction
    from pyflink.datastream.window import TumblingEventTimeWindows

    class ByColumn(TimestampAssigner):
        """Flink's time is in milliseconds; a record of this input comes every microsecond."""

        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return value[1]

    # Flink unpickles both functions of a window together, and those of one process share this. So
    # records count when they are added up, and not when their window closes.
    opened: list[WorkerNotes] = []

    class Count(AggregateFunction):
        def create_accumulator(self) -> int:
            return 0

        def add(self, value: Any, accumulator: int) -> int:
            opened[0].took(1)
            return accumulator + 1

        def get_result(self, accumulator: int) -> int:
            return accumulator

        def merge(self, left: int, right: int) -> int:
            return left + right

    class Named(ProcessWindowFunction):
        def open(self, runtime_context: Any) -> None:
            self._notes = WorkerNotes(task)
            opened.append(self._notes)

        def process(self, key: str, context: Any, elements: Iterable[int]) -> Iterable[Any]:
            for count in elements:
                name = f"{key}@{context.window().start}"
                self._notes.row(name, count)
                opened[0].closed()
                yield name, count

        def close(self) -> None:
            self._notes.write()

    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByColumn())
    # Microseconds stand where Flink has milliseconds: windows are compared by their numbers.
    windows = TumblingEventTimeWindows.of(Time.milliseconds(task["window_us"]))
    rows = (
        records.assign_timestamps_and_watermarks(by_time)
        .key_by(lambda record: record[0], key_type=Types.STRING())
        .window(windows)
        .aggregate(
            Count(),
            Named(),
            accumulator_type=Types.LONG(),
            output_type=Types.TUPLE([Types.STRING(), Types.LONG()]),
        )
    )
    discard(rows)


def discard(stream: Any) -> None:
    """A sink that does nothing, in the JVM."""
    from pyflink.datastream.connectors.base import Sink
    from pyflink.java_gateway import get_gateway

    made = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    stream.sink_to(Sink(made))


class WorkerNotes:
    """What one Python worker has seen: the last number of every key, and when."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._directory: str = task["directory"]
        self._warm: int = task["warm_records"] // task["parallelism"]
        self._rows: dict[str, int] = {}
        self._seen = 0
        self._began = self._ended = 0.0

    def row(self, key: str, number: int) -> None:
        """A new number of a key."""
        self._rows[key] = number

    def took(self, records: int) -> None:
        """So many more records are done."""
        before = self._seen
        self._seen = before + records
        self._ended = time.perf_counter()
        if before < self._warm <= self._seen or not self._began:
            self._began = self._ended

    def closed(self) -> None:
        """A window has closed, which is work, too."""
        self._ended = time.perf_counter()

    def write(self) -> None:
        """Writes a file of its own, whole or not at all."""
        path = os.path.join(self._directory, f"{uuid.uuid4().hex}.json")
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(
                {
                    "rows": list(self._rows.items()),
                    "seen": self._seen,
                    "warm": min(self._warm, self._seen),
                    "began": self._began,
                    "ended": self._ended,
                },
                file,
            )
        os.rename(f"{path}.part", path)


if __name__ == "__main__":
    main(sys.argv[1])
