"""The verdict on an epoch: a commit, another try, or an error (PROTOCOL B3)."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.engine.support import Local, counting, driver_of

from headrace.errors import HeadraceError, InvalidRecord, UserCodeError
from headrace.model.source import Range
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.verdict import RunAgain, judge
from headrace.plan.epoch import Commit, Report, WorkOrder
from headrace.plan.units import TORN, saw_digest
from headrace.plan.watermarks import Mark


@pytest.fixture
def epoch() -> tuple[Topology, WorkOrder, list[Report]]:
    """An honest epoch: one reader, two slots."""
    topology = counting([1, 2, 3, 4])
    driver = driver_of(topology)
    substrate = Local(topology, driver.store)
    decision = driver._decide()
    task = driver.work_order(decision.plan)
    return topology, task, list(substrate.run(task))


def changed(reports: list[Report], label: str, **changes) -> list[Report]:
    assert any(r.label == label for r in reports)
    return [msgspec.structs.replace(r, **changes) if r.label == label else r for r in reports]


READER, SLOT = "values/memory#00000", "Count/0"


def test_an_honest_epoch_commits_what_its_reports_add_up_to(epoch) -> None:
    topology, task, reports = epoch
    commit = judge(topology, task, reports)
    assert isinstance(commit, Commit)
    assert commit.epoch == 1 and commit.counters.records == 3 and commit.counters.hooks == 3
    assert set(commit.deltas["Count"]) == {0, 1}
    assert commit.splits["values"]["memory"].position == 3
    assert sum(file.rows for file in commit.staged) == 3
    assert set(commit.digests) == {READER, "Count/0", "Count/1"}
    assert commit.rings == task.plan.rings


def test_the_order_in_which_reports_arrive_changes_nothing(epoch) -> None:
    topology, task, reports = epoch
    assert judge(topology, task, reports[::-1]) == judge(topology, task, reports)


def test_a_report_twice_with_equal_digests_is_one_output_whoever_made_it(epoch) -> None:
    topology, task, reports = epoch
    assert judge(topology, task, [*reports, *reports]) == judge(topology, task, reports)


@pytest.mark.parametrize("label", [READER, "Count/0", "Count/1"])
def test_a_missing_label_drops_the_epoch(epoch, label: str) -> None:
    topology, task, reports = epoch
    verdict = judge(topology, task, [r for r in reports if r.label != label])
    assert verdict == RunAgain(f"no report of {label}")


def test_a_label_with_two_digests_drops_the_epoch(epoch) -> None:
    topology, task, reports = epoch
    other = changed(reports, SLOT, digest="another")
    verdict = judge(topology, task, [*reports, *other])
    assert isinstance(verdict, RunAgain) and "two different outputs" in verdict.reason


def test_a_consumer_that_saw_another_digest_drops_the_epoch(epoch) -> None:
    topology, task, reports = epoch
    verdict = judge(topology, task, changed(reports, SLOT, saw="another"))
    assert isinstance(verdict, RunAgain) and "not the reported one" in verdict.reason
    verdict = judge(topology, task, changed(reports, SLOT, saw=""))
    assert isinstance(verdict, RunAgain)


def test_a_producer_that_reports_another_digest_than_it_sent_drops_the_epoch(epoch) -> None:
    topology, task, reports = epoch
    verdict = judge(topology, task, changed(reports, READER, digest="another"))
    assert isinstance(verdict, RunAgain) and "not the reported one" in verdict.reason


def test_slots_that_saw_different_watermarks_drop_the_epoch(epoch) -> None:
    topology, task, reports = epoch
    verdict = judge(topology, task, changed(reports, SLOT, input_mark=99))
    assert isinstance(verdict, RunAgain) and "watermarks" in verdict.reason


def test_a_torn_input_drops_the_epoch(epoch) -> None:
    topology, task, reports = epoch
    verdict = judge(topology, task, changed(reports, SLOT, error=TORN, message="torn"))
    assert verdict == RunAgain("torn")


def test_an_error_wins_over_what_it_tore_and_the_first_label_over_the_others(epoch) -> None:
    topology, task, reports = epoch
    reports = changed(reports, "Count/1", error="InvalidRecord", message="second")
    reports = changed(reports, READER, error=TORN, message="torn")
    verdict = judge(topology, task, reports)
    assert isinstance(verdict, InvalidRecord) and str(verdict) == "second"
    reports = changed(reports, "Count/0", error="UserCodeError", message="first")
    verdict = judge(topology, task, reports)
    assert isinstance(verdict, UserCodeError) and str(verdict) == "first"


def test_an_error_of_an_unknown_class_is_still_an_error(epoch) -> None:
    topology, task, reports = epoch
    verdict = judge(topology, task, changed(reports, SLOT, error="Exotic", message="m"))
    assert type(verdict) is HeadraceError


@pytest.mark.parametrize("order", [1, -1])
def test_a_split_read_in_parts_ends_where_its_last_part_does(epoch, order: int) -> None:
    topology, task, reports = epoch
    (read,) = task.plan.reads[0]
    parts = [
        msgspec.structs.replace(read, part=0, range=Range(0, 2, 2)),
        msgspec.structs.replace(read, part=1, range=Range(2, 4, 2, last=True)),
    ][::order]
    plan = msgspec.structs.replace(task.plan, reads=[[part] for part in parts])
    task = msgspec.structs.replace(task, plan=plan)
    marks = {0: Mark(5, 5), 1: Mark(None, 9)}
    reader = next(r for r in reports if r.label == READER)
    reports = [r for r in reports if r.label != READER]
    for part in parts:
        reports.append(
            msgspec.structs.replace(reader, label=part.label, mark=marks[part.part], digest="d")
        )
    saw = saw_digest((part.label, "d") for part in parts)
    reports = [msgspec.structs.replace(r, saw=saw) if r.host == "Count" else r for r in reports]
    commit = judge(topology, task, reports)
    assert isinstance(commit, Commit)
    split = commit.splits["values"]["memory"]
    assert (split.position, split.mark, split.finished) == (4, Mark(None, 9), True)
    assert split.news == plan.wall
    assert commit.outs["values"] == 9
