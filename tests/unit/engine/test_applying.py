"""Epochs that are applied to a state store, by drivers that die, on a store that forgets."""

from __future__ import annotations

import shutil
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.engine.support import Crash, die

from headrace import Computation, Map, failpoints, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.replay.drop import drop_state
from headrace.engine.upkeep.applier import Applier
from headrace.errors import IncompatibleState
from headrace.limits import Limits
from headrace.model.values.keys import hash_key
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Run
from headrace.plan.deploy.fold import copy_of
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.plan.state.choice import StateChoice
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.backend import OpenState, StateBackend
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.backends.opening import opener_of
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.system import System
from headrace.worker.runtime import Runtime


class Basket(Computation):
    """Counts, keeps a map of what came, forgets itself now and then, and has a timer."""

    n: int = state(0)
    seen: Map[int, int] = state()

    def process_record(self, record, ctx):
        value = record.value
        self.n += 1
        self.seen[value % 7] = value
        if value % 3 == 0:
            self.seen.pop(value % 5, None)
        ctx.produce([ctx.key, self.n, sorted(self.seen.items())])
        if self.n % 6 == 0:
            ctx.forget()
        ctx.set_timer("later", at=record.timestamp + 1_000_000)

    def process_timer(self, timer, ctx):
        ctx.produce([ctx.key, "timer", self.n])


def topology(values: int, sink: Any) -> Topology:
    pipeline = PipelineBuilder("baskets")
    source = memory(list(range(values)), timestamps=[i * 400_000 for i in range(values)])
    pipeline.read("values", source)
    pipeline.compute(Basket, inputs={"values": lambda value: f"key {value % 4}"}, outputs="out")
    pipeline.stream("out").write(sink)
    return pipeline.freeze()


class World:
    """A checkpoint, a state store and one driver after another."""

    def __init__(
        self, values: int = 36, *, kind: str = "memory", retain: int = 2, path: Path | None = None
    ) -> None:
        self.sink = memory_sink()
        self.topology = topology(values, self.sink)
        limits = Limits(merge_segments_min=3, purge_every_epochs=3, snapshot_every_epochs=4,
                        collect_every_epochs=2)  # fmt: skip
        system = System(limits=limits)
        self.store: Store = MemoryStore() if path is None else DiskStore(path, system)
        self.store.system = system
        self.server = MemoryServer()
        self.kind, self.retain = kind, retain
        self.cache = WorkerCache()
        self.backends: list[StateBackend] = []

    def opens(self, kind: str) -> OpenState | None:
        return self.open if kind == "memory" else opener_of(StateChoice(kind), self.store)

    def open(self, checkpoint: str) -> StateBackend:
        self.backends.append(MemoryBackend(self.server, checkpoint))
        return self.backends[-1]

    def driver(self, kind: str | None = None) -> Driver:
        kind = kind or self.kind
        opens = self.opens(kind)
        runtime = Runtime(self.topology, self.store, self.cache, opens)
        options = Options(slots=2, epoch_records=3, background=False, retain_epochs=self.retain,
                          state=StateChoice(kind))  # fmt: skip
        setup = Setup(
            self.topology, fingerprint(self.topology.graph), self.store, LocalSubstrate(runtime),
            options, opens=opens,
        )  # fmt: skip
        return Follower(setup).take_over()

    def run(self, driver: Driver | None = None) -> list[Any]:
        driver = driver or self.driver()
        while isinstance(driver.step(), Run):
            pass
        driver.close()
        return sorted(map(repr, self.sink.rows))

    def state(self) -> dict[Any, Any]:
        return dict(Checkpoint(self.store, opens=self.opens(self.kind)).scan("Basket"))


@cache
def expected() -> tuple[list[Any], dict[Any, Any]]:
    plain = World(kind="segments")
    return plain.run(), plain.state()


def test_a_run_with_a_state_store_gives_what_segments_give() -> None:
    world = World()
    assert (world.run(), world.state()) == expected()
    marks = world.backends[0].marks()
    assert marks.applied >= 12 and marks.floor > 0


def test_fields_that_the_store_has_leave_the_segments() -> None:
    world = World()
    driver = world.driver()
    world.run(driver)
    cells = [
        cell
        for slot in driver.ledger.slots["Basket"].values()
        for entry in slot.entries
        if entry.last_epoch <= driver.ledger.applied.epoch
        for cell in read_of(world, entry)
        if cell.kind < 2
    ]
    whole = sum(slot.entries[0].rows for slot in driver.ledger.slots["Basket"].values())
    assert len(cells) < 40 and whole


def read_of(world: World, entry: Any) -> list[Any]:
    from headrace.state.segment import read_cells

    return read_cells(world.store, entry.segment, entry.at)


POINTS = ("after-cells-write", "after-store-mark", "after-store-sync", "after-purge",
          "before-commit-write", "after-commit-write", "after-collect", "after-job")  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_anywhere_loses_nothing(point: str) -> None:
    world = World()
    for life in range(4):
        try:
            driver = world.driver()
            driver.step()
            failpoints.arm(point, die)
            driver.step()
        except Crash:
            pass
        finally:
            failpoints.disarm()
        if life % 2:  # the store forgets what was not synced
            world.server.restart()
        if life in (1, 2):
            world.cache = WorkerCache()
    assert (world.run(), world.state()) == expected()


def test_a_store_that_restarts_under_a_driver_makes_it_apply_again() -> None:
    world = World()
    driver = world.driver()
    for _ in range(40):
        if not isinstance(driver.step(), Run):
            break
        world.server.restart()
    assert (world.run(driver), world.state()) == expected()


