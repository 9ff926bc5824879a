"""`headrace bench deploy`: what does it cost to replace a computation under load?

A pipeline counts per key, with many keys in state and a steady load. `headrace deploy` puts another
version of its computation in force. How late is any epoch, beside the median of those before? See
`deployed` for how it is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.bench.elastic.balance import judged
from headrace.bench.elastic.deployed import deployed_before
from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Contender, Launch, Say, run_rounds
from headrace.bench.frame.summary import summarise
from headrace.bench.frame.system import DEPLOYED, OURS
from headrace.bench.workload import CountWorkload

LATENESS_MAX = 3.0
"""No epoch is later than this many times the median."""


def run_deploy(
    workload: CountWorkload,
    *,
    rounds: int = 3,
    work_dir: Path | None = None,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measures deploys and returns the JSON document."""
    deployed_before(workload)  # refuses a workload that is too short
    machine = describe_machine()
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        contenders = [Contender(OURS, DEPLOYED, workload)]
        runs = run_rounds(contenders, rounds, Path(directory), launch=launch, say=say)[OURS]
    wrong = [run.mismatches for run in runs if run.mismatches]
    right = all(run.mismatches == [] for run in runs)
    numbers = summarise(runs)
    bar = Bar("the latest epoch / the median", "at most", LATENESS_MAX, numbers["lateness_ratio"])
    return {
        "benchmark": "deploy",
        "workload": asdict(workload),
        "systems": {OURS: numbers},
        "results_equal": right,
        **({"mismatches": wrong} if wrong else {}),
        "bars": [bar.as_json(right)],
        "notes": [run.notes for run in runs],
        "rounds": {"lateness_ms": [run.epoch_ms for run in runs]},
        "machine": machine,
        "versions": describe_versions(),
    }


def format_deploy(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    numbers = document["systems"][OURS]
    lines = [
        f"{document['workload']['state_keys']:,} keys in state; a deploy took "
        f"{numbers['deploy_s']:.1f} s until it was confirmed",
        f"lateness: median {numbers['lateness_ms_p50']:,.0f} ms before the deploy, "
        f"{numbers['lateness_ms_p50_since']:,.0f} ms since; "
        f"worst {numbers['lateness_ms_worst_before']:,.0f} ms before, "
        f"{numbers['lateness_ms_worst']:,.0f} ms since",
    ]
    for number, notes in enumerate(document["notes"], 1):
        lines.append(f"round {number}, in seconds since the command: {notes['moments_s']}")
        lines.append(f"  latest epochs, due at: {notes['worst']}")
    return "\n".join([*lines, "", *judged(document)])
