"""Where the records of the benchmark come from, and where their results go: files, or topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from headrace import Computation, Context, Pipeline, Record, agg, sinks, sources, state
from headrace.bench.servers.kafka_server import KafkaServer

TIMEOUT_S = 60.0

Rows = list[dict[str, Any]]
Counting = Callable[[sources.Source, sinks.Sink], Pipeline]
"""The pipeline between a source and a sink."""


class CountOfRecords(Computation):
    """Counts the records of a key, and tells each step."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count, "id": record.value["id"]})


def each_step(source: sources.Source, sink: sinks.Sink) -> Pipeline:
    """A Python call and a row for every record."""
    p = Pipeline("kafka-bench")
    p.read("in", source)
    p.compute(CountOfRecords, inputs={"in": "key"}, outputs="counts")
    p.stream("counts").write(sink)
    return p


def each_change(source: sources.Source, sink: sinks.Sink) -> Pipeline:
    """A row for every key and epoch, as Structured Streaming tells an aggregate in update mode."""
    p = Pipeline("kafka-bench")
    rows = p.read("in", source).key_by("key")
    rows.aggregate(count=agg.count(), id=agg.max("id")).write(sink)
    return p


class Endpoint(Protocol):
    """Somewhere to send records, and to see results."""

    def send(self, rows: Rows, name: str) -> None:
        """Makes records visible to the source."""

    def new_rows(self) -> Rows:
        """Rows that have appeared since the last call."""

    def close(self) -> None:
        """The measurement is done."""


class Files:
    """Input as JSON lines in a directory, output as epochs in another."""

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
        return each_step(source, sinks.jsonl(self._out))

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

    def __init__(
        self, server: KafkaServer, prefix: str, partitions: int, counting: Counting = each_step
    ) -> None:
        self.servers, self._partitions, self._counting = server.servers, partitions, counting
        self.source, self.sink = f"{prefix}-in", f"{prefix}-out"
        for topic in (self.source, self.sink):
            server.create(topic, partitions)
        from confluent_kafka import Consumer, Producer, TopicPartition

        servers = {"bootstrap.servers": self.servers, "log_level": 0}
        self._producer = Producer({**servers, "linger.ms": 5})
        self._reader = Consumer(
            {
                **servers, "group.id": "bench", "enable.auto.commit": False,
                "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
            }
        )  # fmt: skip
        self._reader.assign([TopicPartition(self.sink, number, 0) for number in range(partitions)])

    def send(self, rows: Rows, name: str) -> None:
        for row in rows:
            while True:
                try:
                    self._producer.produce(self.source, json.dumps(row), row["key"])
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.flush(TIMEOUT_S)

    def trickle(self) -> Pipeline:
        """A pipeline of a new checkpoint over what comes from now on."""
        return self.pipeline(ends=False)

    def pipeline(self, ends: bool) -> Pipeline:
        # "latest" would be decided when the pipeline starts, and that is after the first record.
        start = "earliest" if ends else self.ends()
        stop = "latest" if ends else None
        source = sources.kafka(self.source, servers=self.servers, start=start, stop=stop)
        return self._counting(source, sinks.kafka(self.sink, servers=self.servers, key="key"))

    def ends(self) -> dict[int, int]:
        """The offset behind the last record of each partition of the input."""
        from confluent_kafka import TopicPartition

        of = [TopicPartition(self.source, number) for number in range(self._partitions)]
        return {p.partition: self._reader.get_watermark_offsets(p, TIMEOUT_S)[1] for p in of}

    def new_rows(self) -> Rows:
        """Rows that have appeared since the last call."""
        found = self._reader.consume(10_000, 0.01)
        return [json.loads(message.value()) for message in found if message.error() is None]

    def close(self) -> None:
        self._reader.close()
