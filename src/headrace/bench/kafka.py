"""`headrace bench kafka`: the same counts from topic to topic and from files to files, in one run.

Throughput is that of a backlog: records of the measured epochs by the time from one epoch to the
next, delivery included. Latency is that of a trickle: from sending one record until a reader of
committed records, or of the output directory, sees its result.

The broker runs on this machine and takes a part of its cores: the ratio is a lower bound.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace import Computation, Context, Pipeline, Record, sinks, sources, state
from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.session import local_session
from headrace.bench.servers.kafka_server import KafkaServer, kafka_server
from headrace.bench.servers.processes import CannotHave
from headrace.errors import HeadraceError

THROUGHPUT_MIN = 0.7
PEER = (
    "Structured Streaming's connector: not to be had for this Spark "
    "(mvn finds no spark-sql-kafka-0-10_2.13:4.3.0)"
)
_TIMEOUT_S = 60.0

Rows = list[dict[str, Any]]


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


class CountOfRecords(Computation):
    """Counts the records of a key."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count, "id": record.value["id"]})


class Files:
    """Input as JSON lines in a directory, output as epochs in another."""

    name = "files"

    def __init__(self, where: Path, partitions: int) -> None:
        self._in, self._out, self._partitions = where / "in", where / "out", partitions
        self._in.mkdir(parents=True)
        self._seen: set[Path] = set()

    def send(self, rows: Rows, name: str) -> None:
        """Every file appears complete, by a rename."""
        for number in range(self._partitions):
            lines = [json.dumps(row) + "\n" for row in rows[number :: self._partitions]]
            if lines:
                path = self._in / f"{name}-{number}.jsonl"
                path.with_suffix(".tmp").write_text("".join(lines))
                path.with_suffix(".tmp").rename(path)

    def pipeline(self, ends: bool) -> Pipeline:
        source = sources.jsonl(str(self._in / "*.jsonl"), watch=not ends)
        return _counting(source, sinks.jsonl(self._out))

    def trickle(self) -> Pipeline:
        """A pipeline of a new checkpoint over what comes from now on."""
        self._in, self._out = self._in.parent / "in-2", self._out.parent / "out-2"
        self._in.mkdir()
        return self.pipeline(ends=False)

    def new_rows(self) -> Rows:
        """Rows that have appeared since the last call."""
        found = [path for path in sorted(self._out.glob("epoch=*/*")) if path not in self._seen]
        self._seen.update(found)
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]

    def close(self) -> None:
        """Nothing to close."""


class Topics:
    """Input in a topic, output in another."""

    name = "topics"

    def __init__(self, server: KafkaServer, prefix: str, partitions: int) -> None:
        self._server, self._prefix, self._partitions = server, prefix, partitions
        for topic in ("in", "out"):
            server.create(f"{prefix}-{topic}", partitions)
        from confluent_kafka import Consumer, Producer, TopicPartition

        servers = {"bootstrap.servers": server.servers, "log_level": 0}
        self._producer = Producer({**servers, "linger.ms": 5})
        self._reader = Consumer(
            {
                **servers, "group.id": "bench", "enable.auto.commit": False,
                "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
            }
        )  # fmt: skip
        out = f"{prefix}-out"
        self._reader.assign([TopicPartition(out, number, 0) for number in range(partitions)])

    def send(self, rows: Rows, name: str) -> None:
        for row in rows:
            while True:
                try:
                    self._producer.produce(f"{self._prefix}-in", json.dumps(row), row["key"])
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.flush(_TIMEOUT_S)

    def trickle(self) -> Pipeline:
        """A pipeline of a new checkpoint over what comes from now on."""
        return self.pipeline(ends=False)

    def pipeline(self, ends: bool) -> Pipeline:
        servers, topic = self._server.servers, f"{self._prefix}-in"
        # "latest" would be decided when the pipeline starts, and that is after the first record.
        start = "earliest" if ends else self._ends(topic)
        source = sources.kafka(topic, servers=servers, start=start, stop="latest" if ends else None)
        return _counting(source, sinks.kafka(f"{self._prefix}-out", servers=servers, key="key"))

    def _ends(self, topic: str) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        return {
            number: self._reader.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)[1]
            for number in range(self._partitions)
        }

    def new_rows(self) -> Rows:
        """Rows that have appeared since the last call."""
        found = self._reader.consume(10_000, 0.01)
        return [json.loads(message.value()) for message in found if message.error() is None]

    def close(self) -> None:
        self._reader.close()


def _counting(source: sources.Source, sink: sinks.Sink) -> Pipeline:
    p = Pipeline("kafka-bench")
    p.read("in", source)
    p.compute(CountOfRecords, inputs={"in": "key"}, outputs="counts")
    p.stream("counts").write(sink)
    return p


