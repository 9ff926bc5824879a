"""`headrace bench kafka`: counts from topic to topic, beside files and beside Structured Streaming.

1. A count that tells each step runs from topic to topic and from files to files.
2. A count that tells each key once per epoch runs from topic to topic, beside the same aggregate in
   Structured Streaming with its own connector, where there is one for this Spark.

All take turns in one Spark session. Throughput is that of a backlog: records of the measured epochs
by the time from one epoch to the next, delivery included. Latency is that of a trickle: from
sending one record until a reader of committed records, or of the output directory, sees its result.

The broker runs on this machine and takes a part of its cores: the ratio to files is a lower bound.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.session import local_session
from headrace.bench.kafka import streaming
from headrace.bench.kafka.places import TIMEOUT_S, Endpoint, Files, Rows, Topics, each_change
from headrace.bench.servers.kafka_server import KafkaServer, kafka_server
from headrace.bench.servers.processes import CannotHave
from headrace.errors import HeadraceError

THROUGHPUT_MIN = 0.7
PEER_THROUGHPUT_MIN = 1.0
PEER_LATENCY_MAX = 0.5

FILES, TOPICS = "files", "topics"
CHANGES, PEER = "topics-changes", "spark-native"
Step = tuple[float, int]
"""The seconds and the records of an epoch."""


@dataclass(frozen=True)
class KafkaShape:
    """The shape of the benchmark."""

    records: int = 200_000
    keys: int = 1_000
    epochs: int = 6
    warmup_epochs: int = 4
    latency_records: int = 20
    partitions: int = 2
    slots: int = 2

    @property
    def epoch_records(self) -> int:
        return self.records // (self.epochs + self.warmup_epochs)

    def rows(self) -> Rows:
        """The records of the backlog."""
        return [{"id": n, "key": f"k{n % self.keys}"} for n in range(self.records)]


def run_kafka(
    shape: KafkaShape,
    *,
    rounds: int = 1,
    connector: str = "",
    work_dir: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measures all in turns and returns the JSON document.

    `connector`: the version of Spark's connector; by default that of this Spark.
    """
    say("starting a broker (its first installation takes a while)")
    try:
        server = kafka_server(quick_start=False)
    except CannotHave as error:
        raise HeadraceError(f"no broker can be had here: {error}") from error
    names, settings, unavailable = [FILES, TOPICS, CHANGES, PEER], {}, {}
    try:
        jars = streaming.connector_jars(connector or pyspark.__version__)
        settings["spark.jars"] = ",".join(map(str, jars))
    except CannotHave as error:
        names.remove(PEER)
        unavailable[PEER] = str(error)
        say(f"{PEER}: {error}")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    equal = True
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=work_dir) as directory:
        where = Path(directory)
        with local_session(shape.slots, where, "kafka", settings) as spark:
            for number in range(rounds):
                for name in names if number % 2 == 0 else reversed(names):
                    at = where / f"{number}-{name}"
                    measured, is_right = _measure(name, server, at, shape, spark)
                    found[name].append(measured)
                    equal &= is_right
                    say(
                        f"{name}: {measured['records_per_s']:,.0f} records/s, "
                        f"{measured['latency_ms_p50']:,.0f} ms"
                    )
    server.process.kill()
    return {
        "benchmark": "kafka",
        "workload": asdict(shape),
        **judged(found, equal, unavailable),
        "results_equal": equal,
        "unavailable": unavailable,
        "rounds": found,
        "machine": machine,
        "versions": {**describe_versions(), "connector": connector or pyspark.__version__},
    }


def _measure(
    name: str, server: KafkaServer, where: Path, shape: KafkaShape, spark: SparkSession
) -> tuple[dict[str, float], bool]:
    """What one system measured, and whether its counts are right."""
    prefix, rows = f"bench-{time.time_ns()}", shape.rows()
    if name == FILES:
        place: Files | Topics = Files(where, shape.partitions)
    elif name == TOPICS:
        place = Topics(server, prefix, shape.partitions)
    else:
        place = Topics(server, prefix, shape.partitions, each_change)
    place.send(rows, "backlog")
    if name == PEER and isinstance(place, Topics):
        steps = streaming.backlog(spark, place, where, shape.epoch_records)
        trickling: AbstractContextManager[Any] = streaming.trickling(spark, place, where)
    else:
        steps = _backlog(place, where, shape, spark)
        trickling = _trickling(place, where, shape, spark)
    steps = steps[shape.warmup_epochs :]
    is_right = _counts(place, len(rows), each_step=name in (FILES, TOPICS)) == Counter(
        row["key"] for row in rows
    )
    with trickling:
        latencies = _latencies(name, place, shape)
    place.close()
    return {
        "records_per_s": sum(n for _, n in steps) / sum(seconds for seconds, _ in steps),
        "epoch_ms_p50": 1000 * statistics.median(seconds for seconds, _ in steps),
        "latency_ms_p50": 1000 * statistics.median(latencies),
        "latency_ms_max": 1000 * max(latencies),
    }, is_right


