"""Notes on their way to the driver: left by tasks of lower levels, taken along by the last."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.support import counting, driver_of

from headrace.engine.driver.local import read_all
from headrace.engine.spark import notes as notes_module
from headrace.engine.spark.notes import collect_notes, leave_notes
from headrace.engine.spark.tasks import PLACE, OpenOrder, Place, _run
from headrace.plan.decisions.next_step import Run
from headrace.plan.elastic.load import SlotNote
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.worker.exchange.envelope import REPORT
from headrace.worker.runtime import Runtime

NOTES = [SlotNote(3, "Count/0", 1500, 1200), SlotNote(3, "Count/1", 800)]


@pytest.fixture(autouse=True)
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def test_what_is_left_is_taken_along_once() -> None:
    leave_notes("a checkpoint", NOTES[:1])
    leave_notes("a checkpoint", NOTES[1:])
    assert sorted(collect_notes("a checkpoint"), key=lambda n: n.label) == NOTES
    assert collect_notes("a checkpoint") == []


def test_notes_of_another_pipeline_on_this_executor_stay() -> None:
    leave_notes("one", NOTES)
    assert collect_notes("another") == []
    assert len(collect_notes("one")) == 2


def test_a_damaged_note_and_a_disk_that_fails_do_no_harm(near: Path) -> None:
    leave_notes("a checkpoint", NOTES)
    [file] = (near / "headrace" / "notes").glob("*/*.note")
    file.write_bytes(b"\xc1")
    assert collect_notes("a checkpoint") == []
    (near / "headrace" / "notes").rename(near / "headrace" / "gone")
    (near / "headrace" / "notes").write_text("not a directory")
    leave_notes("a checkpoint", NOTES)
    assert collect_notes("a checkpoint") == []


def test_a_task_takes_along_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes_module, "FILES_MAX", 2)
    for _ in range(3):
        leave_notes("a checkpoint", NOTES[:1])
    assert len(collect_notes("a checkpoint")) == 2
    assert len(collect_notes("a checkpoint")) == 1


def test_a_task_of_the_last_level_sends_its_notes_and_those_that_it_finds() -> None:
    store, topology = MemoryStore(), counting(["a", "b", "c"])
    driver = driver_of(topology, store, slots=2)
    step = driver._decide()
    assert isinstance(step, Run)
    task = driver.work_order(step.plan)
    runtime = Runtime(topology, store, WorkerCache())
    order = OpenOrder(task, [], {})
    leave_notes(task.checkpoint, [SlotNote(1, "Lower/0", 7)])
    labels: list[str] = []
    for number in range(task.plan.tasks):
        rows = [row for row in read_all(runtime, task) if row.partition == number]
        sent = list(_run(runtime, order, 1, number, rows))
        for row in sent:
            if row.header.kind == PLACE:
                labels += [n.label for n in msgspec.msgpack.decode(row.body, type=Place).notes]
            elif row.header.kind == REPORT:
                assert b"Lower/0" not in row.body
    assert sorted(labels) == ["Count/0", "Count/1", "Lower/0"]
