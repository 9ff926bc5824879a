"""Latency under an open load: paces, percentiles, and what becomes of them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from headrace.bench.latency import beside
from headrace.bench.latency.arithmetic import (
    ArrivedFile,
    Rate,
    VisibleEpoch,
    closing,
    file_sizes,
    percentiles,
    rates_of,
    when_visible,
)
from headrace.bench.latency.beside import format_beside, load_of, with_latency
from headrace.bench.latency.members import Config, pipeline_of
from headrace.bench.latency.queries import PEERS_OF, QUERIES, make_query
from headrace.bench.latency.run import LatencyWorkload, document, format_latency, loadable
from headrace.bench.latency.stages import Loaded, StageFigures
from headrace.bench.latency.streams import FORMS, form_of
from headrace.bench.peers.foreign.bytewax_open import Board
from headrace.bench.report.plots import plots_of
from headrace.bench.servers.processes import CACHE
from headrace.bench.workload import CountWorkload
from headrace.cli.bench.loads import OpenLoad
from headrace.cli.main import cli
from headrace.engine.leading.polling import POLL_FIRST_S, POLL_S, pause_s
from headrace.errors import HeadraceError
from headrace.testing import Harness


def test_a_rate_is_a_share_of_the_capacity_or_records_per_second():
    assert Rate(0.5).records_per_s(1_000) == 500
    assert Rate(250).records_per_s(1_000) == 250
    assert Rate(250).share(1_000) == 0.25
    assert rates_of("0.1, 0.5") == (Rate(0.1), Rate(0.5))


@pytest.mark.parametrize("given", ["", "half", "0", "-1", "0.5;0.9", "nan", "inf"])
def test_what_is_no_rate_is_refused(given: str):
    with pytest.raises(HeadraceError, match="rate"):
        rates_of(given)


def test_files_hold_together_as_many_records_as_the_rate_says():
    assert file_sizes(25, 0.1, 4) == [2, 3, 3, 2]
    assert sum(file_sizes(333.3, 0.1, 100)) == 3333
    with pytest.raises(HeadraceError, match="less than one"):
        file_sizes(5, 0.1, 10)


def test_percentiles_are_of_records_and_not_of_files():
    assert percentiles([10.0, 20.0], [50, 50]) == {"p50": 10.0, "p95": 20.0, "p99": 20.0}
    assert percentiles([30.0, 10.0], [1, 99]) == {"p50": 10.0, "p95": 10.0, "p99": 10.0}
    assert percentiles([7.0], [1]) == {"p50": 7.0, "p95": 7.0, "p99": 7.0}
    hundred = percentiles([float(ms) for ms in range(1, 101)], [1] * 100)
    assert hundred == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    with pytest.raises(HeadraceError, match="no latency"):
        percentiles([], [])


def test_a_file_is_visible_with_the_epoch_that_takes_its_last_record():
    files = [ArrivedFile(10, 1.0, 0), ArrivedFile(10, 2.0, 0), ArrivedFile(10, 3.0, 0)]
    steps = [VisibleEpoch(1, 15, 5.0), VisibleEpoch(2, 0, 6.0), VisibleEpoch(3, 15, 7.0)]
    assert when_visible(files, steps) == [5.0, 7.0, 7.0]
    with pytest.raises(HeadraceError, match="only 15 of 20"):
        when_visible(files, steps[:2])


def test_a_window_waits_for_the_first_file_that_reaches_its_end():
    files = [ArrivedFile(1, 1.0, 99), ArrivedFile(1, 2.0, 199), ArrivedFile(1, 3.0, 299)]
    assert closing(files, 100) == 1
    assert closing(files, 199) == 1
    assert closing(files, 300) is None


@pytest.mark.parametrize(
    ("name", "adds_values"),
    [("keyed-count", False), ("keyed-count", True), ("windowed-count", False), ("top-k", False)],
)
def test_our_pipeline_answers_what_the_query_expects(tmp_path: Path, name: str, adds_values: bool):
    query = make_query(name, keys=20, tick_s=0.1, seed=1, adds_values=adds_values, hot=0.3)
    (tmp_path / "in").mkdir()
    config = Config("headrace", name, 200_000, 2, str(tmp_path), adds_values)
    with Harness(pipeline_of(config, tmp_path)) as h:
        for _ in range(9):
            h.send("records", *query.table(50).to_pylist())
        h.settle()
        rows = h.read("counts")
    assert query.mismatches([pa.Table.from_pylist(rows)]) == []
    one_less = rows[1:] if query.by_time else rows[:-1]
    assert query.mismatches([pa.Table.from_pylist(one_less)])
    if query.by_time:
        assert set(query.closes(pa.Table.from_pylist(rows)) % 200_000) == {0}


@pytest.mark.parametrize(
    ("name", "ticks", "events"), [("q3", 4, 4_000), ("q8", 40, 100), ("q11", 40, 100)]
)
def test_our_joins_and_sessions_are_those_that_the_query_expects(
    tmp_path: Path, name: str, ticks: int, events: int
):
    query = make_query(name, keys=20, tick_s=0.1, seed=1)
    (tmp_path / "in").mkdir()
    with Harness(pipeline_of(Config("headrace", name, 0, 2, str(tmp_path)), tmp_path)) as h:
        for _ in range(ticks):
            h.send("events", *query.table(events).to_pylist())
        h.settle()
        rows = pa.Table.from_pylist(h.read(name))
    assert len(rows) > 5
    assert query.mismatches([rows]) == []
    assert query.mismatches([rows[:-1] if name == "q3" else rows[1:]])
    assert query.mismatches([rows, rows[:1]])
    if query.by_time:
        ends = rows["end_time" if name == "q11" else "window_start"].to_numpy()
        assert (query.closes(rows) > ends).all()


def test_events_follow_the_pace_ten_times_as_fast():
    query = make_query("q11", keys=5, tick_s=0.1, seed=1)
    first, second = query.table(10), query.table(1_000)
    assert second["date_time"][0].as_py() - first["date_time"][0].as_py() == 1_000_000
    assert second["date_time"][-1].as_py() == query.reached()
    assert first["bidder"].to_pylist() != second["bidder"][:10].to_pylist()


def test_no_session_ends_by_exactly_its_gap():
    query = make_query("q11", keys=5, tick_s=0.1, seed=1)
    ticks = [query.table(2_000)["date_time"].to_pylist() for _ in range(40)]
    assert all(times == sorted(times) for times in ticks)
    inner = {at for times in ticks for at in times[1:-1]}
    edges = {at for times in ticks for at in (times[0], times[-1])}
    assert not (inner | edges) & {at + 10_000_000 for at in inner}
    assert not inner & {at + 10_000_000 for at in edges}


def test_a_top_that_is_no_top_is_found():
    query = make_query("top-k", keys=30, tick_s=0.1, seed=1)
    tables = [query.table(200) for _ in range(8)]
    counts: dict[str, int] = {}
    for key in pa.concat_tables(tables[:2])["key"].to_pylist():
        counts[key] = counts.get(key, 0) + 1
    start = tables[0]["ts"][0].as_py()
    found = [{"key": k, "window_start": start, "count": n} for k, n in counts.items()]
    assert any(
        "expected nothing" in line for line in query.mismatches([pa.Table.from_pylist(found)])
    )


def test_peers_that_have_no_open_load_are_named_and_others_refused():
    loaded, left_out = loadable("q11", ["bytewax", "spark-tws", "spark-native", "spark-tws"])
    assert loaded == ["spark-tws", "spark-native"]
    assert "keyed count only" in left_out["bytewax"]
    with pytest.raises(HeadraceError, match="spark-tws"):
        loadable("top-k", ["spark-tws"])
    shown = format_latency(
        document(
            LatencyWorkload(),
            {"headrace": 200.0},
            rates_of("0.5"),
            {"headrace": [[measured(1, 2)]]},
            {},
            {},
            left_out,
        )
    )
    assert "left out: bytewax: an open load is there" in shown


def test_a_file_is_visible_in_bytewax_when_each_of_its_keys_has_a_row():
    board = Board()
    board.came(0, 100, 2)
    board.came(1, 50, 1)
    board.wrote(0, [0], 1.0)
    board.wrote(1, [1, 0], 2.0)
    assert board.settle(150) == [(0, 0, 1.0), (1, 150, 2.0)]
    assert board.settle(150) == []


@pytest.mark.parametrize("adds_values", [False, True])
def test_bytewax_counts_what_appears_in_a_directory(tmp_path: Path, adds_values: bool):
    if not any((home / ".done").exists() for home in CACHE.glob("bytewax-*")):
        pytest.skip("bytewax is not installed: `headrace bench keyed-count --peers bytewax`")
    query = make_query("keyed-count", keys=30, tick_s=0.1, seed=1, adds_values=adds_values)
    config = Config("bytewax", "keyed-count", 0, 1, str(tmp_path / "home"), adds_values)
    member = Loaded(config, query, tick_s=0.1)
    try:
        member.process.rest()
        assert member.burst(4_000) > 0
        figures = member.stage(500.0, 1.0)
        assert 0 < figures.percentiles["p50"] <= figures.percentiles["p99"]
        outputs = [rows for _, rows in member.outputs()]
        member.process.end()
    finally:
        member.process.kill()
    assert query.mismatches(outputs) == []
    assert query.mismatches(outputs[:-1])


@pytest.mark.parametrize("query", QUERIES)
def test_every_peer_has_a_form_of_every_query_that_it_is_asked(query: str):
    for peer in PEERS_OF[query]:
        if peer != "bytewax":
            assert form_of(peer, query) is FORMS[peer]
    assert {*FORMS, "bytewax"} == set(PEERS_OF["keyed-count"])


def test_the_figures_of_an_open_load_stand_beside_the_throughput():
    asked: list[LatencyWorkload] = []

    def run(load: LatencyWorkload, rates: object, peers: object, **_: object) -> dict[str, Any]:
        asked.append(load)
        return document(
            load,
            {"headrace": 200.0, "spark-native": 100.0},
            rates_of("0.5"),
            {"headrace": [[measured(1, 2)]], "spark-native": [[measured(100, 200)]]},
            {"spark-native": ["k1: 1, expected 2"]},
            {},
        )

    workload = CountWorkload(query="top-k", keys=7, hot=0.5, seed=3, records=10)
    load = load_of(workload, seconds=2.0, burst_records=80)
    before = {"results_equal": True, "bars": [{"name": "throughput"}], "systems": {}}
    found = with_latency(
        before, load, rates_of("0.5"), [], rounds=1, work_dir=None, say=print, run=run
    )
    assert (asked[0].query, asked[0].keys, asked[0].hot, asked[0].seed) == ("top-k", 7, 0.5, 3)
    assert found["results_equal"] is False
    assert len(found["bars"]) == 3
    assert found["latency"]["systems"]["headrace"]["latency_ms_p50"] == 1
    shown = format_beside(found, lambda own: f"own table, {len(own['bars'])} bar")
    assert shown.startswith("own table, 1 bar\n")
    assert "ours / spark-native" in shown
    assert [plot.name for plot in plots_of("top", {**found, "benchmark": "top-k"})] == ["top-load"]


def test_the_throughput_is_kept_should_the_load_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> dict[str, Any]:
        raise HeadraceError("the peer died")

    monkeypatch.setattr(beside, "with_latency", fail)
    load = OpenLoad.of(CountWorkload(), [], "0.5", seconds=1.0, burst=80)
    assert load is not None
    kept = tmp_path / "out" / "q.json"
    with pytest.raises(HeadraceError, match="died"):
        load.add_to({"benchmark": "keyed-count"}, rounds=1, work_dir=None, json_file=kept)
    assert json.loads(kept.read_text())["benchmark"] == "keyed-count"


@pytest.mark.parametrize("command", ["keyed-count", "windowed-count", "top-k", "nexmark"])
@pytest.mark.parametrize("peer", ["storm", "spark-bare", "spark-native-windows"])
def test_a_system_that_is_no_peer_is_refused_before_anything_is_measured(command: str, peer: str):
    result = CliRunner().invoke(cli, ["bench", command, "--peers", peer, "--rounds", "1"])
    assert result.exit_code == 1 and f"has no peer '{peer}'" in result.output


@pytest.mark.parametrize("command", ["keyed-count", "windowed-count", "top-k", "nexmark"])
def test_a_rate_is_checked_before_anything_is_measured(command: str):
    result = CliRunner().invoke(cli, ["bench", command, "--rate", "fast"])
    assert result.exit_code != 0
    assert "0.5" in result.output + str(result.exception)


@pytest.mark.parametrize(
    "arguments", [["--state-keys", "20", "--rate", "0.5"], ["--no-ours", "--rate", "0.5"]]
)
def test_an_open_load_that_would_be_another_question_is_refused(arguments: list[str]):
    arguments = ["bench", "keyed-count", "--peers", "spark-native", *arguments]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    assert "open load" in result.output + str(result.exception)


def outputs_of(tables: list[pa.Table]) -> Iterator[pa.Table]:
    counts: dict[str, int] = {}
    for table in tables:
        for key in table["key"].to_pylist():
            counts[key] = counts.get(key, 0) + 1
        yield pa.table({"key": list(counts), "count": list(counts.values())})


def test_a_wrong_or_missing_count_is_found():
    query = make_query("keyed-count", keys=5, tick_s=0.1, seed=1)
    tables = [query.table(40) for _ in range(3)]
    assert query.mismatches(outputs_of(tables)) == []
    assert query.mismatches(outputs_of(tables[:2]))


def test_event_time_follows_the_pace():
    query = make_query("windowed-count", keys=5, tick_s=0.1, seed=1)
    first, second = query.table(10), query.table(1_000)
    assert first["ts"][0].as_py() % 200_000 == 0
    assert second["ts"][0].as_py() - first["ts"][0].as_py() == 100_000
    assert second["ts"][-1].as_py() == query.reached()


def measured(p50: float, p99: float) -> StageFigures:
    return StageFigures(100.0, {"p50": p50, "p95": p99, "p99": p99}, 10, 1.0)


def test_the_document_has_a_sweep_by_system_and_judges_bars_at_half_load():
    rates = rates_of("0.1,0.5")
    found = document(
        LatencyWorkload(),
        {"headrace": 200.0, "spark-native": 100.0},
        rates,
        {
            "headrace": [[measured(1, 2)], [measured(30, 50), measured(50, 70), measured(40, 60)]],
            "spark-native": [[measured(9, 9)], [measured(100, 200)]],
        },
        {},
        {},
    )
    assert [point["share"] for point in found["sweep"]["headrace"]] == [0.1, 0.5]
    assert found["sweep"]["headrace"][1]["p50"] == 40
    assert found["sweep"]["headrace"][1]["p50_low"] == 30
    assert found["ratios"]["spark-native"] == {"p50": 0.4, "p95": 0.3, "p99": 0.3}
    assert [bar["reached"] for bar in found["bars"]] == [True, True]
    assert "reached" in format_latency(found)


def test_wrong_results_reach_no_bar():
    found = document(
        LatencyWorkload(),
        {"headrace": 200.0, "spark-native": 100.0},
        rates_of("0.5"),
        {"headrace": [[measured(1, 2)]], "spark-native": [[measured(100, 200)]]},
        {"headrace": ["k1: 1, expected 2"]},
        {},
    )
    assert not found["results_equal"]
    assert not any(bar["reached"] for bar in found["bars"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "fast"], "0.5"),
        (["--rate", "0"], "above 0"),
        (["--tick", "0.0000001"], "at least 0.001"),
        (["--query", "q99"], "q99"),
        (["--peers", "storm", "--rounds", "1"], "storm"),
    ],
)
def test_the_command_refuses_what_it_cannot_measure(arguments: list[str], said: str):
    result = CliRunner().invoke(cli, ["bench", "latency", *arguments])
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_looks_for_input_follow_an_epoch_at_once_and_get_rarer():
    assert pause_s(0.0) == POLL_FIRST_S
    assert pause_s(0.1) == 0.025
    assert pause_s(60.0) == pause_s(float("inf")) == POLL_S
