"""A Headrace pipeline that is rescaled while it runs, without a stop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from headrace import EpochProgress, Pipeline, sources
from headrace.bench.elastic.steady import (
    AROUND,
    SIZES,
    SteadyFeed,
    pauses,
    visible_files,
    wait_until,
)
from headrace.bench.frame.session import bench_session
from headrace.bench.frame.system import RESCALED, Measurement, Task
from headrace.bench.ours import CountTable, counts_in
from headrace.engine.job import Job

COMPUTATION = "count"


@dataclass(frozen=True)
class EpochSeen:
    """One epoch of the run."""

    records: int
    when: float
    ms: float
    slots: int
    """How many slots the computation had."""


@dataclass(frozen=True)
class Rescaled:
    """Headrace; a resize is one command to the running pipeline."""

    name: str = RESCALED

    def run(self, task: Task) -> Measurement:
        """All files, with every resize, in one run."""
        workload, checkpoint = task.workload, str(task.scratch_dir / "checkpoint")
        feed = SteadyFeed(workload, task.input_dir, task.scratch_dir / "in")
        p = Pipeline("rescale")
        p.read("records", sources.parquet(str(task.scratch_dir / "in"), watch=True, timestamp="ts"))
        p.compute(CountTable, inputs={"records": "key"}, outputs="counts", name=COMPUTATION)
        until = np.cumsum([workload.records_in(e) for e in range(1, workload.last_epoch + 1)])
        seen: list[EpochSeen] = []
        jobs: list[Job] = []

        def on_epoch(progress: EpochProgress) -> None:
            slots = _slots(jobs[0]) if jobs else SIZES[0]
            seen.append(EpochSeen(progress.records, time.time(), progress.seconds * 1_000, slots))

        def caught_up(epoch: int) -> None:
            wait_until(
                lambda: _alive(job) and sum(e.records for e in seen) >= until[epoch - 1],
                f"the results of file {epoch}",
            )

        with (
            bench_session(task, self.name) as spark,
            p.start(checkpoint=checkpoint, spark=spark, slots=SIZES[0], on_epoch=on_epoch) as job,
        ):
            jobs.append(job)
            interval_s = feed.warm_up(caught_up)
            first = len(seen)
            feed.steadily(interval_s, lambda slots: _rescale(job, slots), caught_up)
        visible = visible_files(workload, [(each.records, each.when) for each in seen])
        found = pauses(workload, feed.written, visible)
        measured = [each for each in seen[first:] if each.records]
        return Measurement(
            epoch_ms=tuple(each.ms for each in measured),
            records=workload.measured_records,
            counts=counts_in(checkpoint),
            more={**found.numbers(), "rescale_epoch_ratio": _worst_ratio(measured)},
            notes={
                "slots": " -> ".join(map(str, SIZES)),
                "interval_s": f"{interval_s:.3f}",
                "pauses_ms": ", ".join(f"{pause:.1f}" for pause in found.pause_ms),
            },
        )


def _rescale(job: Job, slots: int) -> None:
    job.rescale(COMPUTATION, slots)
    wait_until(lambda: _alive(job) and _slots(job) == slots, f"{slots} slots")


def _alive(job: Job) -> bool:
    if not job.running:
        job.wait()  # raises its error
    return True


def _slots(job: Job) -> int:
    return len(job._follower.ledger.slots[COMPUTATION])


def _worst_ratio(epochs: list[EpochSeen]) -> float:
    """The longest epoch of a rescale over the median of its neighbours."""
    found = []
    for at in range(1, len(epochs)):
        if epochs[at].slots != epochs[at - 1].slots:
            near = [*epochs[max(0, at - AROUND) : at], *epochs[at + 1 : at + 1 + AROUND]]
            found.append(epochs[at].ms / median(each.ms for each in near))
    return round(max(found), 3)


RESCALED_COUNT = Rescaled()
