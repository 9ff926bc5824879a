"""Thousands of seeded schedules: every promise is kept, and a seed always tells the same story."""

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from headrace import Computation, Pipeline, failpoints, sinks, sources, state
from headrace.errors import InvalidPipeline
from headrace.testing import SimulationFailed, simulate
from headrace.testing.simulator.faults.kinds import FACES, KINDS
from headrace.testing.simulator.runner import Verdict, run_seed

pytestmark = pytest.mark.timeout(2400)

AGAIN = """
from headrace.testing.simulator.runner import run_seed
for seed in range(400, 412):
    verdict = run_seed(seed)
    print(verdict.workload, verdict.complaint, *verdict.trace, sep="\\n")
"""


def test_every_schedule_of_the_suite_keeps_every_promise(verdicts: list[Verdict]) -> None:
    broken = [str(verdict) for verdict in verdicts if verdict.complaint is not None]
    assert not broken, "\n\n".join(broken[:5])


def test_every_kind_of_fault_strikes(verdicts: list[Verdict]) -> None:
    struck: Counter[str] = Counter()
    for verdict in verdicts:
        struck += verdict.struck
    assert {kind.name for kind in KINDS if struck[kind.name] < len(verdicts) // 100} == set()


def test_drivers_die_at_every_failpoint(verdicts: list[Verdict]) -> None:
    trace = "\n".join(line for verdict in verdicts for line in verdict.trace)
    assert {name for name in failpoints.NAMES if f"dies at {name}\n" not in trace} == set()


def test_all_workloads_are_run(verdicts: list[Verdict]) -> None:
    assert {verdict.workload for verdict in verdicts} == {
        "unordered-ids", "ordered-ids", "transfers", "diamond", "dice", "calls", "ties",
        "at-least-once", "at-most-once", "copies", "limited", "moving", "deploys", "baskets",
            "refreshed",
    }  # fmt: skip


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    """Also where strings hash differently, which decides in which order sets are walked."""
    stories = {
        subprocess.run(
            [sys.executable, "-c", AGAIN],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(stories) == 1
    assert "driver 1 starts" in stories.pop()


def test_a_broken_promise_is_told_with_its_schedule_and_the_command_that_repeats_it() -> None:
    told = str(Verdict(7, "dice", "epoch 1 was left out", ["driver 1 starts"], command="do so"))
    assert told.splitlines() == [
        "seed 7 (dice): epoch 1 was left out",
        "  what happened:",
        "    driver 1 starts",
        "  to see it again: do so",
    ]


def test_the_command_of_a_seed_names_the_workload_and_store_if_they_were_asked_for() -> None:
    assert run_seed(3).command == "headrace chaos --seeds 1 --from 3"
    assert run_seed(3, "dice").command.endswith("--from 3 --workload dice")
    assert run_seed(3, "dice", face="objects").command.endswith("dice --store objects")


@pytest.mark.parametrize("face", FACES)
def test_a_store_that_was_asked_for_is_the_one_that_is_used(face: str) -> None:
    for seed in range(20, 26):
        objects = "the checkpoint lies in an object store"
        assert (objects in run_seed(seed, face=face).trace) == (face == "objects")


# Pipelines of users.


class Total(Computation, ordered=True):
    total: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.total += record.value["amount"]
        ctx.produce({"key": ctx.key, "total": self.total})


class Forgetful(Computation):
    """Keeps its count where no checkpoint sees it."""

    seen = [0]
    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.seen[0] += 1
        self.count += 1
        ctx.produce({"seen": self.seen[0]})


def totals(computation: type[Computation] = Total) -> Pipeline:
    p = Pipeline("totals")
    p.read("amounts", sources.memory([], timestamp="at"))
    p.compute(computation, inputs={"amounts": "key"}, outputs="totals")
    p.stream("totals").write(sinks.memory())
    return p


AMOUNTS = [{"key": f"k{i % 3}", "amount": i, "at": 10 * i} for i in range(20)]


def test_a_pipeline_of_ones_own_can_be_simulated() -> None:
    checked = []

    def check(outcome: Any) -> None:
        checked.append(1)
        kept = {key: found["total"] for key, found in outcome.checkpoint.scan("Total")}
        assert kept == {f"k{i}": sum(range(i, 20, 3)) for i in range(3)}
        rows = [value for rows in outcome.outputs["totals"].values() for value, _ in rows]
        assert len(rows) == len(AMOUNTS)

    verdicts = simulate(totals, {"amounts": AMOUNTS}, seeds=25, check=check)
    assert len(verdicts) == len(checked) == 25
    assert sum(sum(verdict.struck.values()) for verdict in verdicts) > 50


@pytest.mark.parametrize("store", FACES)
def test_a_pipeline_of_ones_own_can_be_simulated_over_one_kind_of_store(store: str) -> None:
    for verdict in simulate(totals, {"amounts": AMOUNTS}, seeds=5, store=store):
        assert ("the checkpoint lies in an object store" in verdict.trace) == (store == "objects")


def test_a_store_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="store= is one of disk, objects, not 'tape'"):
        simulate(totals, {"amounts": AMOUNTS}, seeds=1, store="tape")


def test_splits_can_be_given_by_name() -> None:
    splits = {"a": AMOUNTS[:10], "b": AMOUNTS[10:]}
    assert simulate(totals, {"amounts": splits}, seeds=[5, 6])


def test_records_of_a_source_with_ids_are_given_by_the_stream_that_users_know() -> None:
    def pipeline() -> Pipeline:
        p = Pipeline("ids")
        p.read("amounts", sources.memory([], timestamp="at", id="amount"))
        p.compute(Total, inputs={"amounts": "key"}, outputs="totals")
        return p

    twice = [record for record in AMOUNTS for _ in range(2)]
    seen = []

    def check(outcome: Any) -> None:
        rows = outcome.outputs["totals"].values()
        seen.append(sum(len(epoch) for epoch in rows))

    simulate(pipeline, {"amounts": twice}, seeds=10, check=check)
    assert seen == [len(AMOUNTS)] * 10


def test_records_must_be_given_for_every_source() -> None:
    with pytest.raises(InvalidPipeline, match="records are given for orders; .* feed amounts"):
        simulate(totals, {"orders": AMOUNTS}, seeds=1)


def test_code_that_is_not_exactly_once_is_found_out_with_its_seed() -> None:
    def pipeline() -> Pipeline:
        Forgetful.seen[0] = 0
        return totals(Forgetful)

    with pytest.raises(SimulationFailed) as caught:
        simulate(pipeline, {"amounts": AMOUNTS}, seeds=range(1, 50))
    assert "not as in a run without faults" in str(caught.value)
    assert "simulate(..., seeds=[" in str(caught.value)


def test_a_check_that_fails_is_told_with_its_seed() -> None:
    def check(outcome: Any) -> None:
        assert not outcome.outputs["totals"], "too much"

    with pytest.raises(SimulationFailed, match="the check failed: too much"):
        simulate(totals, {"amounts": AMOUNTS}, seeds=[1], check=check)


def test_a_pipeline_that_fails_by_itself_is_told_so() -> None:
    class Broken(Computation):
        count: int = state(0)

        def process_record(self, record: Any, ctx: Any) -> None:
            raise ValueError("no")

    with pytest.raises(SimulationFailed, match="without any fault: .*ValueError"):
        simulate(lambda: totals(Broken), {"amounts": AMOUNTS}, seeds=1)
