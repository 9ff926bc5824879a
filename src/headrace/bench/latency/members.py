"""One system under an open load: `python -m headrace.bench.latency.members CONFIG.json`.

The process runs the query over a directory that fills up. For each line on standard input, a number
of records, it waits until so many have been processed and their results are visible, and answers
with one line: the epochs since the last answer, as `[epoch, records, when visible]`.

All systems write Parquet, one directory per epoch, and an epoch counts as visible when its
directory is complete. For Spark that is before the micro-batch is committed, which favours it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headrace import EpochProgress, Pipeline, sinks, sources
from headrace.bench.frame.session import local_session
from headrace.bench.frame.system import OURS
from headrace.bench.latency.queries import BY_TIME, KEYED_COUNT
from headrace.bench.latency.streams import form_of, mode_of, rows_of, schema_of
from headrace.bench.nexmark import answers as nexmark
from headrace.bench.nexmark.ours import nexmark_pipeline
from headrace.bench.ours import CountTable, TellSums, windowed_pipeline
from headrace.errors import HeadraceError

ANSWER = "ANSWER "
PATIENCE_S = 600.0
# A member is stopped (SIGSTOP) while others have their turn: nothing may count that as a death.
SETTINGS = {
    "spark.network.timeout": "100000s",
    "spark.executor.heartbeatInterval": "1000s",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}


@dataclass(frozen=True)
class Config:
    """What a member is told."""

    system: str
    query: str
    window_us: int
    slots: int
    home: str
    """Where it reads (`in`) and writes (`out`, `checkpoint`)."""
    adds_values: bool = False


Answer = list[tuple[int, int, float]]
Settle = Callable[[int], Answer]


def serve(config: Config) -> None:
    """Runs the system and answers until standard input ends."""
    home = Path(config.home)
    ours = config.system == OURS
    settings = SETTINGS if ours else {**SETTINGS, **form_of(config.system, config.query).settings}
    with local_session(config.slots, home, f"latency-{config.system}", settings) as spark:
        run = _run_ours if ours else _run_streaming
        run(config, home, spark, _answer_all)


def _answer_all(settle: Settle) -> None:
    print(f"{ANSWER}[]", flush=True)  # it runs
    for line in sys.stdin:
        print(ANSWER + json.dumps(settle(int(line))), flush=True)


def _run_ours(
    config: Config, home: Path, spark: SparkSession, answer: Callable[[Settle], None]
) -> None:
    steps: list[tuple[int, int, float]] = []
    told = 0

    def on_epoch(progress: EpochProgress) -> None:
        steps.append((progress.epoch, progress.records, time.time()))

    job = pipeline_of(config, home).start(
        checkpoint=str(home / "checkpoint"), spark=spark, slots=config.slots, on_epoch=on_epoch
    )

    def settle(records: int) -> Answer:
        nonlocal told
        until = time.monotonic() + PATIENCE_S
        while sum(step[1] for step in steps) < records:
            if not job.running:
                job.wait()  # raises its error
            if time.monotonic() > until:
                raise HeadraceError(f"waited {PATIENCE_S:g} s in vain for {records:,} records")
            time.sleep(0.02)
        found = steps[told:]
        told = len(steps)
        return found

    with job:
        answer(settle)


def pipeline_of(config: Config, home: Path) -> Pipeline:
    """The query as a Headrace pipeline."""
    query, out = config.query, str(home / "out")
    source = sources.parquet(
        str(home / "in"),
        watch=True,
        timestamp="date_time" if query in nexmark.QUERIES else "ts",
        ordered_by_name=query != KEYED_COUNT,
    )
    if query in nexmark.QUERIES:
        return nexmark_pipeline(query, source, out)
    if query in BY_TIME:
        return windowed_pipeline(query, source, config.window_us, out)
    p = Pipeline(query)
    p.read("records", source)
    count = TellSums if config.adds_values else CountTable
    p.compute(count, inputs={"records": "key"}, outputs="counts", name="count")
    p.stream("counts").write(sinks.parquet(out), name="rows")
    return p


def _run_streaming(
    config: Config, home: Path, spark: SparkSession, answer: Callable[[Settle], None]
) -> None:
    visible: dict[int, float] = {}
    told = -1
    scans = 2 if config.query in form_of(config.system, config.query).reads_twice else 1

    def deliver(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(home / "out" / f"{batch:09d}"))
        visible[batch] = time.time()

    records = spark.readStream.schema(schema_of(config.query)).parquet(str(home / "in"))
    rows = rows_of(
        config.system, config.query, records, config.window_us, adds_values=config.adds_values
    )
    query = (
        rows.writeStream.outputMode(mode_of(config.query))
        .option("checkpointLocation", str(home / "checkpoint"))
        .foreachBatch(deliver)
        .start()
    )

    def settle(records: int) -> Answer:
        nonlocal told
        until = time.monotonic() + PATIENCE_S
        while True:
            query.processAllAvailable()
            batches = {e.batchId: e.numInputRows // scans for e in query.recentProgress}
            if sum(batches.values()) >= records:
                break
            if time.monotonic() > until:
                raise HeadraceError(f"waited {PATIENCE_S:g} s in vain for {records:,} records")
            time.sleep(0.05)
        found = [(b, batches[b], visible[b]) for b in sorted(visible) if b > told and b in batches]
        told = max((b for b, _, _ in found), default=told)
        return found

    try:
        answer(settle)
    finally:
        query.stop()


def main(arguments: list[str]) -> None:
    """Reads the configuration and serves."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m headrace.bench.latency.members CONFIG.json")
    config: Any = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Config)
    serve(config)


if __name__ == "__main__":
    main(sys.argv[1:])