def run_kafka(
    shape: KafkaShape,
    *,
    rounds: int = 1,
    work_dir: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measures both in turns and returns the JSON document."""
    say("starting a broker (its first installation takes a while)")
    try:
        server = kafka_server(quick_start=False)
    except CannotHave as error:
        raise HeadraceError(f"no broker can be had here: {error}") from error
    found: dict[str, list[dict[str, float]]] = {"files": [], "topics": []}
    ends: dict[str, Counter[str]] = {}
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=work_dir) as directory:
        where = Path(directory)
        with local_session(shape.slots, where, "kafka") as spark:
            for number in range(rounds):
                for name in found if number % 2 == 0 else reversed(found):
                    place = _place(name, server, where / f"{number}-{name}", shape)
                    measured, result = _measure(place, where / f"{number}-{name}", shape, spark)
                    found[name].append(measured)
                    ends.setdefault(name, result)
                    say(f"{name}: {measured['records_per_s']:,.0f} records/s")
    server.process.kill()
    return _document(shape, found, ends["files"] == ends["topics"], machine)


def _place(name: str, server: KafkaServer, where: Path, shape: KafkaShape) -> Files | Topics:
    if name == "files":
        return Files(where, shape.partitions)
    return Topics(server, f"bench-{time.time_ns()}", shape.partitions)


def _measure(
    place: Files | Topics, where: Path, shape: KafkaShape, spark: Any
) -> tuple[dict[str, float], Counter[str]]:
    rows = [{"id": n, "key": f"k{n % shape.keys}"} for n in range(shape.records)]
    place.send(rows, "backlog")
    at: list[tuple[float, int]] = []
    place.pipeline(ends=True).run(
        checkpoint=str(where / "backlog"),
        spark=spark,
        slots=shape.slots,
        epoch_records=shape.records // (shape.epochs + shape.warmup_epochs),
        epoch_target="1h",
        on_epoch=lambda progress: at.append((time.perf_counter(), progress.records)),
    )
    # An epoch's time is that from the one before it: so it has its delivery, too.
    steps = [(now - before, records) for (before, _), (now, records) in pairwise(at) if records][
        shape.warmup_epochs - 1 :
    ]
    result: Counter[str] = Counter()
    until = time.monotonic() + _TIMEOUT_S
    while sum(result.values()) < shape.records and time.monotonic() < until:
        result.update(row["key"] for row in place.new_rows())
    latency = _latency(place, where, shape, spark)
    place.close()
    return {
        "records_per_s": sum(n for _, n in steps) / sum(seconds for seconds, _ in steps),
        "epoch_ms_p50": 1000 * statistics.median(seconds for seconds, _ in steps),
        **latency,
    }, result


def _latency(place: Files | Topics, where: Path, shape: KafkaShape, spark: Any) -> dict[str, float]:
    """From sending a record until its result is seen, one record after the other."""
    found: list[float] = []
    job = place.trickle().start(
        checkpoint=str(where / "trickle"), spark=spark, slots=shape.slots, until=None
    )
    with job:
        for number in range(shape.latency_records):
            wanted = shape.records + 1 + number
            sent = time.perf_counter()
            place.send([{"id": wanted, "key": "k0"}], f"trickle-{number}")
            until = time.monotonic() + _TIMEOUT_S
            while not any(row["id"] == wanted for row in place.new_rows()):
                if time.monotonic() > until:
                    raise HeadraceError(
                        f"{place.name}: record {wanted} has no result after {_TIMEOUT_S:.0f} s: "
                        "run again on a machine that does less"
                    )
                time.sleep(0.005)
            found.append(time.perf_counter() - sent)
    measured = sorted(found[len(found) // 4 :])  # the first ones find a cold pipeline
    return {
        "latency_ms_p50": 1000 * statistics.median(measured),
        "latency_ms_max": 1000 * measured[-1],
    }


def _document(
    shape: KafkaShape,
    found: Mapping[str, list[dict[str, float]]],
    equal: bool,
    machine: Mapping[str, object],
) -> dict[str, Any]:
    systems = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    ratio = systems["topics"]["records_per_s"] / systems["files"]["records_per_s"]
    bar = Bar("throughput from topic to topic / over files", "at least", THROUGHPUT_MIN, ratio)
    return {
        "benchmark": "kafka",
        "workload": asdict(shape),
        "systems": systems,
        "results_equal": equal,
        "peer": PEER,
        "bars": [bar.as_json(equal)],
        "rounds": {name: list(runs) for name, runs in found.items()},
        "machine": dict(machine),
        "versions": describe_versions(),
    }


def format_kafka(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    files, topics = document["systems"]["files"], document["systems"]["topics"]
    lines = [f"{'':<20}{'files':>14}{'topics':>14}"]
    lines += [f"{name:<20}{files[name]:>14,.0f}{topics[name]:>14,.0f}" for name in files]
    lines.append(document["peer"])
    lines.append(f"results equal: {'yes' if document['results_equal'] else 'NO'}")
    return "\n".join([*lines, *bar_lines(document["bars"])])
