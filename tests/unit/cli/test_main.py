"""The command as people type it, with the engine behind it replaced."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from headrace import Pipeline
from headrace.cli.main import VERBS, cli
from headrace.errors import Fenced
from headrace.plan.progress import EpochProgress, RunSummary


class Engine:
    """Takes the place of Spark and of `Pipeline.start`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.fails: BaseException | None = None

    @contextmanager
    def session(self, name: str, master: str | None = None, **given: Any) -> Iterator[str]:
        self.asked |= {"name": name, "master": master, **given}
        yield "spark"

    def start(self, pipeline: Pipeline, **arguments: Any) -> "Engine":
        self.asked |= arguments
        return self

    def wait(self) -> RunSummary:
        if self.fails is not None:
            raise self.fails
        summary = RunSummary("shop", 1, 10, 0, 0, "end")
        for listener in self.asked["listeners"]:
            listener.on_epoch(EpochProgress("shop", 1, 10, 10, 1, 0.1, 0, 0, 0, 0, 0, ended=True))
            listener.on_end(summary)
        return summary

    def leave(self, wait: bool = True) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    engine = Engine()
    (tmp_path / "cli_shop.py").write_text("from headrace import Pipeline\np = Pipeline('shop')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "cli_shop", raising=False)
    monkeypatch.setattr("headrace.cli.run.spark_session", engine.session)
    monkeypatch.setattr(Pipeline, "validate", lambda pipeline: None)
    # As a method would be called: with the pipeline first.
    monkeypatch.setattr(
        Pipeline, "start", lambda pipeline, **given: engine.start(pipeline, **given), raising=False
    )
    return engine


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="headrace")


def test_help_shows_the_verbs_and_examples() -> None:
    answer = headrace("--help")
    assert answer.exit_code == 0
    for word in ("run", "demo", "bench", "Examples:", "headrace demo zeitgeist"):
        assert word in answer.output


