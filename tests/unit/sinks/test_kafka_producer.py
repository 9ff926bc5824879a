"""Transactions that take longer than brokers wait, and marks that brokers forget; the client is
played here."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import sinks
from headrace.errors import IncompatibleState, SinkError
from headrace.kafka_client import ClientSettings
from headrace.sinks import Opening
from headrace.sinks.high_water import open_high_water
from headrace.sinks.kafka import producer as module
from headrace.sinks.kafka.messages import Message
from headrace.sinks.kafka.producer import EpochMark, EpochProducer, ProducerReplaced
from headrace.sinks.kafka.sink import KafkaSink
from headrace.store.memory import MemoryStore

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


class Marked:
    """A producer, of which brokers know a mark or none."""

    def __init__(self, number: int, marks: dict[int, EpochMark]) -> None:
        self.number, self.marks = number, marks
        self.name = f"headrace.id.orders.{number}"

    @property
    def mark(self) -> EpochMark | None:
        return self.marks.get(self.number)

    def begin(self) -> EpochMark | None:
        return self.mark

    def send(self, messages: Any, mark: EpochMark) -> None:
        self.marks[self.number] = mark

    def close(self) -> None: ...


def registered(
    monkeypatch: pytest.MonkeyPatch,
    marks: dict[int, EpochMark],
    *,
    parallel: int,
    committed: int,
    kept: int | None = None,
) -> EpochMark:
    """What a driver finds that opens the sink; `kept`: the mark in the checkpoint, if it was opened
    before."""
    store = MemoryStore()
    opening = Opening("id", 2, committed, store)
    sink: Any = sinks.kafka("orders", servers="127.0.0.1:1", parallel=parallel)
    monkeypatch.setattr(sink, "_producer", lambda _, number: Marked(number, marks), raising=False)
    sink._generation, sink._store = 2, store.below("id")
    sink._kept = open_high_water(opening)
    if kept is not None:
        sink._store.put_if_absent("opened", b"orders")
        sink._kept.advance(kept, "c")
    sink._producers = [sink._producer(opening, number) for number in range(parallel)]
    return sink._register(opening)


def marks_of(*epochs: int | None) -> dict[int, EpochMark]:
    found = enumerate(epochs)
    return {n: EpochMark(e, "id", "c", "", 1, len(epochs)) for n, e in found if e is not None}


@pytest.mark.parametrize("epochs", [(5, None, 5), (5, 5, None), (None, 5, 5), (5, None, None)])
@pytest.mark.parametrize("parallel", [1, 3, 4])
def test_a_lost_mark_of_any_producer_is_taken_from_the_checkpoint_or_asked_for(
    monkeypatch: pytest.MonkeyPatch, epochs: tuple[int | None, ...], parallel: int
) -> None:
    marks = marks_of(*epochs)
    found = registered(monkeypatch, marks, parallel=parallel, committed=5, kept=5)
    assert (found.epoch, found.commit) == (5, "c")
    assert all(marks[number].epoch == 5 for number in range(parallel))
    lost = epochs.index(None)
    told = rf"it has epoch 4 of 5.*--group headrace\.id\.orders\.{lost} .*--to-offset EPOCH"
    with pytest.raises(IncompatibleState, match=told):
        registered(monkeypatch, marks_of(*epochs), parallel=parallel, committed=5, kept=4)


def test_a_lost_mark_is_asked_for_where_the_checkpoint_has_no_copy_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(IncompatibleState, match="it has epoch 0 of 5"):
        registered(monkeypatch, marks_of(5, None, 5), parallel=3, committed=5)


def test_a_first_start_has_no_marks_or_those_of_a_start_that_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for marks in ({}, marks_of(None, 0, 0)):
        found = registered(monkeypatch, marks, parallel=3, committed=5)
        assert found.epoch == 0 and found.producers == 3
        assert {mark.epoch for mark in marks.values()} == {0} and len(marks) == 3


def test_more_producers_than_before_have_no_marks_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = marks_of(5, 5)
    assert registered(monkeypatch, marks, parallel=4, committed=6, kept=3).epoch == 5
    assert [marks[number].epoch for number in range(4)] == [5] * 4
