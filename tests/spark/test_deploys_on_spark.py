"""`headrace deploy` on Spark, as users call it: beside a running pipeline, in processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.support import environment

pytestmark = pytest.mark.timeout(900)
DEADLINE_S = 240

SHOP = """
from headrace import Computation, Pipeline, sinks, sources, state


class Count(Computation{version}):
    {field}

    def process_record(self, record, ctx):
        {count}
        {fails}
        ctx.produce({{"k": ctx.key, "n": int(self.n), "by": {by}}})
{migrate}

p = Pipeline("shop")
p.read("orders", sources.jsonl("in/*.jsonl", watch=True))
p.compute(Count, inputs={{"orders": "k"}}, outputs="counts")
p.stream("counts").write(sinks.jsonl("out"))
"""
MIGRATE = """
    @classmethod
    def migrate(cls, fields, version):
        return {"n": float(fields.get("n", 0))}
"""


def shop(by: int, *, version: int = 1, fails: str = "") -> str:
    later = version > 1
    return SHOP.format(
        by=by,
        version=f", version={version}" if later else "",
        field="n: float = state(0.0)" if later else "n: int = state(0)",
        count="self.n += 1",
        fails=fails,
        migrate=MIGRATE if later else "",
    )


class Command:
    """A `headrace` process, and the lines it has said."""

    def __init__(self, where: Path, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=where,
            env=environment(),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip("\n"))

    def ends(self) -> int:
        code = self.process.wait(DEADLINE_S)
        self._reader.join(10)
        return code


class World:
    def __init__(self, where: Path) -> None:
        self.where = where
        self.started: list[Command] = []
        self.records = 0
        (where / "in").mkdir()

    def headrace(self, *arguments: str) -> Command:
        self.started.append(Command(self.where, *arguments))
        return self.started[-1]

    def arrive(self, count: int) -> None:
        records = [{"k": f"k{i % 5}", "i": i} for i in range(self.records, self.records + count)]
        path = self.where / "in" / f"{self.records:06d}.jsonl"
        hidden = path.with_name(f".{path.name}")
        hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
        hidden.rename(path)
        self.records += count

    def rows(self) -> list[dict[str, Any]]:
        files = sorted(self.where.glob("out/epoch=*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def until(self, found: Callable[[], bool], *watched: Command) -> None:
        end = time.monotonic() + DEADLINE_S
        while not found():
            said = [command.lines[-15:] for command in watched]
            assert time.monotonic() < end, said
            assert all(command.process.poll() is None for command in watched), said
            time.sleep(0.1)

    def all_are_there(self, *watched: Command) -> None:
        self.until(lambda: len(self.rows()) >= self.records, *watched)
        for key in {row["k"] for row in self.rows()}:
            seen = sorted(row["n"] for row in self.rows() if row["k"] == key)
            assert seen == list(range(1, len(seen) + 1))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for command in made.started:
        if command.process.poll() is None:
            os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()


def test_a_deploy_takes_over_and_one_that_fails_is_taken_back(world: World) -> None:
    (world.where / "one.py").write_text(shop(1))
    (world.where / "two.py").write_text(shop(2, version=2))
    broken = world.where / "broken"
    fails = f'assert not __import__("os").path.exists("{broken}"), "a mistake"'
    (world.where / "three.py").write_text(shop(3, version=3, fails=fails))
    world.arrive(20)
    first = world.headrace("run", "one:p", "--checkpoint", "state", "--slots", "2")
    world.all_are_there(first)

    other = world.headrace("run", "two:p", "--checkpoint", "state")
    assert other.ends() == 1 and "--replace" in "".join(other.lines)

    second = world.headrace(
        *("deploy", "state", "two:p", "--confirm-after", "2", "--slots", "2", "--probation", "60s")
    )
    while first.process.poll() is None:
        assert second.process.poll() is None, second.lines
        world.arrive(5)
        time.sleep(2)
    assert first.ends() == 0, first.lines
    world.all_are_there(second)
    assert {row["by"] for row in world.rows()} == {1, 2}

    third = world.headrace(
        *("deploy", "state", "three:p", "--confirm-after", "99"),
        *("--slots", "2", "--mode", "restore"),
    )
    while third.process.poll() is None:
        assert second.process.poll() is None, second.lines
        world.arrive(10)
        time.sleep(2)
        if any("records" in line for line in third.lines):  # it leads
            broken.touch()
    assert third.ends() == 1 and "a mistake" in "".join(third.lines), third.lines
    world.arrive(10)
    world.all_are_there(second)
    assert {row["by"] for row in world.rows()} == {1, 2}
    told = world.headrace("status", "state")
    assert told.ends() == 0 and "rolled back" in "".join(told.lines), told.lines
    second.process.send_signal(signal.SIGTERM)
    assert second.ends() == 0
