"""The guarantee levels: what a crash does to each, at every place where a driver can die."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.pipelines import at

from headrace import Computation, InvalidPipeline, Pipeline, SinkError, failpoints, sinks, sources
from headrace import state as field
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.store.memory import MemoryStore
from headrace.testing import Harness

BEFORE_THE_PLAN = ["before-plan-write"]
PLAN_OPEN = ["after-plan-write", "before-job", "before-segment-write", "after-segment-write"]
WEAK_ROWS_OUT = ["before-commit-write"]
COMMITTED = ["after-commit-write", "before-delivery", "before-claim"]
DELIVERED = ["after-high-water"]
EVERYWHERE = [*BEFORE_THE_PLAN, *PLAN_OPEN, *WEAK_ROWS_OUT, *COMMITTED, *DELIVERED]


class Pass(Computation):
    """Passes records on, and counts them in its state."""

    n: int = field(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce(record.value["v"])


def passing(pipeline: str = "exactly-once", own: str | None = None, **timing: Any) -> Pipeline:
    p = Pipeline("levels", guarantee=pipeline)
    p.read("in", sources.memory([], timestamp="t", **timing))
    p.compute(Pass, inputs={"in": "k"}, outputs="out", guarantee=own)
    p.stream("out").write(sinks.memory())
    return p


def crashed(p: Pipeline, at_failpoint: str) -> tuple[list[int], int, Harness]:
    """Three records, a driver that dies over the second, and what came out."""
    with Harness(p, slots=1) as h:
        h.send("in", at(1, v=1))
        h.settle()
        h.send("in", at(2, v=2))
        h.crash(at=at_failpoint)
        h.send("in", at(3, v=3))
        out = h.read("out")
        assert h.crashes == 1
        return out, h.state("Pass", "a").n, h


@pytest.mark.parametrize("place", EVERYWHERE)
def test_exactly_once_loses_nothing_and_shows_nothing_twice(place: str) -> None:
    out, counted, h = crashed(passing(), place)
    assert out == [1, 2, 3]
    assert counted == 3
    assert h.end().skipped == 0


@pytest.mark.parametrize("place", EVERYWHERE)
def test_at_least_once_loses_nothing_and_may_show_rows_twice(place: str) -> None:
    out, counted, _ = crashed(passing("at-least-once"), place)
    assert sorted(set(out)) == [1, 2, 3]
    assert counted == 3, "state is part of the commit, whatever the level"
    assert out == ([1, 2, 2, 3] if place in WEAK_ROWS_OUT else [1, 2, 3])


@pytest.mark.parametrize("place", EVERYWHERE)
def test_at_most_once_shows_nothing_twice_and_counts_what_it_loses(place: str) -> None:
    out, counted, h = crashed(passing("at-most-once"), place)
    summary = h.end()
    if place in BEFORE_THE_PLAN:
        assert (out, counted) == ([1, 2, 3], 3)
        assert (summary.skipped, summary.undelivered) == (0, 0)
    elif place in COMMITTED or place in DELIVERED:
        # The epoch has happened; only rows are lost, of sinks that have not acknowledged it.
        assert (out, counted) == ([1, 3], 3)
        assert summary.skipped == 0
        first_sink = [row["v"] for row in h.read("in")]
        assert first_sink == ([1, 2, 3] if place in DELIVERED else [1, 3])
    else:
        assert (out, counted) == ([1, 3], 2)
        assert summary.skipped == 1
        assert any("1 records were skipped" in note for note in summary.notes)


def test_rows_that_at_most_once_does_not_deliver_again_are_counted() -> None:
    with Harness(passing("at-most-once"), slots=1) as h:
        h.send("in", at(1, v=1), at(2, v=2))
        h.crash(at="before-delivery")
        assert h.read("out") == []
        summary = h._open().summary("stopped")
        assert summary.undelivered == 4, (
            "two rows for `out`, two for `in`: a harness reads all streams"
        )
        assert any("4 rows whose delivery was uncertain" in note for note in summary.notes)


def test_a_driver_that_stops_in_order_skips_nothing() -> None:
    p = Pipeline("levels", guarantee="at-most-once")
    p.read("in", sources.memory([at(i, v=i) for i in range(9)], timestamp="t"))
    p.compute(Pass, inputs={"in": "k"}, outputs="out")
    out = sinks.memory()
    p.stream("out").write(out)
    store = MemoryStore()
    for _ in range(3):
        driver = driver_of(p.freeze(), store)
        run(driver, 1)
        driver.stop()
        driver.close()
    assert out.rows == list(range(9))
    assert driver.ledger.counters.skipped == 0


def test_what_was_skipped_stays_skipped_and_counted_for_every_later_driver() -> None:
    with Harness(passing("at-most-once"), slots=1) as h:
        for v in range(40):
            h.send("in", at(v, v=v))
            if v in (3, 4, 20):
                h.crash(at="before-commit-write")
            h.settle()
        expected = [v for v in range(40) if v not in (3, 4, 20)]
        assert h.read("out") == expected
        h._driver = None
        assert h.end().skipped == 3
        assert all(h.replay(e).equal for e in range(h.epoch - 5, h.epoch + 1))


def test_a_split_that_was_skipped_to_its_end_has_ended() -> None:
    with Harness(passing("at-most-once"), slots=1) as h:
        h.send("in", at(1, v=1))
        h.settle()
        source = h._sources["in"]
        h.send("in", at(2, v=2))
        source.end()
        h.crash(at="before-commit-write")
        summary = h.end()
        assert summary.reason == "end"
        assert h.read("out") == [1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("level", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_driver_that_dies_again_and_again_keeps_its_level(level: str, seed: int) -> None:
    dice = random.Random(seed)
    places = [*EVERYWHERE, "after-job", "before-takeover", "after-takeover"]
    sent = list(range(25))
    with Harness(passing(level), slots=2, epoch_records=2) as h:
        for v in sent:
            h.send("in", at(v, dice.choice("abc"), v=v))
            if dice.random() < 0.5:
                h.crash(at=dice.choice(places))
        out = h.read("out")
        counted = sum(h.state("Pass", key).n for key in h.keys("Pass"))
        skipped = h.end().skipped
        assert h.crashes > 5
    if level == "exactly-once":
        assert sorted(out) == sent
    elif level == "at-least-once":
        assert set(out) == set(sent)
    else:
        assert len(out) == len(set(out))
        assert set(out) < set(sent)
    assert counted == len(sent) - skipped
    assert bool(skipped) == (level == "at-most-once")


class Calls:
    """Stands for a system that is not idempotent: a function that counts what it got."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.fails = 0

    def __call__(self, rows: Any, epoch: int) -> None:
        self.got += rows.column("v").to_pylist()
        if self.fails:
            self.fails -= 1
            raise ConnectionError("gone in the middle")


