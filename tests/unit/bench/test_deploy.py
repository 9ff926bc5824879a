"""What a deploy under load costs, from when epochs were due and when they were committed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engine.support import Local, counting

from headrace.bench.elastic import deploy_job
from headrace.bench.elastic.deploy import format_deploy, run_deploy
from headrace.bench.elastic.deployed import AFTER, deployed_before, lateness
from headrace.bench.elastic.log_watch import LogWatch
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.system import DEPLOYED, Task
from headrace.bench.workload import CountWorkload
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.errors import HeadraceError
from headrace.log.entry import COMMIT, GENERATION, PLAN
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.store.disk import DiskStore


def workload(**changes: Any) -> CountWorkload:
    shape = {"records": 10, "keys": 5, "epochs": 4 * AFTER, "warmup_epochs": 4}
    return CountWorkload(**{**shape, **changes})


def test_a_quarter_of_the_files_comes_before_the_deploy() -> None:
    assert deployed_before(workload()) == 5 + AFTER
    with pytest.raises(HeadraceError, match="too few"):
        deployed_before(workload(epochs=4 * AFTER - 1))


def test_epochs_are_late_against_the_median_of_those_before_the_deploy() -> None:
    shape = workload()
    epochs = range(shape.first_measured_epoch, shape.last_epoch + 1)
    began = deployed_before(shape)
    took = {epoch: 0.1 if epoch < began else 0.3 for epoch in epochs}
    took[began - 1] = 0.9  # the machine is not quite steady
    took[began + 3] = 0.45
    due = {epoch: float(epoch) for epoch in epochs}
    found = lateness(shape, due, {epoch: due[epoch] + took[epoch] for epoch in epochs}, began)
    numbers = found.numbers()
    assert numbers["lateness_ms_p50"] == pytest.approx(100)
    assert numbers["lateness_ms_p50_since"] == pytest.approx(300)
    assert numbers["lateness_ms_worst"] == pytest.approx(450)
    assert numbers["lateness_ms_worst_before"] == pytest.approx(900)
    assert numbers["lateness_ratio"] == pytest.approx(4.5)
    with pytest.raises(HeadraceError, match="never committed"):
        lateness(shape, due, dict.fromkeys(epochs[:-1], 2.0), began)


def test_the_watch_sees_every_entry_once_with_the_time_of_its_file(tmp_path: Path) -> None:
    topology = counting([f"{n % 7}" for n in range(90)])
    store = DiskStore(tmp_path / "checkpoint")
    watch = LogWatch(tmp_path / "checkpoint")
    watch.look()
    assert watch.seen == []
    setup = Setup(
        topology, fingerprint(topology.graph), store, Local(topology, store),
        Options(slots=2, epoch_records=30), clock=lambda: time.time_ns() // 1000, seeds=lambda: 1,
    )  # fmt: skip
    began = time.time() - 0.1
    driver = Follower(setup).take_over()
    for _ in range(3):
        driver.step()
        watch.look()
    watch.look()
    kinds = [each.kind for each in watch.seen]
    assert kinds[0] == GENERATION and kinds.count(COMMIT) == 3 and set(kinds[1:]) <= {COMMIT, PLAN}
    assert [e.records for e in watch.seen if e.kind == COMMIT] == [30, 30, 30]
    assert watch.records == 90
    times = [each.when for each in watch.seen]
    assert times == sorted(times) and began <= times[0] and times[-1] <= time.time() + 0.1
    assert watch.first(COMMIT, began) == next(e.when for e in watch.seen if e.kind == COMMIT)
    assert watch.first(COMMIT, times[-1] + 1) is None
    assert watch.confirmed(began) is None


def test_both_versions_are_one_pipeline_with_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(deploy_job.DIRECTORY, str(tmp_path))
    (tmp_path / "in").mkdir()
    former, later = deploy_job.former(), deploy_job.later()
    assert former.name == later.name
    graphs = [each.freeze().graph for each in (former, later)]
    assert fingerprint(graphs[0]) != fingerprint(graphs[1])


class Column:
    """What a slot of the computation reads and writes."""

    def __init__(self) -> None:
        self.written: Any = None

    def read(self) -> pa.Table:
        return pa.table({"key": ["a", "b", "c"], "count": [5, 0, 2**53]})

    def write(self, count: Any) -> None:
        self.written = count

    def produce_table(self, columns: dict[str, Any]) -> None:
        assert columns["count"] is self.written


def test_both_versions_count_alike() -> None:
    found = []
    for version in (deploy_job.CountTable, deploy_job.CountOtherwise):
        column = Column()
        table = pa.table({"key_index": [0, 2, 0], "seen": [3, 1, 4]})
        version.process_table(version(), table, column)
        found.append(np.asarray(column.written).tolist())
    assert found == [[12, 0, 2**53 + 1]] * 2


@pytest.mark.parametrize("wrong", [[], ["k1: counted 1, expected 2"]])
def test_the_document_says_how_late_the_latest_epoch_was(tmp_path: Path, wrong: list[str]) -> None:
    ratios = iter([2.0, 9.0, 2.5])

    def launch(system: str, task: Task) -> SystemOutcome:
        assert system == DEPLOYED
        numbers = {
            "lateness_ms_p50": 100.0, "lateness_ms_p50_since": 110.0, "lateness_ms_worst": 250.0,
            "lateness_ms_worst_before": 130.0, "lateness_ratio": next(ratios), "deploy_s": 20.0,
        }  # fmt: skip
        notes = {"moments_s": "led 12.00", "worst": "12.10 s: 250 ms"}
        return SystemOutcome("s", [10.0, 12.0], 20, wrong, {}, notes, numbers)

    found = run_deploy(workload(), rounds=3, work_dir=tmp_path, launch=launch)
    assert found["results_equal"] is (not wrong)
    assert [bar["measured"] for bar in found["bars"]] == [2.5]
    assert [bar["reached"] for bar in found["bars"]] == [not wrong]
    assert "12.10 s: 250 ms" in format_deploy(found)
