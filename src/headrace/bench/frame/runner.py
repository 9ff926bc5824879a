"""One system, one process: `python -m headrace.bench.frame.runner SYSTEM ...`.

A process of its own gives each system a fresh JVM, empty caches and the whole machine, and the
benchmark can kill a system that hangs. The outcome is written to a file, because Spark and its
Python workers also write to standard output.

The counts are compared with the expected ones here, after the clock has stopped,
so that millions of them need not travel to the parent.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from headrace.bench.frame.registry import load_system
from headrace.bench.frame.system import Measurement, Task
from headrace.bench.workload import CountWorkload, expected_counts

MISMATCHES_SHOWN = 5


@dataclass(frozen=True)
class SystemOutcome:
    """A system's measurement with its counts already compared.

    `mismatches` is None where nothing was counted, empty where every count was
    right, and otherwise says which of them were wrong.
    """

    system: str
    epoch_ms: list[float]
    records: int | None
    mismatches: list[str] | None
    latency_ms: dict[str, float]
    notes: dict[str, str]
    more: dict[str, float] = field(default_factory=dict)
    others: dict[str, SystemOutcome] = field(default_factory=dict)


def run_system(name: str, task: Task) -> SystemOutcome:
    """Measure the system called `name` in this process."""
    return _judged(name, load_system(name).run(task), task)


def _judged(name: str, measured: Measurement, task: Task) -> SystemOutcome:
    mismatches = None
    if measured.counts is not None:
        mismatches = find_mismatches(measured.counts, expected_counts(task.workload))
    return SystemOutcome(
        system=name,
        epoch_ms=list(measured.epoch_ms),
        records=measured.records,
        mismatches=mismatches,
        latency_ms=dict(measured.latency_ms),
        notes=dict(measured.notes),
        more=dict(measured.more),
        others={other: _judged(other, its, task) for other, its in measured.others.items()},
    )


def find_mismatches(counts: pa.Table, expected: pa.Table) -> list[str]:
    """Say how `counts` differs from `expected`: at most a few lines, none if equal.

    Without expected rows nothing was compared, so that is no equality.
    """
    if not len(expected):
        return ["no row is complete, so nothing can be compared: give more records or epochs"]
    if _sorted(counts).equals(_sorted(expected)):
        return []
    keys = counts["key"].to_pylist()
    got = dict(zip(keys, counts["count"].to_pylist(), strict=True))
    want = dict(zip(expected["key"].to_pylist(), expected["count"].to_pylist(), strict=True))
    found = []
    if len(keys) != len(got):
        found.append(f"{len(keys) - len(got)} keys appear more than once")
    found += [
        f"{key}: counted {got.get(key)}, expected {want.get(key)}"
        for key in sorted(want.keys() | got.keys())
        if got.get(key) != want.get(key)
    ]
    hidden = len(found) - MISMATCHES_SHOWN
    return found[:MISMATCHES_SHOWN] + ([f"and {hidden} more"] if hidden > 0 else [])


def main(arguments: list[str]) -> None:
    """Read the workload, run the system, write the outcome."""
    if len(arguments) != 5:
        raise SystemExit(
            "usage: python -m headrace.bench.frame.runner SYSTEM WORKLOAD.json INPUT_DIR "
            "SCRATCH_DIR OUTCOME.json"
        )
    name, workload_file, input_dir, scratch_dir, outcome_file = arguments
    workload = msgspec.json.decode(Path(workload_file).read_bytes(), type=CountWorkload)
    outcome = run_system(name, Task(workload, Path(input_dir), Path(scratch_dir)))
    Path(outcome_file).write_bytes(msgspec.json.encode(outcome))


def _sorted(counts: pa.Table) -> pa.Table:
    return counts.select(["key", "count"]).sort_by("key").combine_chunks()


if __name__ == "__main__":
    main(sys.argv[1:])