@pytest.mark.parametrize("kind", ["memory", "files", "log"])
def test_dropped_state_does_not_come_back_with_epochs_that_are_applied_later(
    kind: str, tmp_path: Path
) -> None:
    found = []
    for each in (kind, "segments"):
        world = World(kind=each, path=tmp_path / each)
        driver = world.driver()
        for _ in range(7):
            driver.step()
        driver.close()
        assert each == "segments" or driver.ledger.applied.epoch < 7, "one is not applied yet"
        drop_state(world.store, "Basket", None)
        assert world.state() == {}
        world.run()
        found.append(world.state())
    assert found[0] == found[1] != {}


def test_state_that_a_deploy_on_probation_gives_up_is_applied_as_it_was() -> None:
    """Else a deploy that is taken back would find that the store lacks its last epochs."""
    world = World()
    driver = world.driver()
    for _ in range(4):
        driver.step()
    before = driver.ledger.applied.epoch
    driver.ledger.saved = copy_of(driver.ledger)
    driver.ledger.applied = driver.ledger.applied.forgotten("Basket", driver.ledger.epoch)
    driver._applier.proceed()
    marks = world.backends[0].marks()
    assert marks.applied == 4 > before and world.backends[0].computations() == ["Basket"]
    _, commit = driver._applier._work().commits[-1]
    keys = [key for _, key in world.backends[0].scan("Basket")]
    hashes = np.array([hash_key(key) for key in keys], np.uint64)
    stamps = {
        cell.stamp
        for cells in world.backends[0].read_fields("Basket", keys, hashes)
        for cell in cells.values()
    }
    assert commit.epoch == 4 and 4 in stamps


def test_an_older_copy_is_made_good_as_long_as_commits_are_kept() -> None:
    world = World(retain=30)
    driver = world.driver()
    driver.step()
    copy = world.server.copy()
    for _ in range(6):
        driver.step()
    world.server.restart(copy)
    assert (world.run(driver), world.state()) == expected()


def test_an_older_copy_put_back_right_after_it_was_made_good_is_made_good_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(retain=30)
    driver = world.driver()
    for _ in range(4):
        driver.step()
    bring_up, puts_back = Applier._bring_up, [True]

    def brought_up(self: Applier, work: Any) -> None:
        bring_up(self, work)
        if puts_back and puts_back.pop():
            world.server.restart({})

    world.server.restart({})
    world.cache = WorkerCache()
    driver = world.driver()  # brings the store up
    monkeypatch.setattr(Applier, "_bring_up", brought_up)
    world.server.restart({})
    assert (world.run(driver), world.state()) == expected()
    assert not puts_back


@pytest.mark.parametrize("same_driver", [False, True])
def test_an_older_copy_that_cannot_be_made_good_is_refused(same_driver: bool) -> None:
    world = World(retain=2)
    driver = world.driver()
    for _ in range(2):
        driver.step()
    copy = world.server.copy()
    for _ in range(10):
        driver.step()
    world.server.restart(copy)
    with pytest.raises(IncompatibleState, match=r"has epoch [12], .*older copy"):
        world.run(driver if same_driver else None)


def test_another_store_is_refused_with_the_name_of_the_one_it_has() -> None:
    world = World()
    world.driver().step()
    with pytest.raises(IncompatibleState, match="keeps its state in 'memory'.*'segments'"):
        world.driver("segments")
    plain = World(kind="segments")
    plain.driver().step()
    with pytest.raises(IncompatibleState, match="keeps its state in 'segments'.*'memory'"):
        plain.driver("memory")


def test_a_sleeper_that_applies_old_epochs_late_changes_nothing() -> None:
    world = World()
    first = world.driver()
    for _ in range(3):
        first.step()
    late = partial(first._applier._turn, first._applier._work())
    second = world.driver()
    for _ in range(8):
        second.step()
        late()
    late()
    assert (world.run(second), world.state()) == expected()


@pytest.mark.parametrize("kind", ["files", "log"])
def test_stores_in_files_survive_drivers_that_die(kind: str, tmp_path: Path) -> None:
    world = World(22, kind=kind, path=tmp_path)
    for point in POINTS:
        try:
            driver = world.driver()
            failpoints.arm(point, die)
            for _ in range(2):
                driver.step()
        except Crash:
            pass
        finally:
            failpoints.disarm()
        world.cache = WorkerCache()
    plain = World(22, kind="segments")
    assert (world.run(), world.state()) == (plain.run(), plain.state())
    assert Checkpoint(tmp_path).get("Basket", "key 2") == plain.state()["key 2"]


@pytest.mark.parametrize("kind", ["files", "log"])
def test_an_older_copy_of_a_directory_is_made_good_or_refused(kind: str, tmp_path: Path) -> None:
    for retain, refused in ((30, False), (2, True)):
        path, copy = tmp_path / f"checkpoint-{retain}", tmp_path / f"copy-{retain}"
        world = World(kind=kind, retain=retain, path=path)
        driver = world.driver()
        for _ in range(3):
            driver.step()
        shutil.copytree(path / "cells", copy)
        for _ in range(8):
            driver.step()
        driver.close()
        shutil.rmtree(path / "cells")
        shutil.copytree(copy, path / "cells")
        if refused:
            with pytest.raises(IncompatibleState, match=r"has epoch \d+, .*older copy"):
                world.run()
        else:
            assert (world.run(), world.state()) == expected()
