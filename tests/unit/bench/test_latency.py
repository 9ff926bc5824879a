"""Latency under an open load: paces, percentiles, and what becomes of them, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

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
from headrace.bench.latency.members import Config, pipeline_of
from headrace.bench.latency.queries import make_query
from headrace.bench.latency.run import LatencyWorkload, document, format_latency
from headrace.bench.latency.stages import StageFigures
from headrace.cli.main import cli
from headrace.engine.leading.polling import POLL_FIRST_S, POLL_S, pause_s
from headrace.errors import HeadraceError
from headrace.testing import Harness


def test_a_rate_is_a_share_of_the_capacity_or_records_per_second():
    assert Rate(0.5).records_per_s(1_000) == 500
    assert Rate(250).records_per_s(1_000) == 250
    assert Rate(250).share(1_000) == 0.25
    assert rates_of("0.1, 0.5") == (Rate(0.1), Rate(0.5))


@pytest.mark.parametrize("given", ["", "half", "0", "-1", "0.5;0.9", "nan"])
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


@pytest.mark.parametrize("name", ["keyed-count", "windowed-count"])
def test_our_pipeline_answers_what_the_query_expects(tmp_path: Path, name: str):
    query = make_query(name, keys=20, tick_s=0.1, seed=1)
    (tmp_path / "in").mkdir()
    config = Config("headrace", name, 200_000, 2, str(tmp_path))
    with Harness(pipeline_of(config, tmp_path)) as h:
        for _ in range(9):
            h.send("records", *query.table(50).to_pylist())
        h.settle()
        rows = h.read("counts")
    assert query.mismatches([pa.Table.from_pylist(rows)]) == []
    if name == "windowed-count":
        assert set(query.closes(pa.Table.from_pylist(rows)) % 200_000) == {0}


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
