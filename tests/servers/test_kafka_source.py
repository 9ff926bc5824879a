"""`sources.kafka` on a real broker: what is read, where it begins and ends, and what goes wrong."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.servers import kafka
from tests.servers.kafka import AT, new_topic, produce, thorough
from tests.unit.engine.support import Crash, driver_of

from headrace import Pipeline, sinks, sources, to
from headrace.bench.servers.kafka_server import KafkaServer
from headrace.errors import InvalidPipeline, SourceError, SourceUnavailable
from headrace.model.source import Source, Workspace
from headrace.plan.decisions.next_step import Run
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

pytestmark = [thorough, pytest.mark.slow]


@pytest.fixture
def server() -> KafkaServer:
    return kafka.broker()


def prepared(source: Source, where: Path) -> Source:
    source.prepare(Workspace(DiskStore(where / "workspace")))
    return source


def read_all(source: Source, positions: dict[str, int] | None = None) -> list[Any]:
    """What there is now, split by split; `positions` are moved."""
    at = {} if positions is None else positions
    found: list[Any] = []
    for split in source.splits():
        start = at.get(split, source.first(split))
        while (planned := source.plan(split, start, 1000)) is not None:
            found += source.read(split, planned).values or []
            start = at[split] = planned.end
            if planned.last:
                break
    return found


def numbers(values: list[Any]) -> list[int]:
    return [value["n"] for value in values]


def rows(count: int, first: int = 0) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, first + count)]


class Running:
    """A pipeline from a source to memory, without Spark, that can be stopped and started."""

    def __init__(self, source: Source, **more: Any) -> None:
        p = Pipeline("reads")
        p.read("in", source, **more)
        self.sink, self.dead = sinks.memory(), sinks.memory()
        p.stream("in").write(self.sink)
        if "errors" in more:
            p.stream("dead").write(self.dead)
        self.topology = p.freeze()
        self.store = MemoryStore()

    def run(self, **options: Any) -> None:
        driver = driver_of(self.topology, self.store, until="caught_up", **options)
        while isinstance(driver.step(), Run):
            pass
        driver.close()


def test_parts_of_a_message_become_fields(server: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(server)
    produce(server, topic, rows(2), keys=["a", "ü"])
    named = {"key": "who", "offset": "offset", "timestamp": "at", "topic": "topic"}
    source = sources.kafka(topic, servers=server.servers, columns=named)
    assert read_all(prepared(source, tmp_path)) == [
        {"n": 0, "who": "a", "offset": 0, "at": AT * 1000, "topic": topic},
        {"n": 1, "who": "ü", "offset": 1, "at": AT * 1000 + 1000, "topic": topic},
    ]
    clash = prepared(
        sources.kafka(topic, servers=server.servers, columns={"key": "n"}), tmp_path / "2"
    )
    planned = clash.plan(f"{topic}/0", 0, 10)
    assert planned is not None
    assert "has a field 'n' already" in clash.read(f"{topic}/0", planned).rejected[0].reason


@dataclass
class Click:
    n: int
    page: str = "/"


def test_bad_values_go_by_the_policy_and_a_schema_gives_objects(server: KafkaServer) -> None:
    topic = new_topic(server)
    deep = b"[" * 500 + b"]" * 500
    bad = [b"{", b"\xff", deep, b'{"n": "x"}', b"null", None, b'{"n": 1e400}']
    produce(server, topic, [b'{"n": 1}', *bad, b'{"n": 7, "page": "/buy"}'], raw=True)
    running = Running(sources.kafka(topic, servers=server.servers, value=Click), errors=to("dead"))
    running.run()
    assert running.sink.rows == [{"n": 1, "page": "/"}, {"n": 7, "page": "/buy"}]
    reasons = [str(row) for row in running.dead.rows]
    assert len(reasons) == len(bad)
    for reason, told in zip(reasons, ["not JSON", "not UTF-8", "nested", "n", "", "tombstone", ""]):
        assert told in reason
        assert topic in reason or told in ("n", "")
    stops = Running(sources.kafka(topic, servers=server.servers))
    with pytest.raises(SourceError, match=rf"{topic}/0, offset 1: not JSON"):
        stops.run()


def test_bytes_large_numbers_and_tombstones_come_as_they_are(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    produce(server, topic, [b"\xff\x00", None, b"123456789012345678901234567890"], raw=True)
    where = {"servers": server.servers}
    kept = prepared(sources.kafka(topic, value="bytes", tombstones="keep", **where), tmp_path / "1")
    assert read_all(kept) == [b"\xff\x00", None, b"123456789012345678901234567890"]
    running = Running(sources.kafka(topic, tombstones="skip", **where), errors=to("dead"))
    running.run()
    assert running.sink.rows == [123456789012345678901234567890]


def test_starts_and_stops_are_decided_once(server: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(server, 2)
    for partition in (0, 1):
        produce(server, topic, rows(10, 100 * partition), partition=partition)
    where = {"servers": server.servers}
    made = {
        "latest": sources.kafka(topic, start="latest", **where),
        "time": sources.kafka(topic, start=(AT + 7) * 1000, **where),
        "offsets": sources.kafka(topic, start={0: 4, 1: 9}, stop={0: 6, 1: 10}, **where),
        "between": sources.kafka(topic, start=(AT + 1) * 1000, stop=(AT + 3) * 1000 - 1, **where),
        "after all": sources.kafka(topic, start=(AT + 99) * 1000, **where),
    }
    for name, source in made.items():
        prepared(source, tmp_path / name)
    for partition in (0, 1):
        produce(server, topic, rows(1, 50 + partition), partition=partition, first=200)
    expected = {
        "latest": [50, 51],
        "time": [7, 8, 9, 50, 107, 108, 109, 51],
        "offsets": [4, 5, 109],
        "between": [1, 2, 101, 102],
        "after all": [50, 51],
    }
    for name, source in made.items():
        again = prepared(source, tmp_path / name)
        assert numbers(read_all(again)) == expected[name], name
    lacking = sources.kafka(topic, start={0: 4}, **where)
    with pytest.raises(SourceError, match=f"lacks a partition: {topic}/1"):
        prepared(lacking, tmp_path / "lacking")
    beyond = sources.kafka(topic, start={0: 4, 1: 99}, **where)
    with pytest.raises(SourceError, match="has no offset 99: its records go from 0 up to 11"):
        prepared(beyond, tmp_path / "beyond")


def test_new_partitions_and_topics_are_found_and_read_from_their_beginning(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    produce(server, topic, rows(3))
    pattern = re.compile(f"{topic}.*")
    source = prepared(sources.kafka(pattern, servers=server.servers, start="latest"), tmp_path)
    positions: dict[str, int] = {}
    assert read_all(source, positions) == []
    server.widen(topic, 2)
    server.create(f"{topic}-more")
    produce(server, topic, rows(2, 10), partition=1)
    produce(server, f"{topic}-more", rows(2, 20))
    time.sleep(1.1)
    assert numbers(read_all(source, positions)) == [10, 11, 20, 21]


def test_records_that_retention_deleted_are_an_error_until_that_is_accepted(
    server: KafkaServer,
) -> None:
    from confluent_kafka import TopicPartition

    topic = new_topic(server)
    produce(server, topic, rows(10))
    running = Running(sources.kafka(topic, servers=server.servers))
    running.run()
    produce(server, topic, rows(10, 10))
    admin = server.admin()
    place = TopicPartition(topic, 0, 15)
    admin.delete_records([place])[place].result(30)
    told = r"the topic t-\w+ begins at offset 15 in partition 0, so retention deleted 5 records"
    with pytest.raises(SourceError, match=f"{told}.*accept_changed=.'{topic}'"):
        running.run()
    running.run(accept_changed=[topic])
    running.run()
    assert numbers(running.sink.rows) == [*range(10), *range(15, 20)]


def test_a_topic_made_again_is_an_error_and_if_accepted_read_from_its_beginning(
    server: KafkaServer,
) -> None:
    topic = new_topic(server)
    produce(server, topic, rows(10))
    running = Running(sources.kafka(topic, servers=server.servers))
    running.run()
    server.delete(topic)
    server.create(topic)
    produce(server, topic, rows(20, 100))
    with pytest.raises(SourceError, match=f"the topic {topic} was deleted and made again"):
        running.run()
    running.run(accept_changed=[topic])
    produce(server, topic, rows(1, 200))
    running.run()
    assert numbers(running.sink.rows) == [*range(10), *range(100, 120), 200]


def test_a_task_refuses_a_range_that_was_planned_for_a_topic_before(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    produce(server, topic, rows(10))
    source = prepared(sources.kafka(topic, servers=server.servers), tmp_path)
    planned = source.plan(f"{topic}/0", 0, 10)
    assert planned is not None
    server.delete(topic)
    server.create(topic)
    produce(server, topic, rows(20))
    with pytest.raises(SourceError, match="made again since this epoch was planned"):
        source.read(f"{topic}/0", planned)


def test_a_broker_that_is_away_is_an_outage_and_nothing_else(
    server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace import kafka_client
    from headrace.sources.kafka import reading

    monkeypatch.setattr(kafka_client, "ANSWER_S", 2.0)
    monkeypatch.setattr(reading, "QUIET_S", 1.0)
    topic = new_topic(server)
    produce(server, topic, rows(10))
    source = prepared(sources.kafka(topic, servers=server.servers), tmp_path)
    planned = source.plan(f"{topic}/0", 0, 5)
    assert planned is not None
    server.process.kill()
    try:
        with pytest.raises(SourceUnavailable, match=server.servers):
            for _ in range(100):  # it does not ask the broker at every look
                source.splits()
                time.sleep(0.1)
        with pytest.raises(SourceUnavailable, match=server.servers):
            source.read(f"{topic}/0", planned)
    finally:
        server.restart()
    assert numbers(source.read(f"{topic}/0", planned).values or []) == [0, 1, 2, 3, 4]
    assert numbers(read_all(source)) == list(range(10))


def test_no_option_is_shown(
    server: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "hunter2-very-secret"
    caplog.set_level(logging.DEBUG)
    topic = new_topic(server)
    made = sources.kafka(topic, servers=server.servers, options={"sasl.password": secret})
    prepared(made, tmp_path)
    read_all(made)
    sink = sinks.kafka(topic, servers=server.servers, options={"sasl.password": secret})
    wrong = sources.kafka(topic, servers=server.servers, options={"broker.address.family": secret})
    with pytest.raises(InvalidPipeline) as refused:
        prepared(wrong, tmp_path / "wrong")
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    told = [repr(made.__dict__), made.describe(), repr(sink.__dict__), sink.identity(), caplog.text]
    for text in (*told, str(refused.value)):
        assert secret not in str(text)
    assert not any(secret.encode() in data for data in files)


def test_a_missing_topic_is_named(server: KafkaServer, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no topic 'nowhere': make it first"):
        prepared(sources.kafka("nowhere", servers=server.servers), tmp_path)


def test_crashes_between_reading_and_committing_lose_and_repeat_nothing(
    server: KafkaServer,
) -> None:
    from headrace import failpoints

    topic = new_topic(server, 2)
    running = Running(sources.kafka(topic, servers=server.servers))
    sent = 0
    for failpoint in ("after-plan-write", "before-commit-write", "after-commit-write"):
        produce(server, topic, rows(40, sent))
        sent += 40

        def die() -> None:
            raise Crash

        failpoints.arm(failpoint, die)
        try:
            with pytest.raises(Crash):
                running.run()
        finally:
            failpoints.disarm()
    running.run()
    assert sorted(numbers(running.sink.rows)) == list(range(sent))
