"""A broker for tests: one for all tests of a process, and small helpers around it.

`make test` starts it for the tests that are marked `few`; all others run with HEADRACE_KAFKA=1, as
`make test-servers` sets it.
"""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from headrace.bench.servers.kafka_server import KafkaServer, kafka_server
from headrace.bench.servers.processes import CannotHave

thorough = pytest.mark.skipif(
    not os.environ.get("HEADRACE_KAFKA"),
    reason="kafka: takes minutes with a broker: `make test-servers`, or HEADRACE_KAFKA=1",
)
AT = 1_700_000_000_000
"""The time of the first message, in milliseconds."""


def broker(*, few: bool = False) -> KafkaServer:
    """The running broker; skips, by name and reason, if there can be none."""
    if not few and not os.environ.get("HEADRACE_KAFKA"):
        pytest.skip("kafka: runs with `make test-servers`, or HEADRACE_KAFKA=1")
    found = _started()
    if isinstance(found, CannotHave):
        pytest.skip(f"kafka: {found}")
    return found


@functools.cache
def _started() -> KafkaServer | CannotHave:
    try:
        return kafka_server()
    except CannotHave as error:
        return error


def new_topic(server: KafkaServer, partitions: int = 1, **config: str) -> str:
    topic = f"t-{uuid.uuid4().hex[:12]}"
    server.create(topic, partitions, **config)
    return topic


def produce(
    server: KafkaServer,
    topic: str,
    values: Iterable[Any],
    *,
    partition: int | None = None,
    keys: Sequence[str] | None = None,
    first: int = 0,
    raw: bool = False,
) -> None:
    """Sends values as JSON, one millisecond apart; value number i has the key keys[i]."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.servers, "log_level": 0, "linger.ms": 5})
    where = {} if partition is None else {"partition": partition}
    for number, value in enumerate(values):
        data = value if raw else json.dumps(value).encode()
        key = None if keys is None else keys[number]
        while True:
            try:
                producer.produce(topic, data, key, timestamp=AT + first + number, **where)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def transaction(
    server: KafkaServer, topic: str, values: Iterable[Any], *, partition: int = 0, abort: bool
) -> None:
    """Sends values in one transaction, which leaves a gap in the offsets."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": server.servers, "transactional.id": uuid.uuid4().hex}
    producer = Producer({**config, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, value in enumerate(values):
        data = json.dumps(value).encode()
        producer.produce(topic, data, timestamp=AT + number, partition=partition)
    producer.flush(60)
    (producer.abort_transaction if abort else producer.commit_transaction)(60)


def consume(server: KafkaServer, topic: str, partitions: int = 1) -> list[Any]:
    """All messages that a reader of committed records sees, partition by partition."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": server.servers, "group.id": "reader", "log_level": 0,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "enable.partition.eof": True, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Any] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in reader.consume(10_000, 0.2):
            if message.error() is None:
                found.append(message)
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise AssertionError(str(message.error()))
    reader.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def shown(server: KafkaServer, topic: str, partitions: int = 1) -> list[Any]:
    """The JSON values that a reader of committed records sees."""
    return [json.loads(message.value()) for message in consume(server, topic, partitions)]
