"""Which of its consumers a process takes for a range, and how long one waits."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import SourceUnavailable
from headrace.kafka_client import ClientSettings
from headrace.sources.kafka import reading
from headrace.sources.kafka.reading import READERS_MAX, _chosen, _read, _Reader

TOPIC = "orders"


def reader(partition: int, at: int | None) -> _Reader:
    made = object.__new__(_Reader)
    made.place, made.at = (TOPIC, partition), at
    return made


def test_the_one_that_stands_where_the_range_begins() -> None:
    other, behind, fitting = reader(1, 20), reader(0, 10), reader(0, 20)
    idle = [other, fitting, behind]
    assert _chosen(idle, (TOPIC, 0), 20) is fitting
    assert idle == [other, behind], "it belongs to the caller now"


def test_else_the_one_that_read_this_partition_last() -> None:
    older, newer, other = reader(0, 10), reader(0, None), reader(1, 30)
    assert _chosen([older, newer, other], (TOPIC, 0), 30) is newer


def test_a_partition_gets_a_reader_of_its_own_while_there_are_few() -> None:
    idle = [reader(n, 0) for n in range(READERS_MAX - 1)]
    assert _chosen(idle, (TOPIC, 99), 0) is None
    assert len(idle) == READERS_MAX - 1


def test_of_many_the_one_that_has_waited_longest_changes_its_partition() -> None:
    idle = [reader(n, 0) for n in range(READERS_MAX)]
    first = idle[0]
    assert _chosen(idle, (TOPIC, 99), 0) is first
    assert _chosen([], (TOPIC, 0), 0) is None


class Skipping:
    """A consumer that skips an aborted transaction for some seconds, and hears nothing of it."""

    def __init__(self, clock: list[float], seconds: float, answers: bool) -> None:
        self.clock, self.until, self.answers = clock, seconds, answers

    def assign(self, places: Any) -> None: ...

    def consume(self, count: int, seconds: float) -> list[Any]:
        self.clock[0] += seconds
        return [Message()] if self.clock[0] >= self.until else []

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int] | None:
        return (0, 101) if self.answers else None


class Message:
    """The record after an aborted transaction."""

    def error(self) -> None: ...

    def offset(self) -> int:
        return 100


@pytest.mark.parametrize(
    "answers, seconds, is_read",
    [(True, 100, True), (False, 100, False), (True, 1000, False), (False, 10, True)],
)
def test_a_silent_broker_that_answers_is_skipping_and_not_away(
    monkeypatch: pytest.MonkeyPatch, answers: bool, seconds: float, is_read: bool
) -> None:
    pytest.importorskip("confluent_kafka", reason="kafka: confluent-kafka is not installed")
    clock = [0.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: clock[0])
    made: Any = reader(0, None)
    made.consumer = Skipping(clock, seconds, answers)
    settings = ClientSettings("127.0.0.1:1", None, (), "sources.kafka")
    if is_read:
        assert _read(made, settings, TOPIC, 0, 5, 50) == []
        return
    with pytest.raises(SourceUnavailable, match="no records from offset 5 to 50"):
        _read(made, settings, TOPIC, 0, 5, 50)
