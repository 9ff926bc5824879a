"""A partition of which nothing was read yet loses its first records; brokers are played here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import driver_of

from headrace import Pipeline, sinks, sources
from headrace.errors import SourceError
from headrace.kafka_client import Place, Topic
from headrace.model.source import Source
from headrace.plan.decisions.next_step import Run
from headrace.sources.kafka import source as module
from headrace.store.memory import MemoryStore

pytest.importorskip("confluent_kafka", reason="kafka: confluent-kafka is not installed")


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"%d" % self._offset

    def key(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self._offset


class Played:
    """A topic of two partitions; the second is quiet at first."""

    def __init__(self) -> None:
        self.firsts, self.ends = {0: 0, 1: 0}, {0: 3, 1: 0}

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {"orders": Topic("id", 2)}

    def asked(self, names: Iterable[str]) -> Any:
        return lambda: self.topics(names)

    def first_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.firsts[place[1]] for place in places}

    def end_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.ends[place[1]] for place in places}

    def read(self, settings: Any, topic: str, partition: int, start: int, end: int) -> list[Any]:
        return [Message(offset) for offset in range(start, end)]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(module.KafkaSource, "_brokers", lambda source: made)
    monkeypatch.setattr(module, "read_range", made.read)
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    return made


class Running:
    def __init__(self, source: Source, until: str = "caught_up") -> None:
        p = Pipeline("retention")
        p.read("in", source)
        self.sink, self.until = sinks.memory(), until
        p.stream("in").write(self.sink)
        self.topology, self.store = p.freeze(), MemoryStore()

    def run(self, **options: Any) -> None:
        driver = driver_of(self.topology, self.store, until=self.until, **options)
        while isinstance(driver.step(), Run):
            pass
        driver.close()


def test_a_quiet_partition_that_lost_its_first_records_is_told_and_can_be_accepted(
    played: Played,
) -> None:
    running = Running(sources.kafka("orders", servers="127.0.0.1:1"))
    running.run()
    played.firsts[1], played.ends[1] = 5, 7
    told = r"begins at offset 5 in partition 1, .* deleted 5 records .*accept_changed=.'orders'"
    for _ in range(2):
        with pytest.raises(SourceError, match=told):
            running.run()
    running.run(accept_changed=["orders"])
    played.ends[1] = 8
    running.run()
    assert sorted(running.sink.rows) == [0, 1, 2, 5, 6, 7]


def test_a_topic_that_comes_second_is_told_of_when_its_turn_has_come(
    played: Played, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("100\n")
    played.ends = {0: 3, 1: 9}
    files = sources.jsonl(str(tmp_path / "*.jsonl"), timestamp=lambda value: 1)
    running = Running(sources.then(files, sources.kafka("orders", servers="127.0.0.1:1")))
    driver = driver_of(running.topology, running.store, until="caught_up")
    driver.close()  # where the topic begins is decided
    played.firsts[1] = 5
    with pytest.raises(SourceError, match="offset 0 up to 5 before any of them was read. Start ag"):
        running.run()
    with pytest.raises(SourceError, match="deleted 5 records that were never read"):
        running.run()
    running.run(accept_changed=["orders"])
    assert sorted(running.sink.rows) == [0, 1, 2, 5, 6, 7, 8, 100]


def test_a_partition_that_is_finished_may_lose_its_records(played: Played) -> None:
    played.ends = {0: 3, 1: 2}
    running = Running(sources.kafka("orders", servers="127.0.0.1:1", stop={0: 3, 1: 0}), "end")
    running.run()
    played.firsts = {0: 3, 1: 2}
    for _ in range(3):
        running.run()
    assert running.sink.rows == [0, 1, 2]
