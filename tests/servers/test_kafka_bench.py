"""`headrace bench kafka`, small: every system counts right, and the peer is there or is named."""

from __future__ import annotations

from pathlib import Path

from tests.servers.kafka import thorough

from headrace.bench.kafka.run import CHANGES, FILES, PEER, TOPICS, KafkaShape, run_kafka

pytestmark = thorough


def test_all_systems_count_alike(tmp_path: Path):
    shape = KafkaShape(2_000, 50, epochs=2, warmup_epochs=2, latency_records=4)
    made = run_kafka(shape, work_dir=tmp_path)
    assert made["results_equal"]
    assert {FILES, TOPICS, CHANGES} <= set(made["systems"])
    assert (PEER in made["systems"]) != (PEER in made["unavailable"])
