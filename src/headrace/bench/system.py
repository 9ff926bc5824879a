"""What a system must be to take part in a benchmark, and where each one lives.

A system gets a `Task` and answers with a `Measurement`. It runs in a process of
its own (see `runner`), so it may start a Spark session, fill caches and leave
threads behind without touching the next system's numbers.

The rules every system keeps, so that the numbers mean the same:
- It reads the epochs from `input_dir`, one file per epoch, in the order of their
  names, and has only `workload.slots` cores.
- Time for an epoch runs from deciding what it reads until its results are
  delivered and its state is durable in `scratch_dir`.
- Preload and warm-up epochs are run, but their times are left out.
- `counts` is gathered after the last epoch, outside every measured time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.bench.workload import KeyedCount
from headrace.errors import HeadraceError

OURS = "headrace"
OURS_TRIVIAL = "headrace-trivial"
BARE = "spark-bare"
BARE_ONE_STAGE = "spark-bare-one-stage"

# Named by module, not imported: a process that measures one system must not pay
# for loading the others.
SYSTEMS: dict[str, str] = {
    OURS: "headrace.bench.ours:KEYED_COUNT",
    OURS_TRIVIAL: "headrace.bench.ours:TRIVIAL",
    "spark-native": "headrace.bench.peers.spark_native:SPARK_NATIVE",
    "spark-tws": "headrace.bench.peers.spark_tws:SPARK_TWS",
    "spark-tws-row": "headrace.bench.peers.spark_tws_row:SPARK_TWS_ROW",
    BARE: "headrace.bench.peers.spark_bare:SPARK_BARE",
    BARE_ONE_STAGE: "headrace.bench.peers.spark_bare:SPARK_BARE_ONE_STAGE",
}

PEERS = ("spark-native", "spark-tws", "spark-tws-row")


@dataclass(frozen=True)
class Task:
    """One request: run this workload on these files, and write only in there."""

    workload: KeyedCount
    input_dir: Path
    scratch_dir: Path


@dataclass(frozen=True)
class Measurement:
    """What a system says about its run.

    `epoch_ms` has one entry per measured epoch, in order. `records` is what those
    epochs processed together; None for a system that processes no records, such
    as the bare Spark job. `counts` holds `key, count` as delivered; None where
    nothing is counted. `latency_ms` has `p50`, `p95` and `p99` only where a run
    measured latency under an open-loop load. `notes` says how the system was set
    up, in words a reader of the JSON document can check.
    """

    epoch_ms: tuple[float, ...]
    records: int | None = None
    counts: pa.Table | None = None
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class System(Protocol):
    """Anything that can be measured on a keyed count."""

    def run(self, task: Task) -> Measurement:
        """Run every epoch of the task and say how long the measured ones took."""
        ...


def check_names(names: list[str]) -> None:
    """Refuse an unknown system before the first one has run for minutes."""
    for name in names:
        if name not in SYSTEMS:
            raise HeadraceError(
                f"unknown system {name!r}; choose from {', '.join(sorted(SYSTEMS))}"
            )


def load_system(name: str) -> System:
    """Import the system called `name`."""
    check_names([name])
    module, _, attribute = SYSTEMS[name].partition(":")
    system = getattr(import_module(module), attribute)
    if not isinstance(system, System):
        raise HeadraceError(f"{SYSTEMS[name]} is no System: it has no run(task) method")
    return system
