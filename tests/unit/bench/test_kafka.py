"""`headrace bench kafka`: what it makes of its numbers, and how it names a missing peer."""

from __future__ import annotations

from typing import Any

from headrace.bench.kafka.run import CHANGES, FILES, PEER, TOPICS, KafkaShape, format_kafka, judged


def runs(records_per_s: float, latency_ms: float, rounds: int = 3) -> list[dict[str, float]]:
    return [
        {"records_per_s": records_per_s * n, "latency_ms_p50": latency_ms * n}
        for n in range(1, rounds + 1)
    ]


def document(found: dict[str, Any], unavailable: dict[str, str], equal: bool = True) -> Any:
    return {
        **judged(found, equal, unavailable), "results_equal": equal, "unavailable": unavailable
    }  # fmt: skip


def test_each_system_is_compared_with_the_one_that_does_the_same_work():
    found = {
        FILES: runs(1000, 50), TOPICS: runs(800, 100), CHANGES: runs(900, 40), PEER: runs(300, 200),
    }  # fmt: skip
    bars = document(found, {})["bars"]
    assert [bar["measured"] for bar in bars] == [0.8, 3.0, 0.2]
    assert all(bar["reached"] for bar in bars)
    assert not any(bar["reached"] for bar in document(found, {}, equal=False)["bars"])


def test_a_peer_that_is_not_to_be_had_is_named_with_the_reason():
    found = {FILES: runs(1000, 50), TOPICS: runs(600, 100), CHANGES: runs(900, 40)}
    made = document(found, {PEER: "spark-kafka-4.3.0 cannot be installed: not found"})
    assert len(made["bars"]) == 1
    said = format_kafka(made)
    assert "spark-native is not to be had: spark-kafka-4.3.0 cannot be installed" in said
    assert "MISSED" in said and "0.60 (at least 0.7)" in said


def test_the_backlog_fills_its_epochs():
    shape = KafkaShape(records=1000, keys=10, epochs=3, warmup_epochs=2)
    assert shape.epoch_records == 200
    rows = shape.rows()
    assert len(rows) == 1000 and len({row["key"] for row in rows}) == 10