def _backlog(
    place: Files | Topics, where: Path, shape: KafkaShape, spark: SparkSession
) -> list[Step]:
    """Runs ours over what is there: each epoch's time is that from the one before it."""
    began = time.perf_counter()
    at: list[Step] = []
    place.pipeline(ends=True).run(
        checkpoint=str(where / "backlog"),
        spark=spark,
        slots=shape.slots,
        epoch_records=shape.epoch_records,
        epoch_target="1h",
        on_epoch=lambda progress: at.append((time.perf_counter(), progress.records)),
    )
    ends = [(began, 0), *at]
    return [(now - before, records) for (before, _), (now, records) in pairwise(ends) if records]


@contextmanager
def _trickling(
    place: Files | Topics, where: Path, shape: KafkaShape, spark: SparkSession
) -> Iterator[None]:
    """Runs ours over what comes from now on."""
    with place.trickle().start(
        checkpoint=str(where / "trickle"), spark=spark, slots=shape.slots, until=None
    ):
        yield


def _counts(place: Endpoint, records: int, *, each_step: bool) -> Counter[str]:
    """The count of each key, as a reader sees it: by the number of rows, or by their latest."""
    found: Counter[str] = Counter()
    until = time.monotonic() + TIMEOUT_S
    while sum(found.values()) < records and time.monotonic() < until:
        for row in place.new_rows():
            key = row["key"]
            found[key] = found[key] + 1 if each_step else max(found[key], row["count"])
    return found


def _latencies(name: str, place: Endpoint, shape: KafkaShape) -> list[float]:
    """From sending a record until its result is seen, one record after the other."""
    found: list[float] = []
    for number in range(shape.latency_records):
        wanted = shape.records + 1 + number
        sent = time.perf_counter()
        place.send([{"id": wanted, "key": "k0"}], f"trickle-{number}")
        until = time.monotonic() + TIMEOUT_S
        while not any(row["id"] == wanted for row in place.new_rows()):
            if time.monotonic() > until:
                raise HeadraceError(
                    f"{name}: record {wanted} has no result after {TIMEOUT_S:.0f} s: "
                    "run again on a machine that does less"
                )
            time.sleep(0.005)
        found.append(time.perf_counter() - sent)
    return found[len(found) // 4 :]  # the first ones find a cold pipeline


def judged(
    found: Mapping[str, list[dict[str, float]]], equal: bool, unavailable: Mapping[str, str]
) -> dict[str, Any]:
    """The median of all rounds, and the bars."""
    systems = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }

    def ratio(what: str, one: str, other: str) -> float | None:
        if one not in systems or other not in systems:
            return None
        return round(systems[one][what] / systems[other][what], 4)

    bars = [
        Bar(
            "throughput from topic to topic / over files", "at least", THROUGHPUT_MIN,
            ratio("records_per_s", TOPICS, FILES),
        )
    ]  # fmt: skip
    if PEER not in unavailable:
        bars += [
            Bar(f"throughput of changes / {PEER}", "at least", PEER_THROUGHPUT_MIN,
                ratio("records_per_s", CHANGES, PEER)),
            Bar(f"latency p50 of changes / {PEER}", "at most", PEER_LATENCY_MAX,
                ratio("latency_ms_p50", CHANGES, PEER)),
        ]  # fmt: skip
    return {"systems": systems, "bars": [bar.as_json(equal) for bar in bars]}


def format_kafka(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    systems = document["systems"]
    lines = [f"{'':<20}" + "".join(f"{name:>16}" for name in systems)]
    for what in next(iter(systems.values())):
        lines.append(f"{what:<20}" + "".join(f"{each[what]:>16,.0f}" for each in systems.values()))
    for name, reason in document["unavailable"].items():
        lines.append(f"{name} is not to be had: {reason}")
    lines.append(f"results equal: {'yes' if document['results_equal'] else 'NO'}")
    return "\n".join([*lines, *bar_lines(document["bars"])])
