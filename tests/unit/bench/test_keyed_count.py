"""The benchmark around the systems, with systems that only pretend to run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.engine.support import driver_of, run

from headrace.bench import ours
from headrace.bench.frame.bars import peer_bars, state_bar
from headrace.bench.frame.result import format_table, write_document
from headrace.bench.frame.rounds import Contender, run_rounds
from headrace.bench.frame.runner import SystemOutcome, find_mismatches
from headrace.bench.frame.system import OURS, Task
from headrace.bench.keyed_count import STATE_FEW_LABEL, run_keyed_count
from headrace.bench.workload import CountWorkload, expected_counts, write_input
from headrace.errors import HeadraceError
from headrace.testing import Harness

SMALL = CountWorkload(records=2_000, keys=1_000, epochs=3, warmup_epochs=1)
EPOCH_MS = {
    "headrace": 100.0,
    "headrace-trivial": 30.0,
    "spark-bare": 25.0,
    "spark-bare-one-stage": 25.0,
}


def _pretend(system: str, task: Task) -> SystemOutcome:
    milliseconds = EPOCH_MS.get(system, 500.0)
    bare = system.startswith("spark-bare")
    return SystemOutcome(
        system=system,
        epoch_ms=[milliseconds] * task.workload.epochs,
        records=None if bare else task.workload.measured_records,
        mismatches=None if bare else [],
        latency_ms={},
        notes={},
    )


def test_ratios_are_ours_over_theirs_and_bars_follow_from_them() -> None:
    document = run_keyed_count(SMALL, ["spark-native", "spark-tws"], launch=_pretend)
    assert document["systems"][OURS]["records_per_s"] == 20_000
    assert document["ratios"]["spark-native"] == {"throughput": 5.0, "epoch_p50": 0.2}
    assert document["results_equal"] is True
    assert [bar["reached"] for bar in document["bars"]] == [True, True]
    assert "latency_ms_p50" not in document["systems"][OURS]


@pytest.mark.parametrize("hook", ["table", "record"])
def test_our_side_counts_what_the_workload_expects(tmp_path: Path, hook: str) -> None:
    workload = CountWorkload(records=200, keys=10, epochs=2, warmup_epochs=0, hook=hook)  # type: ignore[arg-type]
    p = ours.pipeline(Task(workload, tmp_path / "in", tmp_path / "out"))
    with Harness(p) as h:
        for path in write_input(workload, tmp_path / "in"):
            h.send("records", *pq.read_table(path).to_pylist())
        h.settle()
        for wanted in expected_counts(workload).to_pylist():
            assert h.state("count", wanted["key"]).count == wanted["count"]


@pytest.mark.parametrize("hook", ["table", "record"])
def test_what_our_side_delivers_is_what_is_compared(tmp_path: Path, hook: str) -> None:
    given: Any = {"hook": hook, "sink": "parquet"}
    shape = CountWorkload(records=200, keys=10, epochs=2, warmup_epochs=0, **given)
    task = Task(shape, tmp_path / "in", tmp_path)
    write_input(shape, task.input_dir)
    run(driver_of(ours.pipeline(task).freeze()))
    delivered = ours._delivered(task)
    assert find_mismatches(delivered, expected_counts(shape)) == []
    shutil.rmtree(sorted((tmp_path / "out").glob("epoch=*"))[-1])
    assert len(find_mismatches(ours._delivered(task), expected_counts(shape))) == 6


def test_a_peer_that_was_not_run_leaves_its_bar_unreached() -> None:
    bars = peer_bars(SMALL, {"spark-native": {"throughput": 5.0, "epoch_p50": 0.2}})
    assert [(bar.measured, bar.reached) for bar in bars] == [(None, False), (0.2, True)]


def test_a_bar_is_not_judged_on_another_shape_of_workload() -> None:
    ratios = {"spark-tws": {"throughput": 99.0, "epoch_p50": 0.01}}
    assert peer_bars(CountWorkload(records=100_000), ratios) == []
    large = CountWorkload(records=1_000_000)
    assert [bar.limit for bar in peer_bars(large, ratios)] == [10, 1.2]


def test_a_bar_just_missed_is_missed() -> None:
    assert not state_bar({"epoch_ms_p50": 116.0}, {"epoch_ms_p50": 100.0}).reached
    assert state_bar({"epoch_ms_p50": 115.0}, {"epoch_ms_p50": 100.0}).reached


def test_wrong_results_reach_no_bar() -> None:
    def wrong(system: str, task: Task) -> SystemOutcome:
        outcome = _pretend(system, task)
        if system == OURS and outcome.mismatches is not None:
            outcome.mismatches.append("k000001: counted 1, expected 2")
        return outcome

    document = run_keyed_count(SMALL, ["spark-native", "spark-tws"], launch=wrong)
    assert document["results_equal"] is False
    assert not any(bar["reached"] for bar in document["bars"])
    assert "k000001" in format_table(document)


def test_a_system_that_shows_no_counts_is_not_taken_to_agree() -> None:
    document = run_keyed_count(SMALL, ["spark-bare"], launch=_pretend, ours=False)
    assert document["results_equal"] is False


def test_the_floor_is_a_section_of_its_own_with_its_bar(tmp_path: Path) -> None:
    document = run_keyed_count(SMALL, [], floor=True, launch=_pretend)
    assert set(document["systems"]) == {OURS}
    assert "records_per_s" not in document["floor"]["spark-bare"]
    assert document["bars"][-1]["measured"] == 1.2
    assert document["bars"][-1]["reached"] is True
    write_document(document, tmp_path / "out" / "result.json")
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {"day", "commit"} == written.keys() - document.keys()
    assert written == written | document


def test_much_state_is_compared_with_our_own_run_over_little() -> None:
    seen: list[int] = []

    def watching(system: str, task: Task) -> SystemOutcome:
        seen.append(task.workload.state_keys)
        return _pretend(system, task)

    workload = CountWorkload(records=10, keys=5, epochs=1, warmup_epochs=0, state_keys=2_000_000)
    document = run_keyed_count(workload, [], launch=watching)
    assert seen == [2_000_000, 10_000]
    assert document["state_growth"][STATE_FEW_LABEL]["epoch_ms_p50"] == 100
    assert document["bars"] == [
        {
            "name": "epoch p50 with 2,000,000 keys in state / with 10,000",
            "bar": "at most 1.15",
            "measured": 1.0,
            "reached": True,
        }
    ]


def test_rounds_take_turns_and_the_median_counts(tmp_path: Path) -> None:
    order: list[str] = []

    def disturbed_at_first(system: str, task: Task) -> SystemOutcome:
        outcome = _pretend(system, task)
        if system not in order:
            outcome.epoch_ms[:] = [9_000.0] * len(outcome.epoch_ms)
        order.append(system)
        return outcome

    document = run_keyed_count(SMALL, ["spark-native"], rounds=3, launch=disturbed_at_first)
    assert order == [OURS, "spark-native", "spark-native", OURS, OURS, "spark-native"]
    assert document["systems"][OURS]["epoch_ms_p50"] == 100
    assert len(document["rounds"][OURS]) == 3


def test_an_unknown_system_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="spark-twt.*choose from"):
        run_rounds([Contender("x", "spark-twt", SMALL)], 1, tmp_path, launch=_pretend)
    assert list(tmp_path.iterdir()) == []


def test_mismatches_name_the_keys_and_stay_short() -> None:
    expected = expected_counts(CountWorkload(records=100, keys=10, epochs=1, warmup_epochs=0))
    assert find_mismatches(expected, expected) == []
    assert find_mismatches(expected.take(list(reversed(range(10)))), expected) == []
    assert "nothing can be compared" in find_mismatches(expected[:0], expected[:0])[0]
    lost = find_mismatches(expected.slice(1), expected)
    assert len(lost) == 1
    assert lost[0].startswith("k000000: counted None, expected")
    assert find_mismatches(expected.slice(0, 0), expected)[-1] == "and 5 more"
    twice = expected.take([*range(10), 0])
    assert find_mismatches(twice, expected) == ["1 keys appear more than once"]
