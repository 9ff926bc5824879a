"""The windowed benchmarks: what they expect, what they compare, which bars they know."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.bench.frame.runner import SystemOutcome, find_mismatches
from headrace.bench.frame.system import (
    OURS,
    WINDOWS_NATIVE,
    WINDOWS_TWS,
    WINDOWS_TWS_ROW,
    Task,
)
from headrace.bench.windowed import EVEN_LABEL, PEERS_OF, bars, run_windowed
from headrace.bench.workload import (
    TOP,
    CountWorkload,
    expected_counts,
    judged_until,
    window_us,
    windowed_counts,
    write_input,
)
from headrace.cli.bench.counts import PEERS_OF_WINDOWS
from headrace.errors import HeadraceError


def small(**options: object) -> CountWorkload:
    return CountWorkload(
        **{"records": 4_000, "keys": 40, "epochs": 2, "warmup_epochs": 1, **options}
    )


@pytest.mark.parametrize("query", ["windowed-count", "top-k"])
def test_what_is_expected_is_what_the_files_hold(tmp_path: Path, query: str):
    workload = small(query=query, hot=0.5)
    size = window_us(workload)
    windows: dict[int, Counter[str]] = {}
    for path in write_input(workload, tmp_path):
        for record in pq.read_table(path).to_pylist():
            windows.setdefault(record["ts"] // size * size, Counter())[record["key"]] += 1
    wanted = {}
    for start, counts in windows.items():
        if start + size <= judged_until(workload):
            best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            best = best[:TOP] if query == "top-k" else best
            wanted |= {f"{key}@{start}": count for key, count in best}
    found = expected_counts(workload)
    assert dict(zip(found["key"].to_pylist(), found["count"].to_pylist(), strict=True)) == wanted
    assert wanted


def test_one_hot_key_has_its_share():
    found = expected_counts(small(query="windowed-count", hot=0.9))
    counts: Counter[str] = Counter()
    for key, count in zip(found["key"].to_pylist(), found["count"].to_pylist(), strict=True):
        counts[key.partition("@")[0]] += count
    assert 0.88 < counts["k000000"] / counts.total() < 0.92


def test_rows_of_windows_that_may_still_be_open_are_not_compared():
    workload = small(query="windowed-count")
    late = judged_until(workload)
    table = windowed_counts(workload, ["a", "b"], [late - window_us(workload), late], [1, 2])
    assert table["key"].to_pylist() == [f"a@{late - window_us(workload)}"]
    assert find_mismatches(table, table) == []


def test_bars_belong_to_their_shapes(tmp_path: Path):
    def launch(system: str, task: Task) -> SystemOutcome:
        speed = 100.0 if system == OURS and not task.workload.hot else 120.0
        return SystemOutcome(system, [speed, speed], 2_000, [], {}, {})

    def known(**options: object) -> list[tuple[str, bool]]:
        workload = CountWorkload(query="windowed-count", epochs=1, warmup_epochs=0, **options)
        document = run_windowed(workload, peers=["spark-native"], work_dir=tmp_path, launch=launch)
        assert document["results_equal"]
        return [(bar["name"], bar["reached"]) for bar in document["bars"]]

    assert known(records=2_000) == [(f"epoch p50 / {WINDOWS_NATIVE}", False)]
    assert known(records=2_000, hot=0.9) == []
    assert known(records=1_000, keys=7) == []
    assert EVEN_LABEL == "headrace-even-keys"


def test_both_forms_of_transform_with_state_have_a_bar():
    def found(against: dict[str, float], records: int = 1_000_000) -> dict[str, bool]:
        workload = CountWorkload(query="windowed-count", records=records)
        ratios = {name: {"throughput": ratio} for name, ratio in against.items()}
        return {bar.name: bar.reached for bar in bars(workload, ratios)}

    asked = found({WINDOWS_NATIVE: 2.0, WINDOWS_TWS: 3.0, WINDOWS_TWS_ROW: 2.9})
    assert asked == {
        f"throughput / {WINDOWS_NATIVE}": True,
        f"throughput / {WINDOWS_TWS}": True,
        f"throughput / {WINDOWS_TWS_ROW}": False,
    }
    assert found({WINDOWS_TWS: 3.0}, records=1_000) == {}


@pytest.mark.parametrize("query", PEERS_OF_WINDOWS)
def test_the_command_names_the_peers_that_there_are(query: str):
    assert set(PEERS_OF_WINDOWS[query]) == set(PEERS_OF[query])  # type: ignore[index]


def test_a_share_of_more_than_all_is_refused():
    with pytest.raises(HeadraceError, match="hot"):
        CountWorkload(hot=1.5)
