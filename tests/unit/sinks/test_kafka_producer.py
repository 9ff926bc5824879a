"""Transactions that take longer than brokers wait; the client is played here."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import SinkError
from headrace.kafka_client import ClientSettings
from headrace.sinks.kafka import producer as module
from headrace.sinks.kafka.messages import Message
from headrace.sinks.kafka.producer import EpochMark, EpochProducer, ProducerReplaced
from headrace.sinks.kafka.sink import KafkaSink

kafka = pytest.importorskip("confluent_kafka", reason="kafka: confluent-kafka is not installed")


class Client:
    """A producer whose transactions take `takes_s`, and its brokers."""

    allowed_ms = 900_000

    def __init__(self, clock: list[float], takes_s: float, config: dict[str, Any]) -> None:
        self.clock, self.takes_s, self.config = clock, takes_s, config
        self.produced: list[tuple[Any, ...]] = []

    def init_transactions(self, timeout: float) -> None:
        if self.config["transaction.timeout.ms"] > self.allowed_ms:
            error = kafka.KafkaError.INVALID_TRANSACTION_TIMEOUT
            raise kafka.KafkaException(kafka.KafkaError(error))

    def begin_transaction(self) -> None: ...

    def purge(self) -> None: ...

    def produce(self, *given: Any) -> None:
        self.produced.append(given)

    def commit_transaction(self, timeout: float) -> None:
        self.clock[0] += self.takes_s
        if self.takes_s * 1000 >= self.config["transaction.timeout.ms"]:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._FENCED))


class Played(EpochProducer):
    """Its marks are not asked for."""

    def read(self) -> EpochMark | None:
        return None


def made(monkeypatch: pytest.MonkeyPatch, takes_s: float, **options: Any) -> Played:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    settings = ClientSettings("127.0.0.1:1", options, (), "sinks.kafka")
    monkeypatch.setattr(
        ClientSettings,
        "client",
        lambda self, kind, **given: Client(clock, takes_s, {**given, **self._options}),
    )
    return Played(settings, "orders", "name", True, 1_000_000)


MESSAGES = [Message(None, b"x", time_ms) for time_ms in (0, 1, 2**60)]


def test_an_epoch_that_takes_long_gets_a_longer_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = made(monkeypatch, takes_s=300)
    for _ in range(2):
        producer.begin()
        with pytest.raises(ProducerReplaced):
            producer.send(MESSAGES, None)
        assert not producer.has_begun
    producer.begin()
    producer.send(MESSAGES, None)
    assert producer._producer.config["transaction.timeout.ms"] == 900_000


def test_brokers_that_allow_no_longer_one_get_what_they_took_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Client, "allowed_ms", 100_000)
    producer = made(monkeypatch, takes_s=70)
    producer.begin()
    with pytest.raises(ProducerReplaced):  # of an outage, too, which took as long
        producer.send(MESSAGES, None)
    producer.begin()
    producer._producer.takes_s = 1
    producer.send(MESSAGES, None)
    assert producer._producer.config["transaction.timeout.ms"] == 60_000


def test_brokers_that_allow_no_transaction_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Client, "allowed_ms", 1000)
    with pytest.raises(SinkError, match=r"transaction\.max\.timeout\.ms: raise that"):
        made(monkeypatch, takes_s=1).begin()


def test_one_that_takes_longer_than_it_may_is_told_and_not_taken_for_another_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = made(monkeypatch, takes_s=2, **{"transaction.timeout.ms": 1000})
    sink = object.__new__(KafkaSink)
    sink.topic, sink._generation = "orders", 1
    with pytest.raises(SinkError, match=r"3 messages is sent: raise transaction\.timeout\.ms"):
        sink._send(producer, MESSAGES, None)


def test_a_transaction_that_has_failed_is_asked_why(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = made(monkeypatch, takes_s=0)
    producer.begin()
    client = producer._producer

    def failing(*given: Any) -> None:
        client.begin_transaction = refusing
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._STATE))

    def refusing() -> None:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError.INVALID_RECORD, "no key"))

    aborted: list[float] = []
    client.produce, client.abort_transaction = failing, aborted.append
    with pytest.raises(SinkError, match="INVALID_RECORD: no key.*None as its key"):
        producer.send(MESSAGES, None)
    assert aborted and not producer.has_begun


def test_the_first_millisecond_of_1970_is_not_now(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = made(monkeypatch, takes_s=0)
    producer.begin()
    producer.send(MESSAGES, None)
    stamps = [given[-1] for given in producer._producer.produced]
    assert stamps[:2] == [1, 1] and 1 < stamps[2] < 2**60