class PassRow(Computation):
    def process_record(self, record, ctx):
        ctx.produce({"v": record.value["v"]})


def to_a_function(level: str, own: str | None, got: Calls) -> PipelineBuilder:
    p = PipelineBuilder("calls", guarantee=level)
    p.read("in", sources.memory([at(i, v=i) for i in range(9)], timestamp="t"))
    p.compute(PassRow, inputs={"in": "k"}, outputs="out", guarantee=own)
    p.stream("out").write(sinks.foreach(got))
    return p


class Died(BaseException):
    pass


def die() -> None:
    raise Died


@pytest.mark.parametrize(
    ("level", "own", "expected"),
    [
        ("exactly-once", None, [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8]),
        ("at-most-once", None, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("exactly-once", "at-most-once", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_function_that_a_crash_interrupts_is_called_again_unless_at_most_once(
    level: str, own: str | None, expected: list[int], tmp_path: Any
) -> None:
    from headrace.store.disk import DiskStore

    got = Calls()
    store = DiskStore(tmp_path / "state")
    driver = driver_of(to_a_function(level, own, got).freeze(), store)
    run(driver, 1)
    failpoints.arm("after-publish", die)
    with pytest.raises(Died):
        run(driver, 1)
    failpoints.disarm()
    driver = driver_of(to_a_function(level, own, got).freeze(), store)
    run(driver, 2)
    assert got.got == expected
    assert driver.ledger.counters.skipped == 0, "no plan was open"
    assert driver.summary("stopped").undelivered == (3 if "at-most-once" in (level, own) else 0)


def test_rows_that_an_at_most_once_sink_refused_are_not_handed_over_again(tmp_path: Any) -> None:
    from headrace.store.disk import DiskStore

    got = Calls()
    topology = to_a_function("at-most-once", None, got).freeze()
    driver = driver_of(topology, DiskStore(tmp_path / "state"))
    got.fails = 1
    with pytest.raises(SinkError):
        run(driver, 1)
    run(driver, 2)  # the same driver goes on, as one does that has waited for its sink
    assert got.got == list(range(9))
    assert driver.summary("stopped").undelivered == 3


# Levels of one computation --------------------------------------------------


@pytest.mark.parametrize("place", EVERYWHERE)
def test_a_computation_of_its_own_level_changes_its_rows_at_sinks_and_nothing_else(
    place: str,
) -> None:
    p = Pipeline("mixed")
    p.read("in", sources.memory([], timestamp="t"))
    levels = ("exactly-once", "at-least-once", "at-most-once")
    for level in levels:
        p.compute(Pass, inputs={"in": "k"}, outputs=level, guarantee=level, name=f"{level} C")
        p.stream(level).write(sinks.memory())
    with Harness(p, slots=1) as h:
        h.send("in", at(1, v=1))
        h.settle()
        h.send("in", at(2, v=2))
        h.crash(at=place)
        h.send("in", at(3, v=3))
        assert h.read("exactly-once") == [1, 2, 3]
        # A memory sink reaches its last failpoint with weak rows too, before the commit.
        twice = place in WEAK_ROWS_OUT or place in DELIVERED
        assert h.read("at-least-once") == ([1, 2, 2, 3] if twice else [1, 2, 3])
        once = h.read("at-most-once")
        assert once in ([1, 2, 3], [1, 3])
        if place in ("after-commit-write", "before-delivery"):
            assert once == [1, 3]
        assert {h.state(f"{level} C", "a").n for level in levels} == {3}
        assert h.end().skipped == 0


def test_at_least_once_reads_sources_with_ids_as_they_come() -> None:
    with Harness(passing("at-least-once", id="v"), slots=1) as h:
        h.send("in", at(1, v=1), at(2, v=1))
        assert h.read("out") == [1, 1]
    with Harness(passing("at-least-once", "exactly-once", id="v"), slots=1) as h:
        h.send("in", at(1, v=1), at(2, v=1))
        assert h.read("out") == [1]
    with Harness(passing("exactly-once", "at-least-once", id="v"), slots=1) as h:
        h.send("in", at(1, v=1), at(2, v=1))
        assert h.read("out") == [1, 1]


# What means nothing is refused ----------------------------------------------


def test_an_unknown_level_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        InvalidPipeline, match=r"pipeline 'p': guarantee= is one of \"exactly-once\""
    ):
        Pipeline("p", guarantee="twice")
    with pytest.raises(InvalidPipeline, match=r"computation 'Pass': guarantee= is one of"):
        passing(own="once")


def test_a_computation_cannot_promise_more_than_a_pipeline_that_skips_input() -> None:
    for own in ("exactly-once", "at-least-once"):
        with pytest.raises(InvalidPipeline, match=f"cannot be {own} in a pipeline that is at-most"):
            passing("at-most-once", own)
    assert passing("at-most-once", "at-most-once").freeze()


def test_a_level_and_the_switches_that_it_sets_are_not_given_together() -> None:
    p = Pipeline("p")
    p.read("in", sources.memory([], timestamp="t"))
    for switch in ({"strong": True}, {"strong": False}, {"dedup": False}):
        with pytest.raises(InvalidPipeline, match="give it or them, not both"):
            p.compute(Pass, inputs={"in": "k"}, outputs="o", guarantee="exactly-once", **switch)
    p = Pipeline("p", guarantee="at-most-once")
    p.read("in", sources.memory([], timestamp="t"))
    with pytest.raises(InvalidPipeline, match="strong=False delivers rows again"):
        p.compute(Pass, inputs={"in": "k"}, outputs="o", strong=False)


@pytest.mark.parametrize("own", ["at-least-once", "at-most-once"])
def test_a_level_without_a_sink_means_nothing_and_is_refused(own: str) -> None:
    p = Pipeline("p")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Pass, inputs={"in": "k"}, outputs="mid", guarantee=own)
    p.compute(PassRow, inputs={"mid": None}, outputs="out")
    p.stream("out").write(sinks.memory())
    with pytest.raises(InvalidPipeline, match=f"'Pass' is {own}, but none of its outputs"):
        p.validate()


def test_two_levels_on_one_stream_at_a_sink_are_refused() -> None:
    p = Pipeline("p")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Pass, inputs={"in": "k"}, outputs="out")
    p.compute(PassRow, inputs={"in": "k"}, outputs="out", guarantee="at-most-once")
    p.stream("out").write(sinks.memory())
    with pytest.raises(InvalidPipeline, match=r"produced by 'Pass' \(exactly-once\), 'PassRow'"):
        p.validate()
