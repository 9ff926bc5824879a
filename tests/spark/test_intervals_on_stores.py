"""A checkpoint interval with the checkpoint in an object store: deltas lie on executors' disks."""

from __future__ import annotations

import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.servers.stores import ALWAYS, server_of
from tests.spark.programs.hoard import EPOCHS, KEYS, PER_EPOCH
from tests.spark.support import contents, lines_of, state_of
from tests.spark.test_kills import start

from headrace import Checkpoint
from headrace.plan.progress import EpochProgress
from headrace.store.counts import MERGES, PATH, RequestCounts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


class Run:
    """What a run of the program has said, and where it lies."""

    def __init__(self, where: Path, url: str, every: int) -> None:
        self.where, self.url, self.every = where, url, every
        self.lines: list[str] = []

    def start(self, *more: str) -> subprocess.Popen[str]:
        return start("hoard", self.where, self.url, self.every, *more)

    def to_its_end(self, *more: str) -> None:
        process = self.start(*more)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        self.lines = out.splitlines()
        assert self.lines[-1] == "done", err

    @property
    def told(self) -> list[EpochProgress]:
        found = (line.removeprefix("epoch ") for line in self.lines if line.startswith("epoch "))
        return [msgspec.json.decode(line, type=EpochProgress) for line in found]

    @property
    def notices(self) -> list[str]:
        return [line for line in self.lines if line.startswith("notice ")]

    def puts(self, purpose: str) -> float:
        """Puts of an epoch, on average; the first epochs and the last are left out."""
        sums = [each.store.requests.get(purpose, RequestCounts()) for each in self.told]
        found = [(after - before).puts for before, after in pairwise(sums[3:-1])]
        return sum(found) / len(found)


def new_run(where: Path, every: int) -> Run:
    where.mkdir()
    return Run(where, server_of(ALWAYS).new_url(), every)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An undisturbed run in which every epoch is durable."""
    run = new_run(tmp_path_factory.mktemp("calm") / "run", 1)
    run.to_its_end()
    return run


def require_same(run: Run, calm: Run) -> None:
    assert contents(run.where / "out") == contents(calm.where / "out")
    assert state_of(run.url) == state_of(calm.url)


def test_puts_are_saved_and_nothing_else_differs(tmp_path: Path, calm: Run) -> None:
    run = new_run(tmp_path / "run", 8)
    run.to_its_end()
    require_same(run, calm)
    assert run.notices == [], "nothing was lost"
    # Two levels of two slots: four deltas and the commit; or the commit, and four fragments every
    # eight epochs. Merges of deltas are the same puts with and without.
    shown = [f"{each.puts(PATH):.2f} + {each.puts(MERGES):.2f}" for each in (calm, run)]
    print(f"puts per epoch, for epochs and for merges: {shown[0]}, with an interval {shown[1]}")
    assert calm.puts(PATH) >= 5 and run.puts(PATH) <= 1.5, shown
    assert 0.2 <= run.puts(MERGES) <= 1.5, shown


def test_a_driver_that_is_killed_takes_all_disks_along_and_the_next_one_ends_as_if_nothing_had_been(
    tmp_path: Path, calm: Run
) -> None:
    run = new_run(tmp_path / "run", 6)
    for epochs in (4, 3):
        process = run.start()
        seen = 0
        for line in lines_of(process.stdout):
            seen += line.startswith("epoch ")
            if seen == epochs:
                break
        assert seen == epochs, process.communicate()[1]
        process.send_signal(signal.SIGKILL)
        process.communicate()
    run.to_its_end()
    assert any("are made again" in notice for notice in run.notices), run.notices
    assert 0 < len(run.told) < EPOCHS
    require_same(run, calm)


def test_a_rescale_and_a_savepoint_wait_for_a_checkpoint_and_readers_see_the_last_one(
    tmp_path: Path, calm: Run
) -> None:
    run = new_run(tmp_path / "run", 4)
    run.to_its_end("--asks")
    said = {line.split()[0]: line for line in run.lines if not line.startswith("epoch")}
    assert "taken" in said["rescale"] and "taken" in said["savepoint"], said
    epoch, counted = map(int, said["looked"].split()[2:])
    assert epoch >= 4 and counted == epoch * PER_EPOCH // KEYS, said
    assert run.notices == [], "nothing was lost"
    slots, _, _ = Checkpoint(run.url).sizes("Hoard")
    assert slots == 3
    assert state_of(run.url) == state_of(calm.url)
    kept = Checkpoint(run.url, at="kept")
    counts = {key: fields["n"] for key, fields in kept.scan("Hoard")}
    assert counts == dict.fromkeys(range(KEYS), kept.epoch * PER_EPOCH // KEYS)
