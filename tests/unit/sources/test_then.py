"""`sources.then`: the second follows the first without a gap, through restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import Crash, driver_of

from headrace import Pipeline, failpoints, sinks, sources
from headrace.errors import InvalidPipeline
from headrace.model.source import Source
from headrace.plan.decisions.next_step import Run
from headrace.store.memory import MemoryStore


def write(path: Path, numbers: range) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"n": n, "at": n}) for n in numbers]
    path.with_suffix(".tmp").write_text("".join(f"{line}\n" for line in lines))
    path.with_suffix(".tmp").rename(path)


def files(where: Path, **options: Any) -> Source:
    return sources.jsonl(str(where / "*.jsonl"), timestamp="at", **options)


class Running:
    def __init__(self, source: Source) -> None:
        p = Pipeline("then")
        p.read("in", source)
        self.sink = sinks.memory()
        p.stream("in").write(self.sink)
        self.topology, self.store = p.freeze(), MemoryStore()

    def run(self, until: str = "end") -> Any:
        driver = driver_of(self.topology, self.store, until=until)
        while isinstance(decision := driver.step(), Run):
            pass
        return decision

    def numbers(self) -> list[int]:
        return [row["n"] for row in self.sink.rows]


def test_the_second_follows_the_first_and_then_all_has_ended(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a.jsonl", range(10))
    write(tmp_path / "old" / "b.jsonl", range(10, 14))
    write(tmp_path / "new" / "a.jsonl", range(100, 107))
    running = Running(sources.then(files(tmp_path / "old"), files(tmp_path / "new")))
    running.run()
    found = running.numbers()
    assert sorted(found) == [*range(14), *range(100, 107)]
    assert min(found.index(n) for n in range(100, 107)) > max(found.index(n) for n in range(14))


@pytest.mark.parametrize(
    "failpoint", ["after-plan-write", "before-commit-write", "after-commit-write", "after-job"]
)
@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_driver_that_dies_around_the_change_loses_and_repeats_nothing(
    tmp_path: Path, failpoint: str, after: int
) -> None:
    write(tmp_path / "old" / "a.jsonl", range(7))
    write(tmp_path / "new" / "a.jsonl", range(100, 107))
    running = Running(sources.then(files(tmp_path / "old"), files(tmp_path / "new")))
    left = [after]

    def die() -> None:
        left[0] -= 1
        if not left[0]:
            raise Crash

    failpoints.arm(failpoint, die)
    try:
        running.run()
    except Crash:
        pass
    finally:
        failpoints.disarm()
    running.run()
    assert running.numbers() == [*range(7), *range(100, 107)]


@pytest.mark.parametrize("inside", ["first", "second", "both"])
def test_more_than_two_follow_each_other_through_restarts(tmp_path: Path, inside: str) -> None:
    parts = []
    for number in range(4):
        write(tmp_path / str(number) / "a.jsonl", range(100 * number, 100 * number + 4))
        parts.append(files(tmp_path / str(number)))
    a, b, c, d = parts
    source = {
        "first": lambda: sources.then(sources.then(sources.then(a, b), c), d),
        "second": lambda: sources.then(a, sources.then(b, sources.then(c, d))),
        "both": lambda: sources.then(sources.then(a, b), sources.then(c, d)),
    }[inside]()
    running = Running(source)
    crashes = 0
    for step in range(1, 40):
        left = [step % 5 + 1]

        def die(left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Crash

        failpoints.arm("after-commit-write", die)
        try:
            running.run()
            break
        except Crash:
            crashes += 1
        finally:
            failpoints.disarm()
    expected = [100 * number + n for number in range(4) for n in range(4)]
    assert running.numbers() == expected and crashes > 1


def test_an_unbounded_second_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a.jsonl", range(5))
    (tmp_path / "new").mkdir()
    running = Running(sources.then(files(tmp_path / "old"), files(tmp_path / "new", watch=True)))
    running.run("caught_up")
    assert running.numbers() == [*range(5)]
    write(tmp_path / "new" / "a.jsonl", range(50, 53))
    running.run("caught_up")
    assert running.numbers() == [*range(5), 50, 51, 52]


def test_a_first_without_records_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "new" / "a.jsonl", range(3))
    source = sources.then(sources.memory([], timestamp="at"), files(tmp_path / "new"))
    running = Running(source)
    running.run()
    assert running.numbers() == [0, 1, 2]


def test_what_cannot_be_joined_is_refused(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(InvalidPipeline, match="never ends"):
        sources.then(files(tmp_path / "new", watch=True), sources.memory([]))
    endless = sources.then(sources.memory([], timestamp="at"), files(tmp_path / "new", watch=True))
    with pytest.raises(InvalidPipeline, match="never ends"):
        sources.then(endless, files(tmp_path / "new"))
    with pytest.raises(InvalidPipeline, match="the same timestamp="):
        sources.then(sources.memory([], timestamp="other"), files(tmp_path / "new"))
    with pytest.raises(InvalidPipeline, match="second is no source"):
        sources.then(sources.memory([]), [1])  # type: ignore[arg-type]
