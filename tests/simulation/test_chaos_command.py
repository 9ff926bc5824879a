"""`headrace chaos`: what it prints when all is well, and when it is not."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.testing.simulator import runner
from headrace.testing.simulator.runner import Verdict


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["chaos", *arguments])


def test_a_few_seeds_are_run_here_and_told_in_one_line() -> None:
    result = run("--seeds", "3", "--from", "100", "--workload", "transfers")
    assert result.exit_code == 0, result.output
    assert "3 schedules in" in result.output
    assert "Every promise was kept." in result.output


def test_the_store_can_be_chosen() -> None:
    result = run("--seeds", "1", "--from", "7", "--store", "objects")
    assert result.exit_code == 0, result.output
    assert "the checkpoint lies in an object store" in result.output
    assert "answer" not in run("--seeds", "3", "--from", "7", "--store", "disk").output


def test_one_seed_is_told_with_its_trace() -> None:
    result = run("--seeds", "1", "--from", "7")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("seed 7 (")
    assert "driver 1 starts" in result.output


def test_a_broken_promise_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(seeds: Any, **options: Any) -> Iterator[Verdict]:
        for seed in seeds:
            complaint = "lost" if seed == 5 else None
            yield Verdict(seed, "dice", complaint, ["driver 1 starts"], command="headrace chaos 5")

    monkeypatch.setattr(runner, "run_seeds", broken)
    result = run("--seeds", "3", "--from", "4")
    assert result.exit_code == 1
    assert "seed 5 (dice): lost" in result.output
    assert "to see it again: headrace chaos 5" in result.output
    assert "1 of 3 schedules broke a promise" in result.output


def test_what_cannot_be_run_is_refused() -> None:
    assert "there is no workload 'mill'" in run("--workload", "mill").output
    assert "--seeds is at least 1" in run("--seeds", "0").output
