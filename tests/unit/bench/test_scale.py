"""The benchmark of large rings, on a small scale."""

from __future__ import annotations

import json

import msgspec

from headrace.bench.elastic.scale import ScaleWorkload, format_scale, run_scale
from headrace.limits import LIMITS


def test_commits_do_not_grow_with_intervals_and_recovery_finds_the_same_ledger() -> None:
    document = run_scale(ScaleWorkload(intervals=(100, 3_000), slots=(8, 80), epochs=3, laps=2))
    json.dumps(document)
    assert document["results_equal"]
    few, many, wide = document["sizes"]
    assert (few["intervals"], many["intervals"], wide["slots"]) == (100, 3_000, 80)
    assert abs(many["commit_bytes"] - few["commit_bytes"]) < 20
    assert abs(many["order_bytes"] - few["order_bytes"]) < 200
    assert wide["commit_bytes"] < 12 * many["commit_bytes"]
    assert {"intervals", "slots", "driver_ms", "commit_bytes"} <= set(many)
    assert set(document["slope"]) == {"intervals", "slots"}
    shown = format_scale(document)
    assert "3,000" in shown and "recovered ledgers equal: yes" in shown


def test_the_defaults_are_the_sizes_that_the_bars_are_about() -> None:
    given = msgspec.structs.asdict(ScaleWorkload())
    assert (given["intervals"][0], given["intervals"][-1]) == (1_000, 500_000)
    assert (given["slots"][0], given["slots"][-1]) == (64, 10_000)
    # A lap ends where the default policy would have merged the segments of a slot.
    assert given["epochs"] <= LIMITS.merge_segments_min
