"""Peers of benchmarks on a small input, one after the other in one process.

    python -m tests.spark.programs.bench_peers DIRECTORY QUERY SYSTEM...

Prints as a JSON object how many rows are right, and how those of each system differ from them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headrace.bench.frame.runner import run_system
from headrace.bench.frame.system import Task
from headrace.bench.workload import CountWorkload, expected_counts, write_input


def main(directory: Path, query: Any, systems: list[str]) -> None:
    # Many keys for few records, so that most windows are closed by timers.
    # Of Nexmark, so many that the windows and sessions of some end.
    records = 90_000 if query.startswith("q") else 3_000
    workload = CountWorkload(
        query=query, records=records, keys=300, epochs=2, warmup_epochs=1, hot=0.3
    )
    write_input(workload, directory / "in")
    found: dict[str, Any] = {"rows": len(expected_counts(workload))}
    for system in systems:
        scratch = directory / system
        scratch.mkdir()
        outcome = run_system(system, Task(workload, directory / "in", scratch))
        found[system] = [len(outcome.epoch_ms), outcome.mismatches]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