def test_a_verb_loads_only_what_it_needs() -> None:
    program = "import sys; from headrace.cli.main import cli; cli(standalone_mode=False); "
    program += "print([m for m in sys.modules if m.startswith(('pyspark', 'headrace.cli.'))])"
    command = [sys.executable, "-c", program, "chaos", "--help"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert answer.splitlines()[-1] == "['headrace.cli.main', 'headrace.cli.chaos']"


def test_every_verb_has_the_name_by_which_it_is_found() -> None:
    ctx = click.Context(cli)
    assert {verb: cli.get_command(ctx, verb).name for verb in VERBS} == {v: v for v in VERBS}
    assert cli.list_commands(ctx) == sorted(VERBS)
    assert "No such command 'nonsense'" in headrace("nonsense").stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device; "),
        (PermissionError(13, "Permission denied", "/made/up"), "/made/up: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    def fail(*given: object) -> None:
        raise error

    monkeypatch.setattr("headrace.cli.first.new.make_project", fail)
    answer = headrace("new", "page-hits")
    assert answer.exit_code == 1 and answer.output.startswith(f"Error: {said}")
    assert headrace("--debug", "new", "page-hits").exception is error


def test_every_verb_explains_itself() -> None:
    for verb in (["run"], ["demo"], ["bench"], ["bench", "keyed-count"]):
        assert headrace(*verb, "--help").exit_code == 0


def test_every_verb_of_every_group_has_an_example() -> None:
    def without(command: click.Command, name: str) -> list[str]:
        found = [] if f"Examples:\n  {name}" in (command.epilog or "") else [name]
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for verb in command.list_commands(ctx):
                inner = command.get_command(ctx, verb)
                assert inner is not None
                found += without(inner, f"{name} {verb}")
        return found

    assert without(cli, "headrace") == []


def test_a_signal_while_the_run_is_started_stops_it_in_good_order(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()

    def start(pipeline: Pipeline, **given: Any) -> Engine:
        engine.start(pipeline, **given)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        return engine

    monkeypatch.setattr(Pipeline, "start", start)
    monkeypatch.setattr(engine, "leave", lambda wait: left.set())
    answer = headrace("run", "cli_shop:p", "--checkpoint", "state")
    assert (answer.exit_code, left.is_set()) == (0, True), answer.output


def test_a_run_passes_its_options_on(engine: Engine) -> None:
    answer = headrace(
        *("run", "cli_shop:p", "--checkpoint", "state", "--until", "caught-up"),
        *("--master", "local[1]", "--slots", "3", "--epoch-target", "250ms"),
        *("--conf", "spark.executor.memory=2g", "--conf", "spark.app.name=a=b"),
        *("--packages", "a:b:1,c:d:2", "--packages", "e:f:3", "--py-files", "cli_shop.py"),
        *("--standby", "--lease", "5s", "--give-up-after", "10m"),
        *("--replicas", "1", "--epoch-timeout", "30s", "--local-cache", "2GB"),
        *("--epoch-records", "500", "--balance", "ring", "--scale", "above=0.8"),
        *("--max-slots", "9", "--checkpoint-every", "1", "--deliver", "durable"),
        *("--retain", "99", "--accept-changed", "a.txt", "--accept-changed", "b.txt"),
    )
    assert answer.exit_code == 0, answer.output
    assert len(engine.asked.pop("listeners")) == 1
    assert engine.asked == {
        "name": "shop",
        "master": "local[1]",
        "conf": {"spark.executor.memory": "2g", "spark.app.name": "a=b"},
        "packages": ("a:b:1", "c:d:2", "e:f:3"),
        "py_files": ("cli_shop.py",),
        "checkpoint": "state",
        "spark": "spark",
        "until": "caught_up",
        "slots": 3,
        "epoch_target": "250ms",
        "standby": True,
        "supervised": False,
        "replace": False,
        "confirm": False,
        "lease": "5s",
        "give_up_after": "10m",
        "replicas": 1,
        "epoch_timeout": "30s",
        "local_cache": "2GB",
        "retain_epochs": 99,
        "state": "segments",
        "recovery": "lazy",
        "state_cache": "256MB",
        "epoch_records": 500,
        "balance": "ring",
        "scale": "above=0.8",
        "max_slots": 9,
        "overload": "carry",
        "accept_changed": ("a.txt", "b.txt"),
        "checkpoint_every": "1",
        "deliver": "durable",
        "accept_repairs": False,
    }
    assert "epoch 1 | 10 records" in answer.output
    assert "shop: all input was read." in answer.output


def test_an_interval_that_cannot_hold_is_refused_before_spark_starts(engine: Engine) -> None:
    answer = headrace("run", "cli_shop:p", "--checkpoint", "state", "--checkpoint-every", "2h")
    assert answer.exit_code == 2 and "a time of at most an hour" in answer.output
    assert engine.asked == {}


def test_a_run_goes_on_for_ever_unless_told_otherwise(engine: Engine) -> None:
    headrace("run", "cli_shop:p", "--checkpoint", "state")
    assert engine.asked["until"] is None
    headrace("run", "cli_shop:p", "--checkpoint", "state", "--until", "end")
    assert engine.asked["until"] == "end"


def test_a_store_that_cannot_be_used_is_refused_before_spark_starts(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    wrong = {
        "s3a://bucket/x": "write s3://",
        "s3://bucket/x?endpoint=http://127.0.0.1:1&allow_http=true": "cannot be reached",
    }
    for url, said in wrong.items():
        answer = headrace("run", "cli_shop:p", "--checkpoint", url)
        assert answer.exit_code == 1 and said in answer.output
    assert engine.asked == {}


def test_until_is_understood_as_python_writes_it(engine: Engine) -> None:
    headrace("run", "cli_shop:p", "--checkpoint", "state", "--until", "caught_up")
    assert engine.asked["until"] == "caught_up"


def test_an_error_is_one_message_without_a_traceback(engine: Engine) -> None:
    engine.fails = Fenced("another driver has taken over")
    answer = headrace("run", "cli_shop:p", "--checkpoint", "state")
    assert answer.exit_code == 1
    assert answer.stderr == "Error: another driver has taken over\n"


def test_with_debug_an_error_comes_with_its_traceback(engine: Engine) -> None:
    engine.fails = Fenced("another driver has taken over")
    answer = headrace("--debug", "run", "cli_shop:p", "--checkpoint", "state")
    assert answer.exception is engine.fails


def test_an_interrupt_ends_with_130(engine: Engine) -> None:
    engine.fails = KeyboardInterrupt()
    answer = headrace("run", "cli_shop:p", "--checkpoint", "state")
    assert answer.exit_code == 130


@pytest.mark.usefixtures("engine")
def test_mistakes_in_options_are_found_before_anything_starts() -> None:
    assert "--checkpoint" in headrace("run", "cli_shop:p").stderr
    answer = headrace("run", "cli_shop:p", "--checkpoint", "state", "--epoch-target", "5")
    assert answer.exit_code == 2
    assert '"250ms"' in answer.stderr
    answer = headrace("run", "cli_shop", "--checkpoint", "state")
    assert "write module:name" in answer.stderr
    for wrong in ("above=2", "twice=1", "often"):
        answer = headrace("run", "cli_shop:p", "--checkpoint", "state", "--scale", wrong)
        assert answer.exit_code == 2
        assert "Scale(above=)" in answer.stderr or "there are: above" in answer.stderr


def test_an_unknown_demo_lists_those_there_are() -> None:
    answer = headrace("demo", "nonsense")
    assert answer.exit_code == 1
    assert "there is no demo 'nonsense'" in answer.stderr
    assert "zeitgeist: spikes and dips" in answer.stderr


def test_a_bad_workload_is_refused_in_words() -> None:
    answer = headrace("bench", "keyed-count", "--records", "0")
    assert answer.exit_code == 2
    assert "'--records': 0 is not in the range x>=1" in answer.stderr
    assert "'--executors'" in headrace("bench", "recovery", "--executors", "1").stderr


def test_a_benchmark_of_nothing_is_refused() -> None:
    assert "nothing to measure" in headrace("bench", "keyed-count", "--no-ours").stderr
