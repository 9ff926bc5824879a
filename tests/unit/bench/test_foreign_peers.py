"""Peers in environments of their own: pinned, named when they are missing, and right."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.bench.frame.bars import foreign_bars
from headrace.bench.frame.result import format_table
from headrace.bench.frame.runner import SystemOutcome, run_system
from headrace.bench.frame.system import BYTEWAX, FOREIGN, PYFLINK, Task
from headrace.bench.keyed_count import run_keyed_count
from headrace.bench.peers.foreign import entrants, environments
from headrace.bench.peers.foreign.system import lighter, rate_of
from headrace.bench.servers.processes import CACHE, CannotHave
from headrace.bench.workload import CountWorkload, window_us, write_input
from headrace.errors import HeadraceError

LARGE = CountWorkload(records=1_000_000, keys=1_000, epochs=10, warmup_epochs=3)


@pytest.mark.parametrize("peer", FOREIGN)
def test_every_requirement_is_pinned(peer: str):
    lines = environments.requirements_of(peer).read_text().splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in packages)
    assert environments.version_of(peer)


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    def cannot(peer: str) -> Path:
        raise CannotHave(f"{peer} cannot be installed: no wheel for this machine")

    monkeypatch.setattr(environments, "python_of", cannot)

    def launch(system: str, task: Task) -> SystemOutcome:
        assert system not in FOREIGN
        return SystemOutcome(system, [10.0], task.workload.measured_records, [], {}, {})

    workload = CountWorkload(records=100, keys=10, epochs=1, warmup_epochs=0)
    document = run_keyed_count(workload, ["bytewax", "spark-native"], launch=launch)
    assert "no wheel" in document["unavailable"]["bytewax"]
    assert "bytewax" not in document["systems"]
    assert "not measured: bytewax: bytewax cannot be installed" in format_table(document)


def test_the_bar_of_a_missing_peer_is_not_reached():
    [bar] = foreign_bars(["bytewax"], {})
    assert not bar.reached


def test_pyflink_gets_less_input_and_the_others_all():
    assert lighter(BYTEWAX, LARGE) == LARGE
    less = lighter(PYFLINK, LARGE)
    assert less.records < LARGE.records and less.keys == LARGE.keys


def test_windows_that_pyflink_closes_stand_for_as_many_records_as_those_of_others():
    large = replace(LARGE, query="windowed-count")
    less = lighter(PYFLINK, large)
    assert less.records < large.records
    assert window_us(less) / less.keys == window_us(large) / large.keys
    assert lighter(PYFLINK, replace(large, records=1_000)).keys == large.keys


def test_the_rate_of_workers_leaves_their_warm_up_out():
    one = {"seen": 300, "warm": 100, "began": 10.0, "ended": 12.0}
    idle = {"seen": 50, "warm": 50, "began": 10.0, "ended": 10.0}
    assert rate_of([one, one, idle]) == 200.0
    with pytest.raises(HeadraceError, match="more records"):
        rate_of([idle])


def test_an_unknown_peer_is_refused_before_anything_is_installed():
    with pytest.raises(HeadraceError, match="storm"):
        entrants.contenders_of(["headrace", "storm"], LARGE, lambda line: None)


MAKEFILE = Path(__file__).parents[3] / "Makefile"
FOREIGN_QUERIES = {"keyed-count", "windowed-count", "q3", "q8", "q11"}


def commands_of_bench() -> list[str]:
    """The commands of `make bench` that measure a query beside peers, each on one line."""
    text = MAKEFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    text = text.replace("$(KEYED_COUNT)", "$(BIN)/headrace bench keyed-count")
    body = text.partition("\nbench:")[2].partition("\n\n")[0]
    return [line for line in body.splitlines() if "--peers" in line]


@pytest.mark.parametrize(
    "measured",
    [
        ("bench keyed-count", "--warmup 30"),
        ("bench keyed-count", "--hook record"),
        ("bench windowed-count", "windowed-count-large"),
        ("bench nexmark", "q3 q8 q11"),
    ],
)
def test_make_bench_measures_each_query_beside_every_foreign_peer(measured: tuple[str, str]):
    [command] = [c for c in commands_of_bench() if all(part in c for part in measured)]
    [peers] = re.findall(r"--peers (\S+)", command)
    assert {*FOREIGN} <= set(peers.split(","))


def is_made(peer: str) -> bool:
    return any((home / ".done").exists() for home in CACHE.glob(f"{peer}-*"))


@pytest.mark.parametrize("query", ["keyed-count", "windowed-count", "q3", "q8", "q11"])
@pytest.mark.parametrize("hook", ["table", "record"])
def test_bytewax_gives_the_expected_results(tmp_path: Path, query: str, hook: str):
    if not is_made(BYTEWAX):
        pytest.skip("bytewax is not installed: `headrace bench keyed-count --peers bytewax`")
    if hook == "record" and query != "keyed-count":
        pytest.skip(f"{query} has one form")
    records = 50_000 if query.startswith("q") else 400
    assert_right(BYTEWAX, tmp_path, query=query, hook=hook, records=records)


@pytest.mark.parametrize(
    ("query", "hook"),
    [("keyed-count", "record"), *((query, "table") for query in sorted(FOREIGN_QUERIES))],
)
def test_pyflink_gives_the_expected_results(tmp_path: Path, query: str, hook: str):
    if not os.environ.get("HEADRACE_PYFLINK"):
        pytest.skip("pyflink takes a minute to start: HEADRACE_PYFLINK=1")
    records = 50_000 if query.startswith("q") else 400
    assert_right(PYFLINK, tmp_path, query=query, hook=hook, records=records)


def assert_right(peer: str, directory: Path, **shape: object) -> None:
    workload = CountWorkload(keys=10, epochs=3, warmup_epochs=1, **shape)  # type: ignore[arg-type]
    write_input(workload, directory / "in")
    (directory / "scratch").mkdir()
    outcome = run_system(peer, Task(workload, directory / "in", directory / "scratch"))
    assert outcome.mismatches == []
    assert len(outcome.epoch_ms) == workload.epochs
