"""`sinks.kafka` on a real broker, where it differs from other sinks; see tests/contract too."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.servers import kafka
from tests.servers.kafka import new_topic, thorough

from headrace import failpoints, sinks
from headrace.bench.servers.kafka_server import KafkaServer
from headrace.errors import (
    Fenced,
    IncompatibleState,
    InvalidPipeline,
    SinkError,
    SinkUnavailable,
)
from headrace.model.values.rows import Rows
from headrace.sinks import Delivery, Opening, Part, Sink
from headrace.sinks.kafka import producer
from headrace.sinks.kafka.sink import KafkaSink
from headrace.store.disk import DiskStore

pytestmark = [thorough, pytest.mark.slow]


@pytest.fixture
def server() -> KafkaServer:
    return kafka.broker()


def opened(sink: Sink, where: Path, generation: int = 1, committed: int = 0) -> Sink:
    store = DiskStore(str(where / "sinks" / "out"))
    sink.open(Opening("checkpoint-1", generation, committed, store, {}, str(where)))
    return sink


def delivery(
    sink: Sink, epoch: int, values: list[Any], stamps: list[int] | None = None
) -> Delivery:
    data = sink.encode(Rows.of(values, stamps or [1_000_000] * len(values)))
    return Delivery(epoch, "checkpoint-1", [Part("Count/0", "digest", lambda: data)])


def test_keys_values_and_times_become_messages(server: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(server)
    sink = opened(sinks.kafka(topic, servers=server.servers, key="k"), tmp_path)
    rows = [{"k": "a", "n": 1}, {"k": 7, "n": 2**70}, {"k": None, "n": "ü\n"}]
    tomorrow = (int(time.time()) + 86_400) * 1_000_000
    sink.deliver(delivery(sink, 1, rows, [5_000_000, 6_001_000, tomorrow]))
    found = kafka.consume(server, topic)
    assert [message.key() for message in found] == [b"a", b"7", None]
    assert kafka.shown(server, topic) == rows
    times = [message.timestamp()[1] for message in found]
    assert times[:2] == [5_000, 6_001]
    assert times[2] <= time.time() * 1000, "brokers refuse times in the future"


def test_functions_make_tombstones_and_bytes(server: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(server)

    def value(row: dict[str, Any]) -> bytes | None:
        return None if row["gone"] else b"there"

    sink = opened(sinks.kafka(topic, servers=server.servers, key="k", value=value), tmp_path)
    sink.deliver(delivery(sink, 1, [{"k": "a", "gone": False}, {"k": "a", "gone": True}]))
    assert [message.value() for message in kafka.consume(server, topic)] == [b"there", None]


def test_what_no_broker_would_take_is_refused_before_the_commit(server: KafkaServer) -> None:
    sink = sinks.kafka("any", servers=server.servers, key="k")
    with pytest.raises(SinkError, match="bytes, and a message at most 1,000,000"):
        sink.encode(Rows.of([{"k": "x" * 1_000_000}], [0]))
    with pytest.raises(SinkError, match="has no key"):
        sink.encode(Rows.of([{"other": 1}], [0]))
    with pytest.raises(SinkError, match="gives dict, not bytes or text"):
        sinks.kafka("any", servers=server.servers, value="bytes").encode(Rows.of([{"a": 1}], [0]))


def test_a_topic_that_takes_little_at_once_gets_small_messages(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server, max_message_bytes="20000")
    sink = opened(sinks.kafka(topic, servers=server.servers), tmp_path)
    sink.deliver(delivery(sink, 1, [uuid.uuid4().hex for _ in range(5000)]))
    assert len(kafka.consume(server, topic)) == 5000
    for more in (0, 250_000):  # the broker's answer comes after all messages, or among them
        large = delivery(sink, 2, [os.urandom(30_000).hex(), *map(str, range(more))])
        with pytest.raises(SinkError, match=r"MSG_SIZE_TOO_LARGE.*Raise max\.message\.bytes"):
            sink.deliver(large)
    kafka.produce(server, topic, ["of another producer"])
    assert len(kafka.consume(server, topic)) == 5001, "no open transaction is before it"


def test_a_compacted_topic_wants_keys(server: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(server, cleanup_policy="compact")
    with pytest.raises(SinkError, match="is compacted, so it takes no messages without a key"):
        opened(sinks.kafka(topic, servers=server.servers), tmp_path)
    sink = opened(sinks.kafka(topic, servers=server.servers, key="k"), tmp_path)
    with pytest.raises(SinkError, match="INVALID_RECORD.*a row has None as its key"):
        sink.deliver(delivery(sink, 1, [{"k": None}]))


def test_two_sinks_of_a_driver_cannot_share_a_topic_by_two_addresses(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic, port = new_topic(server), server.process.port
    first, second = (sinks.kafka(topic, servers=f"{h}:{port}") for h in ("127.0.0.1", "localhost"))
    place = str(tmp_path)

    def opening(name: str) -> Opening:
        return Opening("checkpoint-1", 1, 0, DiskStore(str(tmp_path / name)), {}, place)

    first.open(opening("a"))
    with pytest.raises(InvalidPipeline, match=f"two sinks of this pipeline write to .*{topic}"):
        second.open(opening("b"))
    first.close()
    second.open(opening("b"))


def test_brokers_that_allow_no_longer_transaction_get_the_time_that_they_took(
    server: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "_TIMEOUTS_MS", (60_000, 100 * 900_000))
    topic = new_topic(server)
    sink = opened(sinks.kafka(topic, servers=server.servers), tmp_path)
    assert isinstance(sink, KafkaSink)
    del sink._producers[0]._timeouts[0]  # as after an outage
    sink._producers[0].drop()
    sink.deliver(delivery(sink, 1, [{"n": 1}]))
    assert kafka.shown(server, topic) == [{"n": 1}]


def test_a_missing_topic_is_named(server: KafkaServer, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="has no topic 'nowhere': make it first"):
        opened(sinks.kafka("nowhere", servers=server.servers), tmp_path)


def test_a_driver_of_an_older_generation_that_opens_late_is_fenced(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    newer = opened(sinks.kafka(topic, servers=server.servers), tmp_path, generation=2)
    newer.deliver(delivery(newer, 1, [1]))
    zombie = sinks.kafka(topic, servers=server.servers)
    with pytest.raises(Fenced, match="generation 2"):
        opened(zombie, tmp_path, generation=1)
    # The zombie has taken its place in Kafka; it takes it back.
    newer.deliver(delivery(newer, 2, [2]))
    assert kafka.shown(server, topic) == [1, 2]


def test_a_zombie_with_an_open_transaction_shows_nothing_and_stops(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    zombie = opened(sinks.kafka(topic, servers=server.servers), tmp_path, generation=1)
    newer = sinks.kafka(topic, servers=server.servers)

    def take_over() -> None:
        failpoints.disarm()
        opened(newer, tmp_path, generation=2)

    failpoints.arm("after-claim", take_over)
    try:
        with pytest.raises(Fenced, match="generation 2"):
            zombie.deliver(delivery(zombie, 1, [1]))
    finally:
        failpoints.disarm()
    assert newer.high_water() == 0
    newer.deliver(delivery(newer, 1, [1]))
    assert kafka.shown(server, topic) == [1]


def test_a_mark_that_kafka_has_forgotten_is_taken_from_the_checkpoint_or_asked_for(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    group = f"headrace.checkpoint-1.{topic}.0"

    def forget() -> None:
        server.admin_do(lambda admin: admin.delete_consumer_groups([group])[group].result(30))

    first = opened(sinks.kafka(topic, servers=server.servers), tmp_path)
    first.deliver(delivery(first, 1, [1]))
    first.tidy()
    first.close()
    forget()
    second = opened(sinks.kafka(topic, servers=server.servers), tmp_path, committed=1)
    assert second.high_water() == 1
    second.deliver(delivery(second, 2, [2]))
    second.close()  # without `tidy`: the driver was killed
    forget()
    with pytest.raises(IncompatibleState, match=r"it has epoch 1 of 2.*--to-offset EPOCH"):
        opened(sinks.kafka(topic, servers=server.servers), tmp_path, committed=2)
    assert kafka.shown(server, topic) == [1, 2]


@pytest.mark.parametrize("parallel", [1, 3])
def test_every_key_stays_in_order(server: KafkaServer, tmp_path: Path, parallel: int) -> None:
    topic = new_topic(server, 3)
    made = sinks.kafka(topic, servers=server.servers, key="k", parallel=parallel)
    sink = opened(made, tmp_path)
    for epoch in range(1, 4):
        rows = [{"k": f"k{n % 17}", "n": epoch * 1000 + n} for n in range(500)]
        sink.deliver(delivery(sink, epoch, rows))
    by_key: dict[str, list[int]] = defaultdict(list)
    for row in kafka.shown(server, topic, 3):
        by_key[row["k"]].append(row["n"])
    assert sum(map(len, by_key.values())) == 1500
    assert all(found == sorted(set(found)) for found in by_key.values())


def test_an_epoch_that_is_half_there_is_completed_by_the_same_number_of_producers(
    server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(server, 2)
    rows = [{"k": n, "n": n} for n in range(40)]

    def made(parallel: int) -> Sink:
        return sinks.kafka(topic, servers=server.servers, key="k", parallel=parallel)

    dying = opened(made(2), tmp_path)

    lock, failed = threading.Lock(), []

    def fail() -> None:
        with lock:  # both producers come here
            if failed:
                return
            failed.append(True)
        raise SinkUnavailable("one producer fails")

    failpoints.arm("after-claim", fail)
    try:
        with pytest.raises(SinkUnavailable):
            dying.deliver(delivery(dying, 1, rows))
    finally:
        failpoints.disarm()
    assert 0 < len(kafka.shown(server, topic, 2)) < 40
    with pytest.raises(IncompatibleState, match="start once with parallel=2"):
        opened(made(1), tmp_path, generation=2)
    again = opened(made(2), tmp_path, generation=3)
    assert again.high_water() == 0
    again.deliver(delivery(again, 1, rows))
    fewer = opened(made(1), tmp_path, generation=4)
    assert fewer.high_water() == 1
    fewer.deliver(delivery(fewer, 2, [{"k": 99, "n": 99}]))
    assert sorted(row["n"] for row in kafka.shown(server, topic, 2)) == [*range(40), 99]


def test_a_broker_that_is_away_is_waited_for(server: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(server)
    sink = opened(sinks.kafka(topic, servers=server.servers), tmp_path)
    sink.deliver(delivery(sink, 1, [1]))
    server.process.kill()
    server.restart()
    for _ in range(20):
        try:
            sink.deliver(delivery(sink, 2, [2]))
            break
        except SinkUnavailable:
            time.sleep(0.5)
    sink.deliver(delivery(sink, 3, [3]))
    assert kafka.shown(server, topic) == [1, 2, 3]
