"""The contract of a system that takes part in a benchmark.

A system gets a `Task` and returns a `Measurement`. It runs in a process of its own (see
`runner`), so it may start a Spark session, fill caches and leave threads running without any
effect on the next system's numbers.

Rules for every system, so that the numbers are comparable:
- It reads the epochs from `input_dir`, one file per epoch, in the order of their
  names, and has only `workload.slots` cores.
- With `columns="all"` its user code can read `key`, `ts` and `value` of every
  record; with `"key"` only the key need travel.
- With `sink="parquet"` every changed count lies in a Parquet file when its epoch
  ends; with `"noop"` every system computes the changed counts and drops them (ours has them in
  its state alone if `hook="record"`).
- With `hook="record"` user code is called once per record, or once per key and
  epoch with an iterator of records where that is all a system offers; it reads the
  `value` of each and adds it to the key's count.
- Time for an epoch runs from deciding what it reads until its results are
  delivered and its state is durable in `scratch_dir`.
- Preload and warm-up epochs are run, but their times are left out.
- `counts` is gathered after the last epoch, outside every measured time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError

OURS = "headrace"
OURS_TRIVIAL = "headrace-trivial"
BARE = "spark-bare"
BARE_ONE_STAGE = "spark-bare-one-stage"
EXACTLY_ONCE = "exactly-once"
EXACTLY_ONCE_BARE = "exactly-once-bare"
AT_MOST_ONCE = "at-most-once"

PEERS = ("spark-native", "spark-tws", "spark-tws-row")
PYFLINK, BYTEWAX = "pyflink", "bytewax"
FOREIGN = (PYFLINK, BYTEWAX)
"""Peers in environments of their own, which the benchmark makes."""
GUARANTEES = (EXACTLY_ONCE, EXACTLY_ONCE_BARE, AT_MOST_ONCE)
SERVICES = "services"
"""The pipelines of all three guarantees, which take turns."""
WINDOWS_NATIVE = "spark-native-windows"
WINDOWS_TWS, WINDOWS_TWS_ROW = "spark-tws-pandas-windows", "spark-tws-row-windows"
NEXMARK_NATIVE, NEXMARK_TWS = "spark-native-nexmark", "spark-tws-nexmark"
NEXMARK_TWS_PANDAS = "spark-tws-pandas-nexmark"
ON_DISK, ON_S3 = "disk", "s3"
STORES = (ON_DISK, ON_S3)
RESCALED = "headrace-rescale"
SPARK_REPARTITION = "spark-repartition"
RESIZED = (RESCALED, SPARK_REPARTITION)
DEPLOYED = "headrace-deploy"
NAMES = (
    OURS,
    OURS_TRIVIAL,
    *PEERS,
    *FOREIGN,
    WINDOWS_NATIVE,
    WINDOWS_TWS,
    WINDOWS_TWS_ROW,
    NEXMARK_NATIVE,
    NEXMARK_TWS,
    NEXMARK_TWS_PANDAS,
    BARE,
    BARE_ONE_STAGE,
    SERVICES,
    *STORES,
    *RESIZED,
    DEPLOYED,
)


@dataclass(frozen=True)
class Task:
    """One request: run this workload on these files, and write only below `scratch_dir`."""

    workload: CountWorkload
    input_dir: Path
    scratch_dir: Path


@dataclass(frozen=True)
class Measurement:
    """What a system reports about its run.

    `epoch_ms` has one entry per measured epoch, in order. `records` is what those
    epochs processed together; None for a system that processes no records, such
    as the bare Spark job. `counts` holds `key, count` as delivered; None where
    nothing is counted. `latency_ms` has `p50`, `p95` and `p99` only where a run
    measured latency under an open-loop load. `more` holds other numbers of this
    system, by their name in the document. `notes` says how the system was set
    up, in words a reader of the JSON document can check. `others` holds the
    systems that took turns with this one in the same process.
    """

    epoch_ms: tuple[float, ...]
    records: int | None = None
    counts: pa.Table | None = None
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Measurement] = field(default_factory=dict)


class MeasuredSystem(Protocol):
    """Anything that can be measured on a keyed count."""

    def run(self, task: Task) -> Measurement:
        """Run every epoch of the task and say how long the measured ones took."""
        ...


def check_names(names: list[str]) -> None:
    """Refuse an unknown system before the first one has run for minutes."""
    for name in names:
        if name not in NAMES:
            raise HeadraceError(f"unknown system {name!r}; choose from {', '.join(NAMES)}")
