"""What a candidate finds out before it asks to take over (L2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.test_deploying import First, Second, Third, World, run

from headrace import Computation, IncompatibleState, InvalidPipeline, Map, UserCodeError, state
from headrace.engine.deploy.candidate import DeployOptions, prepare
from headrace.engine.deploy.sample import check_cells
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.plan.deploy.comparison import FORWARD, RESTORE, Meant
from headrace.plan.deploy.handover import judge_wish


class Broken(Third):
    @classmethod
    def migrate(cls, fields, version):
        raise KeyError("what is that?")


class Unlucky(Second):
    def process_record(self, record, ctx):
        raise ValueError("a mistake")


class OtherType(Computation):
    n: dict[str, int] = state(factory=dict)

    def process_record(self, record, ctx):
        ctx.produce(self.n)


class WithMaps(Computation):
    seen: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.seen[f"{record.timestamp}"] = record.timestamp


class OtherMaps(Computation):
    seen: Map[str, str] = state()

    def process_record(self, record, ctx):
        pass


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def prepared(new: Follower, **options: Any) -> tuple[Any, list[str]]:
    told: list[str] = []
    made = prepare(new, DeployOptions(**options), lambda kind, text: told.append(text))
    return made, told


def running(world: World, computation: Any = First) -> Driver:
    driver = world.follower(computation, retain_epochs=5).take_over()
    run(driver, 6)
    return driver


def files_in(root: Path) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def test_it_checks_tries_and_writes_nothing(world: World) -> None:
    old = running(world)
    before = files_in(world.root)
    wish, told = prepared(world.follower(Second))
    assert files_in(world.root) == before
    assert (wish.mode, wish.expects, wish.fingerprint) == (FORWARD, "First", "Second")
    assert judge_wish(old.ledger, wish) == ""
    assert "3 keys of C" in told[0] and "has run epochs 4, 5, 6 again" in told[1]


def test_state_is_migrated_for_a_try(world: World) -> None:
    running(world)
    wish, told = prepared(world.follower(Third), check_all=True)
    assert wish.mode == RESTORE and "version 2" in told[-1]


def test_a_migration_that_fails_is_found(world: World) -> None:
    running(world)
    with pytest.raises(UserCodeError, match=r"computation 'C', key 'v.'.*KeyError"):
        prepared(world.follower(Broken))


def test_a_hook_that_fails_is_found(world: World) -> None:
    running(world)
    with pytest.raises(UserCodeError, match=r"fails in epoch 4, which has run before.*a mistake"):
        prepared(world.follower(Unlucky))


def test_a_computation_that_the_code_adds_is_tried_without_state(world: World) -> None:
    running(world)
    world.build = lambda p: p.compute(
        First, inputs={"counts": str}, outputs="more", name="Added"
    )  # fmt: skip
    _, told = prepared(world.follower(Second))
    assert "has run epochs 4, 5, 6 again" in told[2], told
    world.build = lambda p: p.compute(
        Unlucky, inputs={"counts": str}, outputs="more", name="Added"
    )  # fmt: skip
    with pytest.raises(UserCodeError, match=r"fails in epoch 4, .*Added.*a mistake"):
        prepared(world.follower(Third))


def test_what_is_refused_is_refused_first(world: World) -> None:
    running(world)
    with pytest.raises(IncompatibleState, match=r"the deploy is refused: computation 'C': field"):
        prepared(world.follower(OtherType))
    with pytest.raises(IncompatibleState, match="in force already"):
        prepared(world.follower(First))


def test_without_a_pipeline_there_is_nothing_to_deploy_to(world: World) -> None:
    with pytest.raises(InvalidPipeline, match="correct the checkpoint's path"):
        prepared(world.follower(Second))


def test_entries_of_maps_are_read(world: World) -> None:
    driver = running(world, WithMaps)
    checkpoint = Checkpoint(world.store)
    assert check_cells(world.topology(WithMaps), checkpoint, {}) == {"C": 3}
    with pytest.raises(
        IncompatibleState, match=r"'C', key 'v.': field '\S+': a Map's entry is stored"
    ):
        check_cells(world.topology(OtherMaps), checkpoint, {})
    driver.close()


def test_what_is_given_up_by_name_is_part_of_the_request(world: World) -> None:
    running(world)
    wish, _ = prepared(world.follower(Second), meant=Meant(rekeyed={"C": "drop"}))
    assert wish.dropped == ("C",)


def test_a_source_that_is_gone_is_no_fault_of_the_code(world: World) -> None:
    """A list of other values cannot be read again, so nothing is tried, and that is said."""
    running(world)
    world.values = ["x"]
    _, told = prepared(world.follower(Second), meant=Meant(moved=frozenset({"values"})))
    assert "no epoch could be run again" in told[1]
