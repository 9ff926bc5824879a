"""The rows of papers: their judgements on made-up points, their page, and how all are run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.bench.papers import clonos, floe, millwheel, s4, seep
from headrace.bench.papers.catalog import ROWS, row_of
from headrace.bench.papers.clonos.clock import CLONOS_42, CLONOS_75
from headrace.bench.papers.clonos.kills import CLONOS_6
from headrace.bench.papers.clonos.queries import CLONOS_5
from headrace.bench.papers.everything import run_all
from headrace.bench.papers.floe.balancing import FLOE_6A, FLOE_6B, FLOE_6C
from headrace.bench.papers.floe.checkpoints import FLOE_7
from headrace.bench.papers.floe.failures import FLOE_8A, FLOE_8B
from headrace.bench.papers.floe.replicas import FLOE_5
from headrace.bench.papers.millwheel.cache import MILLWHEEL_16, SHARES
from headrace.bench.papers.millwheel.intervals import MILLWHEEL_72
from headrace.bench.papers.millwheel.latency import MILLWHEEL_13
from headrace.bench.papers.millwheel.scale_out import MILLWHEEL_14
from headrace.bench.papers.millwheel.straggler import MILLWHEEL_11
from headrace.bench.papers.millwheel.watermarks import MILLWHEEL_15
from headrace.bench.papers.page import read_rows, render_page
from headrace.bench.papers.row import PaperRow, document
from headrace.bench.papers.s4.disk import S4_42, S4_T51
from headrace.bench.papers.s4.stores import S4_41, S4_45, S4_46, S4_47, S4_51
from headrace.bench.papers.seep.intervals import SEEP_12, SEEP_13, SEEP_15
from headrace.bench.papers.seep.replay import SEEP_11
from headrace.bench.papers.seep.roads import SEEP_6, SEEP_7
from headrace.bench.papers.seep.scaling import SEEP_9, SEEP_10
from headrace.bench.papers.seep.shedding import SEEP_8
from headrace.bench.papers.seep.state_size import RATES, SEEP_14, SIZES
from headrace.cli.main import cli
from headrace.errors import HeadraceError

ASKED = {
    "millwheel-13", "millwheel-14", "millwheel-15", "millwheel-16", "millwheel-11",
    "millwheel-7.2", "seep-6", "seep-7", "seep-8", "seep-9", "seep-10", "seep-11", "seep-12",
    "seep-15", "seep-13", "seep-14", "floe-5", "floe-6a", "floe-6b", "floe-6c", "floe-7",
    "floe-8a", "floe-8b", "clonos-5", "clonos-6", "clonos-7.5", "clonos-4.2", "s4-4.1", "s4-4.2",
    "s4-4.5", "s4-4.6", "s4-4.7", "s4-5.1", "s4-t5.1",
}  # fmt: skip


def stores(**speeds: float) -> dict[str, Any]:
    return {
        name: {
            "operations_per_s": speed, "writes_per_s": speed, "reads_per_s": speed, "promise": "p"
        }
        for name, speed in speeds.items()
    }  # fmt: skip


def sizes(growing: float, flat: float, flat_at_low: float = 0.0) -> dict[str, Any]:
    made = {
        way: {
            str(rate): {
                str(size): {
                    "epoch_ms_p50": 10 + step * at, "epoch_ms_p95": 10 + step * at
                }
                for at, size in enumerate(SIZES)
            }
            for rate in RATES
        }
        for way, step in (("full", growing), ("deltas", flat))
    }  # fmt: skip
    for at, size in enumerate(SIZES):  # at the lowest rate epochs are shorter than at the highest
        if flat_at_low:
            made["deltas"][str(RATES[0])][str(size)]["epoch_ms_p50"] = 2 + flat_at_low * at
    return made


def caches(ours: list[float], lru: list[float]) -> dict[str, Any]:
    return {
        "caches": {
            f"{share:g}": {
                "headrace": {"cpu_s": mine, "hit_rate": 0.5},
                "lru": {"cpu_s": theirs, "hit_rate": 0.5},
            }
            for share, mine, theirs in zip(SHARES, ours, lru)
        }
    }


def clocks(now: int, logged: int) -> dict[str, Any]:
    return {
        "clocks": {
            "now": {"determinants": now, "log_bytes": 1000 + 9 * now},
            "logged": {"determinants": logged, "log_bytes": 1000 + 9 * logged},
            "nothing": {"determinants": 0, "log_bytes": 1000},
        }
    }


def kills(cold: float, at_once: float = 2000.0, q8: float = 1000.0) -> dict[str, Any]:
    alone = {"executor-kill": 1000.0, "driver-cold": cold, "spark-native-executor-kill": 1500.0}
    three = {"executor-kills-staggered": 1900.0, "executor-kills-at-once": at_once}
    return {"recovery_ms": {"q3": alone | three, "q8": alone | {"executor-kill": q8}}}


def every(process: list[float], written: list[float], synced: list[float]) -> dict[str, Any]:
    return {
        "every": {
            str(n): {
                "lost_process_ms": p, "lost_written_ms": w, "epoch_ms_p95": s, "synced_bytes": s
            }
            for n, p, w, s in zip((1, 5, 10, 30), process, written, synced)
        }
    }  # fmt: skip


def ramp(more_at: float | None, last: float) -> dict[str, Any]:
    throughput = [500.0] * 8 + [900.0] * 4 + [last] * 10
    return {
        "rises_at_s": 8.0, "more_slots_at_s": more_at, "rate": 1500.0, "throughput": throughput
    }  # fmt: skip


def cascade(*decided_s: float) -> dict[str, Any]:
    texts = [f"serve: 1 move (ring: slot {n % 3} gives to slot 4)" for n in range(len(decided_s))]
    return {
        "seconds": 60.0,
        "decisions": [[at, text] for at, text in zip(decided_s, texts)],
        "latency_ms_p50_by_third": [100.0, 90.0, 80.0],
    }


def failures(*took: float) -> dict[str, Any]:
    return {"recovery_ms": dict(zip(("1", "3", "4", "5", "6"), took))}


def shedding(shed_late: int, first: str) -> dict[str, Any]:
    return {
        "epochs": [[10.0, 100, 5, 2, 2], [20.0, 200, 9, 4, 2], [30.0, 300, 9 + shed_late, 4, 2]],
        "shed": 9 + shed_late,
        "decisions": [[5.0, f"{first}: 2 -> 4 slots (scaler: why)"]],
        "behind_s": 1.0,
    }


def thresholds(*p95: float) -> dict[str, Any]:
    above = ("0.1", "0.3", "0.5", "0.7", "0.9")
    return {
        "thresholds": {
            name: {"p95": tail, "slots": 9 - 2 * at}
            for at, (name, tail) in enumerate(zip(above, p95))
        }
    }


def watermarks(*lags: float) -> dict[str, Any]:
    return {"lag_ms": list(lags), "stage_ms": 100.0, "epoch_ms_three_stages": 500.0}


def latency(off: float, on: float) -> dict[str, Any]:
    return {
        "off": {"p50": off, "p95": off, "epoch_ms_p50": 1.0},
        "on": {"p50": on, "p95": on, "epoch_ms_p50": 1.0},
    }


def roads(tolls: int, behind_s: float = 1.0, peak_at: int = 12) -> dict[str, Any]:
    return {
        "epochs": [[1.0, 10, 1, 1], [60.0, 900, tolls, 2]],
        "slowest_answer_s": [1.0] * peak_at + [4.0] + [1.0] * (60 - peak_at),
        "latency_ms": {"p50": 500.0, "p100": 4000.0},
        "rescales": [[10.0, "Roads: 1 -> 3 slots"]],
        "behind_s": behind_s,
    }


def expert(
    slots: int, settled: float = 900.0, **fixed: tuple[float, float, float]
) -> dict[str, Any]:
    return {
        "scaler": {"slots": slots, "settled_p95": settled},
        "fixed": {
            n: {"behind_s": behind, "needs": needs, "p95": p95}
            for n, (behind, needs, p95) in fixed.items()
        },
    }


def overheads(worst: float, simple: float = 0.0) -> dict[str, Any]:
    return {
        "queries": {q: {"overhead": o} for q, o in (("q1", simple), ("q2", 0.0), ("q5", worst))}
    }


def straggler(gap_s: float) -> dict[str, Any]:
    return {
        "budget_s": 1.2, "target_s": 0.6, "between_commits_s_max": gap_s, "burst_s": 10.0,
        "carried_max": 9000,
    }  # fmt: skip


SAME_AND_NOT: list[tuple[PaperRow, dict[str, Any], dict[str, Any]]] = [
    (MILLWHEEL_13, latency(10.0, 30.0), latency(30.0, 10.0)),
    (
        MILLWHEEL_14,
        {"slots": {"1": {"p50": 100, "p99": 200}, "2": {"p50": 110, "p99": 300}}},
        {"slots": {"1": {"p50": 100, "p99": 200}, "2": {"p50": 130, "p99": 300}}},
    ),
    (MILLWHEEL_15, watermarks(900, 950, 1000), watermarks(900, 1400, 1450)),
    (
        MILLWHEEL_16,
        caches([9, 8, 6, 5, 4, 4, 4], [9, 8, 7, 6, 4, 4, 4]),
        caches([9, 8, 8, 5, 4, 4, 4], [9, 8, 7, 6, 4, 4, 4]),
    ),
    (
        MILLWHEEL_16,
        caches([6.1, 6, 6, 5, 4, 4, 4], [9, 8, 7, 6, 4, 4, 4]),
        caches([0.332, 0.336, 0.342, 0.321, 0.317, 0.306, 0.317], [0.34] * 7),
    ),
    (MILLWHEEL_11, straggler(2.5), straggler(6.9)),
    (
        MILLWHEEL_72,
        {"intervals": [1_000, 500_000], "driver_cpu_ms": [1.0, 2.0]},
        {"intervals": [1_000, 500_000], "driver_cpu_ms": [1.0, 600.0]},
    ),
    (SEEP_6, roads(6), roads(2)),
    (SEEP_6, roads(6), roads(6, behind_s=20.0)),
    (SEEP_7, roads(6), roads(6, peak_at=40)),
    (SEEP_8, shedding(0, "parse"), shedding(0, "count")),
    (SEEP_8, shedding(0, "parse"), shedding(3, "parse")),
    (SEEP_9, thresholds(900, 300, 200, 250, 900), thresholds(100, 300, 300, 350, 900)),
    (
        SEEP_10,
        expert(10, **{"6": (9.0, 1.0, 9e3), "7": (1.0, 0.86, 900.0), "8": (0.1, 0.75, 500.0)}),
        expert(9, **{"6": (0.1, 0.80, 500.0), "7": (0.1, 0.7, 400.0)}),
    ),
    (SEEP_10, expert(5, **{"4": (0.1, 0.8, 900.0)}), expert(6, **{"4": (0.1, 0.8, 900.0)})),
    (
        SEEP_10,
        expert(9, **{"7": (0.1, 0.75, 1_100.0), "8": (0.1, 0.7, 900.0)}),
        expert(9, settled=1_100.0, **{"8": (0.1, 0.75, 500.0)}),
    ),
    (
        SEEP_11,
        {"recovery_ms": {"state-management": [5, 5, 6], "source-replay": [6, 9, 30]}},
        {"recovery_ms": {"state-management": [5, 5, 6], "source-replay": [9, 7, 7]}},
    ),
    (
        SEEP_12,
        every([10, 11, 9, 12], [10, 20, 30, 60], [9, 8, 7, 6]),
        every([10, 20, 30, 60], [10, 20, 30, 60], [9, 8, 7, 6]),
    ),
    (
        SEEP_15,
        every([1, 1, 1, 1], [1, 1, 1, 1], [9, 8, 7, 6]),
        every([1, 1, 1, 1], [1, 1, 1, 1], [6, 7, 8, 9]),
    ),
    (
        SEEP_13,
        {"every": {"1": {"serial": 50, "parallel": 55}, "30": {"serial": 900, "parallel": 500}}},
        {"every": {"1": {"serial": 50, "parallel": 55}, "30": {"serial": 900, "parallel": 800}}},
    ),
    (SEEP_14, sizes(50, 0.1), sizes(50, 50)),
    (SEEP_14, sizes(50, 0.1), sizes(50, 0.1, flat_at_low=3.0)),
    (
        FLOE_5,
        {"records_per_s": {"replicas 0": 100, "replicas 1": 95, "replicas 2": 90,
                           "round trip per record": 10}},
        {"records_per_s": {"replicas 0": 100, "replicas 1": 95, "replicas 2": 60,
                           "round trip per record": 10}},
    ),
    (FLOE_6A, cascade(3.0, 5.0, 9.0), cascade(3.0, 5.0, 59.0)),
    (FLOE_6B, ramp(10.0, 1500.0), ramp(10.0, 1000.0)),
    (FLOE_6B, ramp(10.0, 1500.0), ramp(None, 1500.0)),
    (
        FLOE_6C,
        {"rebalance_ms": {"100": {"1": {"p50": 20.0}, "4": {"p50": 300.0}}}},
        {"rebalance_ms": {"100": {"1": {"p50": 20.0}, "4": {"p50": 800.0}}}},
    ),
    (
        FLOE_7,
        {"intervals_s": {"2": {"share": 0.05}, "60": {"share": 0.6}}},
        {"intervals_s": {"2": {"share": math.nan}, "60": {"share": 0.6}}},
    ),
    (FLOE_8A, failures(900, 1000, 1100, 1200, 1300), failures(900, 1000, 1500, 2000, 2500)),
    (FLOE_8B, failures(900, 1000, 1100, 1200, 1300), failures(900, 1000, 1500, 2000, 2500)),
    (CLONOS_5, overheads(0.1), overheads(0.4)),
    (CLONOS_5, overheads(0.1), overheads(0.1, simple=0.1)),
    (CLONOS_42, clocks(0, 20_000), clocks(20_000, 20_000)),
    (CLONOS_6, kills(9000.0), kills(3000.0)),
    (CLONOS_6, kills(9000.0), kills(9000.0, at_once=9000.0)),
    (CLONOS_6, kills(9000.0), kills(9000.0, q8=2000.0)),
    (
        S4_41,
        {"together": {n: stores(files=10, log=40) for n in ("1", "1000")}},
        {"together": {n: stores(files=10, log=20) for n in ("1", "1000")}},
    ),
    (
        S4_42,
        {"entries": [10, 100, 1000], "open_ms": {"a": 1.0, "b": 9.0, "c": 90.0}},
        {"entries": [10, 100, 1000], "open_ms": {"a": 1.0, "b": 9.0, "c": 900.0}},
    ),
    (
        S4_45,
        {"by_epoch": stores(files=100, log=500, segments=900)},
        {"by_epoch": stores(files=100, log=400, segments=900)},
    ),
    (
        S4_46,
        {"stores": {"redis": {"writes_per_s": 9, "promise": "a"},
                    "hbase": {"writes_per_s": 5, "reads_per_s": 2, "promise": "b"}}},
        {"stores": {"redis": {"writes_per_s": 9, "promise": "a"}}},
    ),
    (
        S4_47,
        {"keys": {"1": stores(files=9, log=9), "2": stores(files=5, log=8)}},
        {"keys": {"1": stores(files=9, log=9), "2": stores(files=5, log=4)}},
    ),
    (S4_51, {"stores": stores(files=5, log=7)}, {"stores": stores(files=7, log=5)}),
    (
        S4_T51,
        {"writes_per_s": {"random": 1, "sequential": 2, "random, flushed": 1,
                          "sequential, flushed": 2}},
        {"writes_per_s": {"random": 1, "sequential": 2, "random, flushed": 2,
                          "sequential, flushed": 1}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("row", "same", "other"), SAME_AND_NOT, ids=lambda x: getattr(x, "id", ""))
def test_a_judgement_can_say_yes_and_no(
    row: PaperRow, same: dict[str, Any], other: dict[str, Any]
) -> None:
    assert row.judge(same).same_shape, row.judge(same).why
    assert not row.judge(other).same_shape, row.judge(other).why


def test_every_row_is_judged_in_both_ways_here() -> None:
    assert {row.id for row, _, _ in SAME_AND_NOT} == set(ROWS) - {"clonos-7.5"}


def test_all_figures_of_the_papers_are_rows() -> None:
    assert set(ROWS) == ASKED
    assert all(package.__doc__ for package in (clonos, floe, millwheel, s4, seep))


def test_what_does_not_apply_is_not_the_same_and_says_why() -> None:
    found = document(CLONOS_75, CLONOS_75.measure(lambda line: None))
    assert not found["same_shape"]
    assert "Spark's shuffle files are the in-flight log" in found["why"]


def test_wrong_results_make_any_shape_another_one() -> None:
    found = document(S4_51, {"stores": stores(files=5, log=7), "right": False})
    assert not found["same_shape"] and not found["results_equal"]
    assert "all results are right" in found["why"]


def test_a_row_on_a_loaded_machine_is_to_be_run_again() -> None:
    machine = {"cores": 2, "load_average_before": [7.5, 1, 1]}
    slow = document(S4_51, {"stores": stores(files=7, log=5)}, machine)
    assert "The load was 7.5 on 2 cores when it began" in slow["why"]
    assert "run it again on a quiet machine" in slow["why"]
    assert "reason" not in slow["why"], "what the reason is, the load does not say"
    quiet = document(S4_51, {"stores": stores(files=7, log=5)}, {**machine, "cores": 8})
    same = document(S4_51, {"stores": stores(files=5, log=7)}, machine)
    assert "load" not in quiet["why"] and "load" not in same["why"]


def test_unknown_rows_are_refused_by_name() -> None:
    with pytest.raises(HeadraceError, match=r"there is no row 'seep-99'; there are millwheel-13"):
        row_of("seep-99")


def test_all_rows_go_on_after_one_that_fails(tmp_path: Path) -> None:
    made = document(S4_51, {"stores": stores(files=5, log=7)})

    def launch(name: str, path: Path) -> str | None:
        if name == "floe-5":
            return "no cluster here"
        path.write_text(json.dumps(made | {"id": name}))
        return None

    said: list[str] = []
    page = tmp_path / "bench" / "PAPERS.md"
    failed = run_all(["floe-5", "s4-5.1"], tmp_path / "out", page, launch=launch, say=said.append)
    assert failed == ["floe-5"]
    assert "floe-5: failed: no cluster here" in said
    text = page.read_text()
    assert "| s4-5.1 | local disk, flushed: files 500" in text
    assert "1 of 34 rows were run; 1 have the same shape." in text
    assert text.count("| not run |") == len(ROWS) - 1
    assert all(f"| {name} |" in text for name in ASKED)


def test_two_figures_of_one_experiment_run_it_once(tmp_path: Path) -> None:
    ran: list[str] = []

    def launch(name: str, path: Path) -> str | None:
        ran.append(name)
        made = document(ROWS[name], failures(900, 1000, 1100, 1200, 2500))
        path.write_text(json.dumps(made | {"seconds": 7.0}))
        return None

    assert run_all(["floe-8a", "floe-8b"], tmp_path, None, launch=launch) == []
    assert ran == ["floe-8a"]
    found = read_rows(tmp_path)
    assert found["floe-8b"]["seconds"] == 7.0
    assert found["floe-8b"]["claims"] != found["floe-8a"]["claims"]


def test_the_page_shows_measured_numbers_and_keeps_its_table(tmp_path: Path) -> None:
    made = document(S4_51, {"stores": stores(files=7, log=5)}) | {
        "machine": {"cores": 2, "load_average_before": [7.5, 1, 1]}, "versions": {"python": "3.11"}
    }  # fmt: skip
    (tmp_path / "s4-5.1.json").write_text(json.dumps(made | {"why": "a | b\nc"}))
    (tmp_path / "other.json").write_text(json.dumps({"benchmark": "scale"}))
    text = render_page(read_rows(tmp_path))
    assert "stores files operations_per_s 7" in text
    assert "**no** | a \\| b c | 7.5 |" in text
    assert "2 cores: 7.5 to 7.5" in text
    (tmp_path / "half.json").write_text('{"benchmark": ')
    with pytest.raises(HeadraceError, match=r"half\.json is no JSON document"):
        read_rows(tmp_path)
    with pytest.raises(HeadraceError, match="there is no directory"):
        read_rows(tmp_path / "none")


def test_the_command_lists_rows_and_refuses_two_wishes() -> None:
    runner = CliRunner()
    listed = runner.invoke(cli, ["bench", "paper", "--list"])
    assert listed.exit_code == 0
    assert all(f"{name} " in listed.output for name in ASKED)
    both = runner.invoke(cli, ["bench", "paper", "s4-5.1", "--list"])
    assert both.exit_code == 2 and "give one of" in both.output
    none = runner.invoke(cli, ["bench", "paper"])
    assert none.exit_code == 2


def test_a_row_runs_from_the_command(tmp_path: Path) -> None:
    path = tmp_path / "row.json"
    ran = CliRunner().invoke(cli, ["bench", "paper", "clonos-7.5", "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    found = json.loads(path.read_text())
    assert found["id"] == "clonos-7.5" and not found["same_shape"]
    assert {"paper", "ours", "expect", "why", "machine", "versions"} <= set(found)


def test_the_clock_of_a_plan_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.bench.papers.clonos import clock

    monkeypatch.setattr(clock, "CALLS", 200)
    found = document(CLONOS_42, clock.measure(lambda line: None))
    assert found["same_shape"], found["why"]
    assert found["ours"]["clocks"]["now"]["determinants"] == 0
    assert found["ours"]["clocks"]["logged"]["determinants"] == 200 * clock.RECORDS


def test_keys_are_dealt_evenly_to_slots() -> None:
    from headrace.bench.papers.local.serving import balanced

    keys = balanced(4, 5)
    assert len({keys(n, Random(0)) for n in range(20)}) == 20
    assert keys(0, Random(0)) == keys(20, Random(0))
