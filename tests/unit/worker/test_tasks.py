"""Slots are dealt to tasks; a task sends one control row to each task that it feeds (J10, J11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.unit.engine.support import Local, driver_of

from headrace import Computation, state
from headrace.engine.driver.local import read_all, reports_in, run_epoch
from headrace.errors import UserCodeError
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.verdict import RunAgain, judge
from headrace.plan.epoch import Commit, Report, WorkOrder
from headrace.plan.units import TORN, slots_of_task
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.worker.exchange.controls import decode_control
from headrace.worker.exchange.envelope import BLOB, CONTROL, Envelope
from headrace.worker.level import run_level
from headrace.worker.runtime import Runtime

SLOTS = 5
RECORDS = 40


class Count(Computation):
    n: int = state(0)

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def process_record(self, record, ctx):
        if record.value == self.fails_at:
            raise ValueError("this one")
        self.n += 1
        ctx.produce(record.value)


class Sum(Computation):
    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += record.value
        ctx.produce({"k": ctx.key, "total": self.total})


def two_levels(fails_at: int | None = None) -> Topology:
    p = PipelineBuilder("two levels")
    p.read("values", memory(range(RECORDS), timestamps=range(RECORDS)))
    p.compute(Count(fails_at), inputs={"values": lambda v: f"key {v}"}, outputs="counted", name="A")
    p.compute(Sum, inputs={"counted": lambda v: v % 7}, outputs="sums", name="B")
    p.stream("sums").write(memory_sink())
    return p.freeze()


def order_of(topology: Topology, tasks: int) -> tuple[Runtime, WorkOrder]:
    driver = driver_of(topology, slots=SLOTS, epoch_records=RECORDS)
    order = driver.work_order(msgspec.structs.replace(driver._decide().plan, tasks=tasks))
    return Local(topology, driver.store).runtime, order


def by_task(rows: list[Envelope], tasks: int) -> list[list[Envelope]]:
    found: list[list[Envelope]] = [[] for _ in range(tasks)]
    for row in rows:
        found[row.partition].append(row)
    return found


def digests(reports: list[Report]) -> dict[str, tuple[str, str]]:
    return {report.label: (report.digest, report.saw) for report in reports}


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 8])
def test_the_number_of_tasks_changes_no_output(tasks: int) -> None:
    topology = two_levels()
    runtime, order = order_of(topology, tasks)
    alone, other = order_of(topology, 1)
    assert digests(run_epoch(runtime, order)) == digests(run_epoch(alone, other))


@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
def test_every_slot_has_one_task_and_a_report_of_its_own(tasks: int) -> None:
    runtime, order = order_of(two_levels(), tasks)
    dealt = [slot for task in range(tasks) for slot in slots_of_task(order, "A", task)]
    assert sorted(dealt) == list(range(SLOTS))
    labels = Counter(report.label for report in run_epoch(runtime, order))
    assert labels == {"values/memory#00000": 1} | {
        f"{name}/{slot}": 1 for name in "AB" for slot in range(SLOTS)
    }


@pytest.mark.parametrize("tasks", [1, 2, 3, 8])
def test_a_task_ends_with_one_control_row_for_each_task_of_the_level_that_it_feeds(
    tasks: int,
) -> None:
    runtime, order = order_of(two_levels(), tasks)
    received = by_task(read_all(runtime, order), tasks)
    for number in range(tasks):
        rows = list(run_level(runtime, order, 1, number, received[number]))
        controls = [row for row in rows if row.header.kind == CONTROL]
        slots = slots_of_task(order, "A", number)
        assert [row.partition for row in controls] == (list(range(tasks)) if slots else [])
        for row in controls:
            told = decode_control(row.body)
            assert [end.label for end in told.ends] == [f"A/{slot}" for slot in slots]
            sent = Counter(
                (r.header.label, r.header.slot)
                for r in rows
                if r.header.kind == BLOB and r.partition == row.partition
            )
            assert {(told.ends[n].label, slot): blobs for n, slot, blobs in told.sent} == sent
        assert not slots or rows[-1].header.kind == CONTROL


def test_two_attempts_of_a_task_send_the_same_bytes() -> None:
    topology = two_levels()
    received = by_task(read_all(*order_of(topology, 2)), 2)
    runtime, order = order_of(topology, 2)
    again, _ = order_of(topology, 2)
    assert list(run_level(runtime, order, 1, 0, received[0])) == list(
        run_level(again, order, 1, 0, received[0][::-1])
    )


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_slot_that_fails_leaves_the_other_slots_of_its_task_alone(tasks: int) -> None:
    topology = two_levels(fails_at=11)
    runtime, order = order_of(topology, tasks)
    reports = run_epoch(runtime, order)
    failed = [report for report in reports if report.host == "A" and report.error is not None]
    assert [report.error for report in failed] == [UserCodeError.__name__]
    assert len([r for r in reports if r.host == "A"]) == SLOTS
    # What it would have sent is missing everywhere: no consumer runs a hook.
    assert {report.error for report in reports if report.host == "B"} == {TORN}
    assert isinstance(judge(topology, order, reports), UserCodeError)


Change = Callable[[list[Envelope]], list[Envelope]]


def torn(change: Change, tasks: int = 2) -> object:
    """The verdict where the rows between the two levels were changed."""
    topology = two_levels()
    runtime, order = order_of(topology, tasks)
    rows = list(_level(runtime, order, 1, read_all(runtime, order)))
    passed = [row for row in rows if row.header.level > 2]  # reports, on their way to the driver
    between = change([row for row in rows if row.header.level == 2])
    return judge(topology, order, reports_in(_level(runtime, order, 2, [*passed, *between])))


def _level(
    runtime: Runtime, order: WorkOrder, level: int, rows: list[Envelope]
) -> Iterator[Envelope]:
    for number, received in enumerate(by_task(rows, order.plan.tasks)):
        yield from run_level(runtime, order, level, number, received)


def of_kind(rows: list[Envelope], kind: str) -> list[Envelope]:
    return [row for row in rows if row.header.kind == kind]


def test_rows_between_tasks_that_fit_together_are_committed() -> None:
    assert isinstance(torn(lambda rows: rows), Commit)


def test_rows_that_come_twice_or_in_another_order_count_once() -> None:
    first = torn(lambda rows: rows)
    assert torn(lambda rows: [*rows, *rows][::-1]) == first


def test_each_missing_row_drops_the_epoch() -> None:
    between = 0

    def without(at: int) -> Change:
        def change(rows: list[Envelope]) -> list[Envelope]:
            nonlocal between
            between = len(rows)
            return [row for i, row in enumerate(rows) if i != at]

        return change

    torn(without(0))
    assert between > 10
    for at in range(between):
        assert isinstance(torn(without(at)), RunAgain), at


def test_a_blob_of_another_attempt_drops_the_epoch() -> None:
    def change(rows: list[Envelope]) -> list[Envelope]:
        blob = of_kind(rows, BLOB)[0]
        header = msgspec.structs.replace(blob.header, sequence=1_000)
        return [*rows, Envelope(blob.partition, header, blob.body)]

    verdict = torn(change)
    assert isinstance(verdict, RunAgain) and "came" in verdict.reason


@pytest.mark.parametrize("both", [False, True])
def test_a_label_with_another_digest_drops_the_epoch(both: bool) -> None:
    """One consuming task sees another attempt; or it sees both."""

    def change(rows: list[Envelope]) -> list[Envelope]:
        row = of_kind(rows, CONTROL)[0]
        told = decode_control(row.body)
        ends = [msgspec.structs.replace(told.ends[0], digest="another"), *told.ends[1:]]
        body = msgspec.msgpack.encode(msgspec.structs.replace(told, ends=ends))
        other = Envelope(row.partition, row.header, body)
        return [*(each for each in rows if both or each is not row), other]

    verdict = torn(change)
    assert isinstance(verdict, RunAgain)
    assert ("two different outputs" if both else "not the reported one") in verdict.reason


def test_a_control_row_without_one_of_its_labels_drops_the_epoch() -> None:
    def change(rows: list[Envelope]) -> list[Envelope]:
        row = of_kind(rows, CONTROL)[0]
        told = decode_control(row.body)
        sent = [(n - 1, slot, blobs) for n, slot, blobs in told.sent if n]
        body = msgspec.msgpack.encode(msgspec.structs.replace(told, ends=told.ends[1:], sent=sent))
        return [
            *(each for each in rows if each is not row),
            Envelope(row.partition, row.header, body),
        ]

    verdict = torn(change)
    assert isinstance(verdict, RunAgain) and "A/0" in verdict.reason
