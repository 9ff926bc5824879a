"""Two copies of one checkpoint at one sink: one goes on, the other is refused."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.unit.engine.support import Clock, Crash, counting, die, driver_of, run
from tests.unit.engine.test_delivery import VALUES, Diary, epochs_of, two_sinks

from headrace import failpoints
from headrace.engine.driver.driver import Driver
from headrace.errors import CorruptCheckpoint, Fenced, IncompatibleState, SinkError
from headrace.log import paths
from headrace.model.sink import Sink
from headrace.plan.decisions.next_step import Finish
from headrace.sinks import jsonl, memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore


def begun(root: Path, sink: Sink, epochs: int = 4) -> None:
    """A checkpoint with some epochs, and a copy of it."""
    driver = driver_of(counting(VALUES, sink), DiskStore(root / "one"))
    run(driver, epochs)
    driver.stop()
    driver.close()
    shutil.copytree(root / "one", root / "two")


def copies(root: Path, first: Sink, second: Sink) -> tuple[Driver, Driver]:
    one = driver_of(counting(VALUES, first), DiskStore(root / "one"), epoch_records=2)
    two = driver_of(counting(VALUES, second), DiskStore(root / "two"), epoch_records=5)
    return one, two


def counts(out: Path) -> Counter[tuple[str, int]]:
    lines = [json.loads(line) for path in out.glob("epoch=*/*") for line in path.open()]
    return Counter((row["k"], row["n"]) for row in lines)


@pytest.mark.parametrize("seed", range(8))
def test_of_two_copies_at_one_sink_one_comes_to_the_end_and_nothing_is_lost_or_doubled(
    tmp_path: Path, seed: int
) -> None:
    dice, out = random.Random(seed), tmp_path / "out"
    begun(tmp_path, jsonl(out))
    going = dict(zip(("one", "two"), copies(tmp_path, jsonl(out), jsonl(out)), strict=True))
    refused: dict[str, str] = {}
    while going:
        name = dice.choice(sorted(going))
        try:
            if isinstance(going[name].step(), Finish):
                del going[name]
        except IncompatibleState as error:
            refused[name] = str(error)
            del going[name]
    ((name, said),) = refused.items()
    assert "sink 'counts'" in said and "delete this one" in said
    assert all(str(tmp_path / each) in said for each in ("one", "two", "out"))
    whole = tmp_path / "whole"
    run(driver_of(counting(VALUES, jsonl(whole))))
    assert counts(out) == counts(whole)
    with pytest.raises(IncompatibleState):  # and stays so
        driver_of(counting(VALUES, jsonl(out)), DiskStore(tmp_path / name))


def test_a_sink_that_knows_numbers_only_is_defended_by_the_log(tmp_path: Path) -> None:
    diary = Diary()
    begun(tmp_path, diary)
    one, two = copies(tmp_path, diary, diary)
    one.step()
    with pytest.raises(IncompatibleState, match=rf"a copy of it writes there.*{tmp_path}/two"):
        two.step()
    with pytest.raises(IncompatibleState):
        two.step()
    run(one)
    assert epochs_of(diary) == list(range(1, one.ledger.epoch + 1))


def test_a_memory_sink_is_defended_too(tmp_path: Path) -> None:
    sink = memory()
    begun(tmp_path, sink)
    one, two = copies(tmp_path, sink, sink)
    one.step()
    with pytest.raises(IncompatibleState, match="another copy"):
        two.step()


def test_a_copy_may_go_on_where_the_other_has_stopped(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begun(tmp_path, jsonl(out))
    run(driver_of(counting(VALUES, jsonl(out)), DiskStore(tmp_path / "two")))
    whole = tmp_path / "whole"
    run(driver_of(counting(VALUES, jsonl(whole))))
    assert counts(out) == counts(whole)
    with pytest.raises(IncompatibleState, match="older copy"):
        driver_of(counting(VALUES, jsonl(out)), DiskStore(tmp_path / "one"))


def test_an_overtaken_driver_is_fenced_and_not_taken_for_a_copy() -> None:
    store, diary = MemoryStore(), Diary()
    old = driver_of(counting(VALUES, diary), store)
    run(old, 3)
    commit = type(old)._commit

    def overtaken(*given: object) -> None:
        commit(old, *given)  # type: ignore[arg-type]
        driver_of(counting(VALUES, diary), store, clock=Clock(2_000_000))

    old._commit = overtaken  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        old.step()
    assert epochs_of(diary) == [1, 2, 3, 4], "the newer one has delivered it, from the log"


@pytest.mark.parametrize("place", ["after-commit-write", "after-claim", "after-publish"])
def test_what_a_dead_driver_began_is_completed_by_the_next_generation(
    tmp_path: Path, place: str
) -> None:
    out, store = tmp_path / "out", DiskStore(tmp_path / "one")
    driver = driver_of(counting(VALUES, jsonl(out)), store)
    run(driver, 3)
    failpoints.arm(place, die)
    with pytest.raises(Crash):
        driver.step()
    failpoints.disarm()
    run(driver_of(counting(VALUES, jsonl(out)), store))
    whole = tmp_path / "whole"
    run(driver_of(counting(VALUES, jsonl(whole))))
    assert counts(out) == counts(whole)


def test_a_sink_that_has_the_epoch_is_not_asked_again_while_another_refuses_it() -> None:
    first, second = Diary(), Diary()
    driver = driver_of(two_sinks(first, second))
    second.refusing = [ConnectionError("away")] * 2
    for _ in range(2):
        with pytest.raises(SinkError):
            driver.step()
    run(driver)
    assert epochs_of(first) == epochs_of(second) == list(range(1, driver.ledger.epoch + 1))


def test_a_log_with_entries_of_two_copies_is_refused(tmp_path: Path) -> None:
    begun(tmp_path, memory())
    for name in ("one", "two"):
        driver = driver_of(counting(VALUES), DiskStore(tmp_path / name))
        run(driver, 3)
        driver.stop()
    log = paths.log_directory(1)
    newest = sorted((tmp_path / "two" / log).iterdir())
    for path in newest[-2:]:
        shutil.copy(path, tmp_path / "one" / log / path.name)
    with pytest.raises(
        CorruptCheckpoint, match="entries of two copies of this checkpoint are mixed"
    ):
        driver_of(counting(VALUES), DiskStore(tmp_path / "one"))
