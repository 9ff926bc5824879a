"""`headrace replay` as people type it, over a checkpoint that a local run has left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unit.engine.support import driver_of, run

from headrace.cli.main import cli
from headrace.cli.targets import load_pipeline
from headrace.engine.primitives.json_form import typed_key
from headrace.store.disk import DiskStore

SHOP = """
import sys
from headrace import Computation, Pipeline, sinks, sources, state

print("hash randomization", sys.flags.hash_randomization, file=sys.stderr)
STEP = 1

class Orders(Computation):
    paid: int = state(0)

    def process_record(self, record, ctx):
        self.paid += record.value["cents"] * STEP
        ctx.set_timer("remind", at=record.timestamp + 5_000_000)
        ctx.produce({"order": ctx.key, "paid": self.paid})

    def process_timer(self, timer, ctx):
        pass

p = Pipeline("shop")
p.read("payments", sources.jsonl("in.jsonl", timestamp="t"))
p.compute(Orders, inputs={"payments": "order"}, outputs="events")
p.stream("events").write(sinks.jsonl("out"))
"""


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory with a pipeline, its input and a checkpoint of three epochs."""
    (tmp_path / "replayed_shop.py").write_text(SHOP)
    rows = [{"order": f"o{i % 2}", "cents": 10 + i, "t": i} for i in range(9)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "replayed_shop", raising=False)
    pipeline = load_pipeline("replayed_shop:p")
    driver = driver_of(pipeline.freeze(), DiskStore(tmp_path / "state"))
    run(driver, 3)
    driver.close()
    return tmp_path


def headrace(*words: str, epoch: int = 2, typed: str | None = None) -> Result:
    given = ["replay", "replayed_shop:p", "--checkpoint", "state", "--epoch", str(epoch), *words]
    return CliRunner().invoke(cli, given, input=typed)


def test_it_shows_every_call_and_that_the_result_is_the_commits(shop: Path) -> None:
    answer = headrace()
    assert answer.exit_code == 0, answer.output
    assert "Orders 'o1'  record of payments at" in answer.output
    assert "    paid: 11 -> 24\n" in answer.output
    assert "    produced to events at" in answer.output
    assert "    event timer 'remind' set to" in answer.output
    assert "Epoch 2 made what its commit says." in answer.output


def test_key_and_computation_choose_what_is_shown(shop: Path) -> None:
    shown = headrace("--computation", "Orders", "--key", "o0").output
    assert "Orders 'o0'" in shown
    assert "Orders 'o1'" not in shown
    assert headrace("--computation", "Order").exit_code == 1
    assert "2 more calls; see --limit" in headrace("--limit", "1").output


def test_another_result_gives_another_exit_status_and_says_where(shop: Path) -> None:
    sys.modules["replayed_shop"].STEP = 2
    answer = headrace()
    assert answer.exit_code == 1
    assert "did not make what its commit says" in answer.output
    assert "key 'o1': paid is 67 here, 39 in the commit" in answer.output


def test_json_is_one_object_per_line_and_the_verdict_is_the_last(shop: Path) -> None:
    lines = [json.loads(line) for line in headrace("--json").stdout.splitlines()]
    assert [line["call"]["key"] for line in lines[:-1]].count("o1") == 2
    assert lines[-1]["equal"] is True
    assert lines[-1]["epoch"] == 2


def test_pdb_stops_in_the_users_hook_at_the_first_call_that_is_shown(shop: Path) -> None:
    answer = headrace("--key", "o1", "--pdb", typed="p ctx.key, record.value['cents']\nc\n")
    assert answer.exit_code == 0, answer.output
    assert "replayed_shop.py" in answer.output
    assert "('o1', 13)" in answer.output
    assert headrace("--pdb", typed="q\n").exit_code == 130


def test_what_cannot_be_replayed_is_told_in_one_message(shop: Path) -> None:
    answer = headrace(epoch=44)
    assert answer.exit_code == 1
    assert answer.output.startswith("Error: epoch 44 is not committed; the last one that is: 3.")


def test_the_command_runs_with_the_hash_seed_of_sparks_workers(shop: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-m", "headrace.cli.main", "replay", "replayed_shop:p"]
    done = subprocess.run(
        [*command, "--checkpoint", "state", "--epoch", "3"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hash randomization 0" in done.stderr
    assert "PYTHONHASHSEED" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("o1", "o1"),
        ('"o1"', "o1"),
        ("17", 17),
        ('["a", 2]', ("a", 2)),
        ("true", "true"),
        ("[]", ()),
        ('"17"', "17"),
        ('[["a", 1], null]', (("a", 1), None)),
        ('{"bytes": "cmF3/w=="}', b"raw\xff"),
        ('[{"bytes": ""}, 1]', (b"", 1)),
        ('{"bytes": 1}', '{"bytes": 1}'),
        ("1.5", "1.5"),
        ("NaN", "NaN"),
    ],
)
def test_keys_are_json_and_a_bare_word_is_a_string(typed: str, key: object) -> None:
    assert typed_key(typed) == key
