"""Nexmark on Spark: by the command, and in epochs of a running session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import environment, rows
from tests.unit.workloads.nexmark.events import awkward, generated, write_events
from tests.unit.workloads.nexmark.oracle import Oracle, comparable

from headrace import Pipeline, sinks
from headrace.workloads.nexmark.events.reader import event_files, read_foreign
from headrace.workloads.nexmark.registry import QUERIES, pipeline
from headrace.workloads.nexmark.streams import Auction

pytestmark = pytest.mark.spark

EVENTS = 3_000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("nexmark") / "events.jsonl"
    write_events(file, [*generated(EVENTS, 100.0), *awkward()])
    return file


def answer(query: str, output: Path) -> list[tuple[object, ...]]:
    about = QUERIES[query]
    found = rows(output)
    if about.key:
        found = list({tuple(row[name] for name in about.key): row for row in found}.values())
    return comparable([tuple(row[name] for name in about.columns) for row in found])


@pytest.mark.parametrize("query", ["q5", "q9", "q19"])
def test_epochs_on_spark_answer_as_duckdb_does(
    query: str, file: Path, spark: SparkSession, tmp_path: Path
) -> None:
    def auction(p: Pipeline) -> Auction:
        return Auction.of_events(p, read_foreign(p, event_files(str(file))))

    asked = pipeline(query, auction, sinks.jsonl(tmp_path / "out"))
    asked.run(checkpoint=str(tmp_path / "state"), spark=spark, slots=2, epoch_records=1_600)
    assert answer(query, tmp_path / "out") == Oracle(file).rows(query)


def test_the_command_answers_as_duckdb_does_and_says_how_fast(file: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "headrace.cli.main", "nexmark", "q4", "--input", str(file),
        "--output", str(tmp_path / "out"), "--json", str(tmp_path / "q4.json"),
        "--checkpoint", str(tmp_path / "state"), "--slots", "2", "--master", "local[2]",
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert answer("q4", tmp_path / "out") == Oracle(file).rows("q4")
    told = json.loads((tmp_path / "q4.json").read_text())
    assert (told["query"], told["records"], told["late"]) == ("q4", EVENTS + len(awkward()), 0)
    assert told["rows"] == len(rows(tmp_path / "out")) and told["epochs"] >= 1
    assert told["rate"] == pytest.approx(told["records"] / told["seconds"], rel=0.01)


def test_the_command_writes_what_is_no_event_aside(tmp_path: Path) -> None:
    bid = {"kind": "bid", "auction": 1, "bidder": 2, "price": 2**53 + 1, "date_time": 10**15}
    lines = [json.dumps(bid), "no JSON", json.dumps({**bid, "price": "3"}), json.dumps(bid)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    command = [
        sys.executable, "-m", "headrace.cli.main", "nexmark", "q1", "--master", "local[2]",
        "--input", str(tmp_path / "events.jsonl"), "--output", str(tmp_path / "out"),
        "--dead", str(tmp_path / "dead"), "--json", str(tmp_path / "q1.json"),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["price"] for row in rows(tmp_path / "out")] == [float(2**53) * 0.908] * 2
    assert len(rows(tmp_path / "dead")) == 2
    told = json.loads((tmp_path / "q1.json").read_text())
    assert (told["records"], told["rows"], told["dead"]) == (3, 2, 2)
