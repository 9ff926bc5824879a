"""`headrace state` over a checkpoint that a local run has left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.spark.support import run_local

from headrace import Checkpoint, Computation, Map, Pipeline, sources, state
from headrace.cli.main import cli


class Visits(Computation):
    count: int = state(0)
    pages: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.count += 1
        self.pages[record.value["page"]] = record.timestamp


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("visits") / "state")
    rows = [
        {"user": u, "page": p, "t": t} for t, (u, p) in enumerate(zip("abab", "xxyx", strict=True))
    ]
    p = Pipeline("visits")
    p.read("in", sources.memory(rows, timestamp="t"))
    p.compute(Visits, inputs={"in": "user"}, name="ByUser")
    p.compute(Visits, inputs={"in": ("user", "page")}, name="ByBoth")
    run_local(p, where)
    return where


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["state", *arguments], prog_name="headrace")


def test_list_names_the_pipeline_its_epochs_and_computations(checkpoint: str) -> None:
    output = headrace("list", checkpoint).output
    last = Checkpoint(checkpoint).epoch
    assert output.startswith(f"visits: epoch {last}\ncan be run again: epochs 1 to {last}\n")
    assert "ByBoth  (watermark the end)" in output and "ByUser" in output


def test_get_shows_a_key_however_it_is_typed(checkpoint: str) -> None:
    found = headrace("get", checkpoint, "ByUser", "a")
    assert json.loads(found.output) == {"count": 2, "pages": {"x": 0, "y": 2}}
    assert headrace("get", checkpoint, "ByUser", '"a"').output == found.output
    assert json.loads(headrace("get", checkpoint, "ByBoth", '["b", "x"]').output)["count"] == 2


def test_a_key_without_state_is_told_by_the_exit_status(checkpoint: str) -> None:
    answer = headrace("get", checkpoint, "ByUser", "nobody")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "ByUser has no state for the key 'nobody'" in answer.stderr


def test_scan_shows_keys_up_to_a_limit(checkpoint: str) -> None:
    answer = headrace("scan", checkpoint, "ByBoth", "--limit", "2")
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(rows) == 2 and all(len(row["key"]) == 2 for row in rows)
    assert "… and more" in answer.stderr
    assert headrace("scan", checkpoint, "ByBoth").stdout.count("\n") == 3


def test_mistakes_are_told_with_what_there_is(checkpoint: str, tmp_path: Path) -> None:
    assert "there are: ByBoth, ByUser" in headrace("get", checkpoint, "ByUsr", "a").stderr
    assert "there is no directory" in headrace("list", str(tmp_path / "nowhere")).stderr
    assert "is not a checkpoint" in headrace("list", str(tmp_path)).stderr


def test_drop_takes_out_what_it_names_and_says_so(checkpoint: str, tmp_path: Path) -> None:
    copy = str(shutil.copytree(checkpoint, tmp_path / "state"))
    for wrong in ([], ["--key", "a", "--all"]):
        answer = headrace("drop", copy, "ByUser", *wrong)
        assert answer.exit_code == 2 and "--key KEY, or --all" in answer.stderr
    answer = headrace("drop", copy, "ByUser", "--key", "a", "--key", "nobody", "--yes")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("Dropped the state of 'ByUser' of 'a' (about 3 cells)")
    assert "no state for the key 'nobody'" in answer.stderr
    assert headrace("get", copy, "ByUser", "a").exit_code == 1
    assert json.loads(headrace("get", copy, "ByUser", "b").output)["count"] == 2
    assert headrace("drop", copy, "ByUser", "--key", "a", "--yes").exit_code == 1
    assert headrace("drop", copy, "ByBoth", "--all", "--yes").exit_code == 0
    assert headrace("scan", copy, "ByBoth").output == ""


def test_drop_asks_before_it_does_anything(checkpoint: str) -> None:
    answer = headrace("drop", checkpoint, "ByUser", "--all")  # nobody says yes
    assert answer.exit_code == 1 and "Drop the state of 'ByUser', all its keys" in answer.output
    assert headrace("get", checkpoint, "ByUser", "a").exit_code == 0
