"""The keyed count with its checkpoint on one kind of store, and what it asks of that store."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from headrace.bench.frame.system import ON_DISK, ON_S3, STORES, Measurement, Task
from headrace.bench.ours import counts_in, pipeline, run_epochs
from headrace.plan.progress import EpochProgress, StoreUse
from headrace.store.counts import PATH, RequestCounts
from headrace.store.location import checkpoint_store
from headrace.store.store import Store

S3_URL = "HEADRACE_BENCH_STORE"
"""The environment variable with the S3 server's URL; PREFIX in it stands for a new place."""
_PUTS = 30
_PUT_BYTES = 1_000


@dataclass(frozen=True)
class OnStore:
    """The engine with its checkpoint on one kind of store."""

    name: str

    def run(self, task: Task) -> Measurement:
        """All epochs in one run, and the requests of those that are measured."""
        workload = task.workload
        place = str(task.scratch_dir / "checkpoint")
        if self.name == ON_S3:
            place = os.environ[S3_URL].replace("PREFIX", uuid.uuid4().hex)
        seen: list[StoreUse] = []

        def see(progress: EpochProgress) -> None:
            seen.append(progress.store)

        epoch_ms, checkpoint = run_epochs(
            task, self.name, pipeline(task), checkpoint=place, see=see
        )
        first = workload.first_measured_epoch - 1
        used = seen[workload.last_epoch - 1] - (seen[first - 1] if first else StoreUse())
        return Measurement(
            epoch_ms=epoch_ms,
            records=workload.measured_records,
            counts=counts_in(checkpoint),
            more={
                **_per_epoch(used, len(epoch_ms)),
                "put_ms_p50": _put_ms(checkpoint_store(checkpoint)),
            },
            notes={"checkpoint": "a directory" if self.name == ON_DISK else "an S3 server here"},
        )


def _per_epoch(used: StoreUse, epochs: int) -> dict[str, float]:
    """The requests of an epoch: those it waits for, and all others together."""
    path = used.requests.get(PATH, RequestCounts())
    others = RequestCounts()
    for purpose, counts in used.requests.items():
        if purpose != PATH:
            others += counts
    return {
        "puts_per_epoch": path.puts / epochs,
        "gets_per_epoch": path.gets / epochs,
        "lists_per_epoch": path.lists / epochs,
        "deletes_per_epoch": path.deletes / epochs,
        "bytes_per_epoch": path.bytes_out / epochs,
        "other_requests_per_epoch": others.requests / epochs,
        "local_hit_rate": used.hit_rate,
    }


def _put_ms(store: Store) -> float:
    """The median time of a small put: a round trip, and what makes it durable."""
    took = []
    for number in range(_PUTS):
        began = perf_counter()
        store.put_if_absent(f"bench-{uuid.uuid4().hex}-{number}", os.urandom(_PUT_BYTES))
        took.append((perf_counter() - began) * 1e3)
    return round(median(took), 3)


SYSTEMS = {name: OnStore(name) for name in STORES}
