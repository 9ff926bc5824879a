"""`headrace bench stores`: the same counts with the checkpoint on a disk and on an S3 server.

Two workloads, each on both stores in the same rounds: large epochs, for throughput, and small ones,
whose time is mostly waiting. Beside times, the requests of the measured epochs are counted, those
that epochs wait for apart from all others. A round trip is the median time of a small durable put.

The S3 server runs on this machine and takes part of its two cores: what is measured is an upper
bound of what a store elsewhere costs in CPU, and a lower bound of its latency.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Contender, Say, run_rounds
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.summary import Numbers, summarise
from headrace.bench.frame.system import ON_DISK, ON_S3, STORES
from headrace.bench.on_store import S3_URL
from headrace.bench.servers.processes import CannotHave
from headrace.bench.servers.s3 import Server, ministack, versitygw
from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError

ROUND_TRIPS_MAX = 4
THROUGHPUT_MIN = 0.9
SERVERS = {"versitygw": versitygw, "ministack": ministack}


def run_stores(
    large: CountWorkload,
    small: CountWorkload,
    *,
    server: str = "",
    rounds: int = 1,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measures both workloads on both stores and returns the JSON document."""
    started = _server(server, say)
    os.environ.update(started.environment)
    os.environ[S3_URL] = started.url("PREFIX")
    machine = describe_machine()
    shapes = {"large": large, "small": small}
    contenders = [
        Contender(f"{name}-{shape}", name, workload)
        for shape, workload in shapes.items()
        for name in STORES
    ]
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        outcomes = run_rounds(contenders, rounds, Path(directory), say=say)
    started.process.kill()
    return _document(shapes, outcomes, started.name, machine)


def _server(wanted: str, say: Say) -> Server:
    """The S3 server that was asked for, or the first that this machine can have."""
    if wanted and wanted not in SERVERS:
        raise HeadraceError(f"there is no server {wanted!r}; choose from {', '.join(SERVERS)}")
    reasons = []
    for name in [wanted] if wanted else SERVERS:
        say(f"starting {name} (its first installation takes a while)")
        try:
            return SERVERS[name]()
        except CannotHave as error:
            reasons.append(str(error))
    raise HeadraceError("no S3 server can be had here: " + "; ".join(reasons))


def _document(
    shapes: Mapping[str, CountWorkload],
    outcomes: Mapping[str, Sequence[SystemOutcome]],
    server: str,
    machine: Mapping[str, object],
) -> dict[str, Any]:
    numbers = {label: summarise(runs) for label, runs in outcomes.items()}
    systems = {
        name: {
            **numbers[f"{name}-small"],
            "records_per_s": numbers[f"{name}-large"]["records_per_s"],
            "large": numbers[f"{name}-large"],
        }
        for name in STORES
    }
    wrong = {
        label: run.mismatches for label, runs in outcomes.items() for run in runs if run.mismatches
    }
    equal = not wrong
    return {
        "benchmark": "stores",
        "workload": {shape: asdict(workload) for shape, workload in shapes.items()},
        "server": server,
        "systems": systems,
        "results_equal": equal,
        **({"mismatches": wrong} if wrong else {}),
        "bars": [bar.as_json(equal) for bar in _bars(numbers)],
        "rounds": {label: [run.epoch_ms for run in runs] for label, runs in outcomes.items()},
        "machine": dict(machine),
        "versions": describe_versions(),
    }


def _bars(numbers: Mapping[str, Numbers]) -> list[Bar]:
    disk, s3 = numbers[f"{ON_DISK}-small"], numbers[f"{ON_S3}-small"]
    longer = (s3["epoch_ms_p50"] - disk["epoch_ms_p50"]) / s3["put_ms_p50"]
    ratio = (
        numbers[f"{ON_S3}-large"]["records_per_s"] / numbers[f"{ON_DISK}-large"]["records_per_s"]
    )
    return [
        Bar("small epoch on S3 - on a disk, in round trips", "at most", ROUND_TRIPS_MAX, longer),
        Bar("throughput on S3 / on a disk", "at least", THROUGHPUT_MIN, ratio),
    ]


def format_stores(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = [f"S3 server: {document['server']}", f"{'':<28}{'disk':>14}{'s3':>14}"]
    disk, s3 = (document["systems"][name] for name in STORES)
    for name in disk:
        if name != "large":
            lines.append(f"{name:<28}{disk[name]:>14,.2f}{s3[name]:>14,.2f}")
    lines.append("large epochs:")
    for name in disk["large"]:
        lines.append(f"  {name:<26}{disk['large'][name]:>14,.2f}{s3['large'][name]:>14,.2f}")
    lines.append(f"results equal: {'yes' if document['results_equal'] else 'NO'}")
    return "\n".join([*lines, *bar_lines(document["bars"])])


def shapes_of(keys: int, slots: int, seed: int) -> tuple[CountWorkload, CountWorkload]:
    """The two workloads of the benchmark."""
    large = CountWorkload(keys=keys, slots=slots, seed=seed, epochs=8, warmup_epochs=4)
    return large, replace(large, records=2_000, epochs=20, warmup_epochs=15)
