"""`headrace state` over a checkpoint that a local run has left."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.spark.support import run_local
from tests.unit.engine.support import counting, follower_of
from tests.unit.systems import limited

from headrace import Checkpoint, Computation, Job, Map, Pipeline, sources, state
from headrace.cli.main import cli
from headrace.engine.commands import Remote
from headrace.store.disk import DiskStore


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
    assert "ByBoth  (watermark the end; " in output and "ByUser" in output
    found = json.loads(headrace("list", checkpoint, "--json").output)
    assert (found["pipeline"], found["epoch"]) == ("visits", last)
    assert set(found["computations"]) == {"ByBoth", "ByUser"}


def test_get_shows_a_key_however_it_is_typed(checkpoint: str) -> None:
    found = headrace("get", checkpoint, "ByUser", "a")
    assert json.loads(found.output) == {"count": 2, "pages": {"x": 0, "y": 2}}
    assert headrace("get", checkpoint, "ByUser", '"a"').output == found.output
    assert json.loads(headrace("get", checkpoint, "ByBoth", '["b", "x"]').output)["count"] == 2


def test_a_key_without_state_is_told_by_the_exit_status(checkpoint: str) -> None:
    answer = headrace("get", checkpoint, "ByUser", "nobody")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "ByUser has no state for the key 'nobody'" in answer.stderr


def test_get_says_which_epoch_left_the_state_and_reads_past_ones(checkpoint: str) -> None:
    last = Checkpoint(checkpoint).epoch
    found = json.loads(headrace("get", checkpoint, "ByUser", "a", "--with-epoch").output)
    assert found == {"epoch": last, "state": {"count": 2, "pages": {"x": 0, "y": 2}}}
    answer = headrace("get", checkpoint, "ByUser", "nobody", "--with-epoch")
    assert json.loads(answer.stdout) == {"epoch": last, "state": None} and answer.exit_code == 1
    past = headrace("get", checkpoint, "ByUser", "a", "--at", "1", "--with-epoch")
    assert json.loads(past.output)["epoch"] == 1
    assert "is not committed" in headrace("get", checkpoint, "ByUser", "a", "--at", "99").stderr
    assert "no savepoint 'x'" in headrace("get", checkpoint, "ByUser", "a", "--at", "x").stderr


def test_scan_answers_queries(checkpoint: str) -> None:
    query = "SELECT b.key.part_1 page, sum(b.count) n FROM ByBoth b GROUP BY 1 ORDER BY 1"
    rows = headrace("scan", checkpoint, "--sql", query).output.splitlines()
    assert [json.loads(row) for row in rows] == [{"page": "x", "n": 3}, {"page": "y", "n": 1}]
    joined = "SELECT s.key, u.count FROM state s JOIN byuser u ON s.key.part_0 = u.key LIMIT 1"
    assert headrace("scan", checkpoint, "ByBoth", "--sql", joined).output.count("\n") == 1
    limited = headrace("scan", checkpoint, "ByUser", "--sql", "FROM state", "--limit", "1")
    assert limited.stdout.count("\n") == 1 and "and more" in limited.stderr
    wrong = headrace("scan", checkpoint, "--sql", "SELECT x FROM ByUser")
    assert (
        wrong.exit_code == 1
        and 'The tables are the computations with state: "ByBoth"' in wrong.stderr
    )
    assert "there are: ByBoth, ByUser" in headrace("scan", checkpoint).stderr


def test_without_duckdb_a_query_says_what_to_install(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    answer = headrace("scan", checkpoint, "--sql", "FROM ByUser")
    assert answer.exit_code == 1
    assert "pip install 'headrace[sql]'" in answer.stderr
    assert "`headrace state export` writes Parquet" in answer.stderr


def test_diff_shows_what_an_epoch_has_changed(checkpoint: str) -> None:
    last = str(Checkpoint(checkpoint).epoch)
    assert headrace("diff", checkpoint, last, last).output == ""
    answer = headrace("diff", checkpoint, "1", last, "--computation", "ByUser")
    changes = [json.loads(line) for line in answer.output.splitlines()]
    assert {change["computation"] for change in changes} <= {"ByUser"}
    assert (
        "there are: ByBoth, ByUser"
        in headrace("diff", checkpoint, "1", last, "--computation", "x").stderr
    )


def test_a_backup_is_taken_listed_verified_and_restored(checkpoint: str, tmp_path: Path) -> None:
    place, again = str(tmp_path / "backup"), str(tmp_path / "again")
    taken = headrace("backup", checkpoint, place)
    assert taken.exit_code == 0 and f"has epoch {Checkpoint(checkpoint).epoch}" in taken.output
    assert "0 of them (0 bytes) were copied now" in headrace("backup", checkpoint, place).output
    assert headrace("list", place).output.startswith("visits: epoch ")
    assert json.loads(headrace("list", place, "--json").output)["pipeline"] == "visits"
    assert headrace("verify", place).output.endswith(": whole\n")
    restored = headrace("restore", place, again)
    assert restored.exit_code == 0 and "give its sinks fresh places" in restored.output
    shown = headrace("scan", again, "ByBoth").output
    assert shown == headrace("scan", checkpoint, "ByBoth").output
    assert "holds no backups" in headrace("restore", checkpoint, again).stderr


def test_an_export_is_parquet_with_typed_columns(checkpoint: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = tmp_path / "out"
    answer = headrace("export", checkpoint, "ByUser", str(out))
    assert answer.exit_code == 0 and "2 keys of 'ByUser'" in answer.output
    assert "  count  int64\n  pages  map<string, int64>\n" in answer.output
    table = pq.read_table(out)
    assert sorted(table.column("key").to_pylist()) == ["a", "b"]
    assert "is not empty" in headrace("export", checkpoint, "ByUser", str(out)).stderr


def test_verify_tells_damage_by_its_exit_status(checkpoint: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "state"))
    answer = headrace("verify", str(copy))
    assert answer.exit_code == 0 and answer.output.endswith(": whole\n")
    entry = sorted((copy / "log" / "000000").iterdir())[-1]
    entry.write_bytes(entry.read_bytes()[:-2] + b"!!")
    answer = headrace("verify", str(copy))
    assert answer.exit_code == 1 and f"damaged: log/000000/{entry.name}: " in answer.output
    assert json.loads(headrace("verify", str(copy), "--json").output)["problems"]


def test_compact_and_checkpoint_work_on_a_stopped_pipeline(checkpoint: str, tmp_path: Path) -> None:
    copy = str(shutil.copytree(checkpoint, tmp_path / "state"))
    last = Checkpoint(copy).epoch
    assert headrace("checkpoint", copy).output == f"visits: epoch {last} is durable\n"
    before = headrace("scan", copy, "ByBoth").output
    answer = headrace("compact", copy)
    assert answer.exit_code == 0 and f"goes on after epoch {last}" in answer.output
    assert headrace("scan", copy, "ByBoth").output == before
    assert "it has: ByBoth, ByUser" in headrace("compact", copy, "ByUsr").stderr


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


def test_a_running_pipeline_is_looked_at_copied_verified_and_compacted(tmp_path: Path) -> None:
    where, place = str(tmp_path / "state"), str(tmp_path / "backups")
    topology = counting(sources.generate(lambda n, random: n % 7, rate=300, paced=True))
    store = DiskStore(where, limited(merge_segments_min=999, ride_bytes_max=0))
    with Job(follower_of(topology, store, until=None, lease_s=6.0)) as job:
        while job.status().epoch < 8:  # counted a moment before its commit; each may have one key
            assert job.running
            time.sleep(0.01)
        first = json.loads(headrace("get", where, "Count", "key 1", "--with-epoch").stdout)
        assert job.lookup("Count", "key 1").epoch >= first["epoch"] >= 5
        assert job.state.epoch >= 5 and len(dict(job.state.scan("Count"))) == 7
        assert headrace("backup", where, place).exit_code == 0
        assert headrace("verify", where).exit_code == 0
        answer = headrace("compact", where)
        assert (answer.exit_code, "all state is compacted since" in answer.stdout) == (0, True)
        assert job.running and job.checkpoint() > first["epoch"]
        assert "there are: Count" in headrace("compact", where, "Cuont").stderr
        Remote(where).pause()
        answer = headrace("compact", where, "--timeout", "20s")
        assert answer.exit_code != 0 and "the pipeline is paused" in answer.stderr
        Remote(where).resume()
        assert headrace("compact", where, "--no-wait", "--id", "once").exit_code == 0
    assert headrace("verify", place).output.endswith(": whole\n")
