"""`headrace bench windowed-count` and `top-k`: the same query in Headrace and in native Spark.

With `hot`, one key gets that share of the records, and our run with even keys is measured in the
same rounds: combining before the shuffle should make the two equally fast.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace.bench.frame.bars import LARGE_EPOCH, SMALL_EPOCH, Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Contender, Launch, Say, run_rounds
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.summary import Numbers, ratios, summarise
from headrace.bench.frame.system import OURS, WINDOWS_NATIVE
from headrace.bench.workload import CountWorkload

EVEN_LABEL = f"{OURS}-even-keys"
HOT_BAR = 0.9


def run_windowed(
    workload: CountWorkload,
    *,
    native: bool,
    rounds: int = 1,
    work_dir: Path | None = None,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure side by side and return the JSON document."""
    contenders = [Contender(OURS, OURS, workload)]
    if native:
        contenders.append(Contender(WINDOWS_NATIVE, WINDOWS_NATIVE, workload))
    if workload.hot:
        contenders.append(Contender(EVEN_LABEL, OURS, replace(workload, hot=0.0)))
    machine = describe_machine()
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        outcomes = run_rounds(contenders, rounds, Path(directory), launch=launch, say=say)
    return _document(workload, outcomes, machine)


def _document(
    workload: CountWorkload,
    outcomes: Mapping[str, Sequence[SystemOutcome]],
    machine: Mapping[str, object],
) -> dict[str, Any]:
    systems = {name: summarise(found) for name, found in outcomes.items()}
    others = {name: numbers for name, numbers in systems.items() if name != OURS}
    against = ratios(systems[OURS], others)
    wrong = {n: o.mismatches for n, found in outcomes.items() for o in found if o.mismatches}
    document: dict[str, Any] = {
        "benchmark": workload.query,
        "workload": asdict(workload),
        "systems": systems,
        "ratios": against,
        "results_equal": not wrong
        and all(o.mismatches is not None for found in outcomes.values() for o in found),
    }
    if wrong:
        document["mismatches"] = wrong
    return document | {
        "bars": [b.as_json(document["results_equal"]) for b in bars(workload, against)],
        "notes": {name: found[-1].notes for name, found in outcomes.items()},
        "rounds": {name: [run.epoch_ms for run in found] for name, found in outcomes.items()},
        "machine": dict(machine),
        "versions": describe_versions(),
    }


def bars(workload: CountWorkload, against: Mapping[str, Numbers]) -> list[Bar]:
    """The bars that this workload's shape is meant for."""
    found = []
    native = against.get(WINDOWS_NATIVE, {})
    shape = (workload.records, workload.keys)
    if shape == LARGE_EPOCH and not workload.hot:
        name = f"throughput / {WINDOWS_NATIVE}"
        found.append(Bar(name, "at least", 1.0, native.get("throughput")))
    if shape == SMALL_EPOCH and not workload.hot:
        name = f"epoch p50 / {WINDOWS_NATIVE}"
        found.append(Bar(name, "at most", 0.6, native.get("epoch_p50")))
    if shape == LARGE_EPOCH and workload.hot == HOT_BAR:
        even = against.get(EVEN_LABEL, {}).get("throughput")
        found.append(Bar(f"throughput with one key at {HOT_BAR:.0%} / even", "at least", 0.7, even))
    return found
