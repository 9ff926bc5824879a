"""Runs that take turns, epoch by epoch."""

from __future__ import annotations

from time import process_time

import pytest

from headrace.bench.turns import run_by_turns
from headrace.errors import HeadraceError


def _run(name, epochs, seen, fail=False):
    def run(end_epoch):
        for _ in range(epochs):
            seen.append(name)
            if fail:
                raise ValueError("no disk")
            end_epoch()

    return run


def test_each_runs_one_epoch_and_the_direction_changes():
    seen = []
    times = run_by_turns({name: _run(name, 3, seen) for name in "abc"})
    assert "".join(seen) == "abccbaabc"
    assert {name: len(each) for name, each in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_who_has_ended_is_passed_over():
    seen = []
    run_by_turns({"a": _run("a", 1, seen), "b": _run("b", 4, seen)})
    assert "".join(seen) == "abbbb"


def test_a_failure_ends_all():
    seen = []
    with pytest.raises(HeadraceError, match="no disk"):
        run_by_turns({"a": _run("a", 3, seen), "b": _run("b", 3, seen, fail=True)})
    assert seen == ["a", "b"]


def test_the_processor_time_of_a_turn_is_that_of_its_own_epoch():
    def busy(end_epoch):
        for _ in range(2):
            until = process_time() + 0.2
            while process_time() < until:
                pass
            end_epoch()

    def idle(end_epoch):
        for _ in range(2):
            end_epoch()

    turns = run_by_turns({"busy": busy, "idle": idle})
    assert all(turn.cpu_ms >= 150 for turn in turns["busy"])
    assert all(turn.cpu_ms < 150 for turn in turns["idle"])
