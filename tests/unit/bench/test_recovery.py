"""When a job counts as recovered, and what the document says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.bench.recovery.kills import (
    Recovery,
    RecoveryOutcome,
    document,
    format_recovery,
    run_recovery,
)
from headrace.bench.recovery.watch import OutputPoller, latencies, recovery
from headrace.errors import HeadraceError

WRITTEN = {n: float(n) for n in range(1, 21)}


def test_a_job_has_recovered_when_latency_is_within_ten_percent_for_a_while() -> None:
    visible = {n: n + 0.5 for n in range(1, 11)}
    # Killed at 10.8: file 11 comes out late, 12 to 14 with it, 15 is quick by chance, 17 for good.
    visible |= {11: 16.0, 12: 16.0, 13: 16.0, 14: 16.0, 15: 15.5, 16: 18.0, 17: 18.9}
    visible |= {n: n + 0.54 for n in range(18, 21)}
    took, usual = recovery(WRITTEN, visible, 10.8, range(3, 10))
    assert usual == 0.5
    assert took == pytest.approx(18.54 - 10.8)


def test_a_kill_that_nobody_noticed_costs_the_wait_for_the_next_file() -> None:
    visible = {n: n + 0.5 for n in range(1, 21)}
    took, _ = recovery(WRITTEN, visible, 10.6, range(3, 10))
    assert took == pytest.approx(0.9)


def test_a_job_that_stays_slow_has_not_recovered() -> None:
    visible = {n: n + (0.5 if n <= 10 else 0.6) for n in range(1, 21)}
    assert recovery(WRITTEN, visible, 10.6, range(3, 10))[0] is None


def test_latency_is_known_of_files_that_are_visible() -> None:
    assert latencies({1: 1.0, 2: 2.0}, {1: 1.25}) == {1: 0.25}


def test_a_file_is_visible_when_a_row_tells_of_it_or_of_a_later_one(tmp_path: Path) -> None:
    watch = OutputPoller(tmp_path)
    (tmp_path / "epoch=1").mkdir()
    rows = [{"key": "a", "count": 2, "file": 1}, {"key": "b", "count": 1, "file": 3}]
    (tmp_path / "epoch=1" / "part-0").write_text("\n".join(map(json.dumps, rows)))
    watch.look()
    assert sorted(watch.visible) == [1, 2, 3]
    assert watch.counts == {"a": 2, "b": 1}


def test_the_document_has_a_ratio_and_a_bar_for_each_goal() -> None:
    def ran(*times: float | None) -> list[RecoveryOutcome]:
        return [RecoveryOutcome(time, 100.0, [100.0], True) for time in times]

    found = document(
        Recovery(),
        {
            "driver-cold": ran(20_000.0),
            "spark-native-driver-cold": ran(18_000.0),
            "driver-standby": ran(3_000.0, None, 4_500.0),
            "executor-kill": ran(None),
        },
        {},
        {},
    )
    assert found["systems"]["driver-standby"]["recovery_ms"] == 4_500.0
    assert found["systems"]["executor-kill"]["recovery_ms"] is None
    assert found["ratios"]["driver-standby / spark-native-driver-cold"] == 0.25
    assert found["ratios"]["driver-cold / spark-native-driver-cold"] == 1.1111
    reached = {bar["name"]: bar["reached"] for bar in found["bars"]}
    assert not any(reached.values())
    assert "MISSED" in format_recovery(found)
    assert "not in time" in format_recovery(found)


def test_the_table_tells_the_slowest_file_of_the_middle_round() -> None:
    runs = [RecoveryOutcome(1.0, 100.0, [], True, None, slowest) for slowest in (900.0, 300.0, 4e3)]
    found = document(Recovery(), {"executor-kill": runs}, {}, {})
    assert found["systems"]["executor-kill"]["slowest_ms"] == 900.0
    assert "900 ms" in format_recovery(found)


def test_an_unknown_system_is_refused_before_anything_starts() -> None:
    with pytest.raises(HeadraceError, match=r"no system is called 'flink'"):
        run_recovery(Recovery(), ["flink"])
