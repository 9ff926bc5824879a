"""An open load on Spark: what Headrace and a peer deliver is right, and has latencies."""

from __future__ import annotations

import pytest

from headrace.bench.latency.arithmetic import rates_of
from headrace.bench.latency.run import LatencyWorkload, run_latency

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("query", "peer"), [("q11", "spark-tws-row"), ("top-k", "spark-native")])
def test_rows_that_event_time_closes_have_latencies(query: str, peer: str):
    load = LatencyWorkload(query=query, keys=40, seconds=3.0, burst_records=4_000)
    found = run_latency(load, rates_of("2000"), [peer, "bytewax"], rounds=1)
    assert found.get("mismatches", {}) == {}
    assert set(found["systems"]) == {"headrace", peer}
    assert set(found["left_out"]) == {"bytewax"}
    for system in found["systems"].values():
        assert 0 < system["latency_ms_p50"] <= system["latency_ms_p99"]
