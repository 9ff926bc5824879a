"""`headrace bench overhead`: what exactly-once costs, and what causal logging adds to it.

The measure is that of the Clonos paper: a ratio of throughputs. Both pipelines use nondeterministic
services for their records and have exactly-once state and output. The first logs the services'
answers, so that a rerun gets them again; the second does not.

The pipelines take turns epoch by epoch (see `turns`), because the speed of a shared machine changes
more from run to run than they differ. Every epoch is compared with the other pipeline's epoch of
the same turn; the median of these ratios over all rounds is reported. Beside it stands the ratio
of processor times, which other work on the machine disturbs less.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Contender, Launch, Say, run_rounds
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.summary import summarise
from headrace.bench.frame.system import (
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    EXACTLY_ONCE_BARE,
    GUARANTEES,
    SERVICES,
)
from headrace.bench.workload import CountWorkload

PAIRS = (
    (EXACTLY_ONCE, EXACTLY_ONCE_BARE),
    (EXACTLY_ONCE_BARE, AT_MOST_ONCE),
    (EXACTLY_ONCE, AT_MOST_ONCE),
)
LOGGING_MIN = 0.97
"""Causal logging may cost 3 % of the throughput."""


def run_overhead(
    workload: CountWorkload,
    *,
    rounds: int = 1,
    work_dir: Path | None = None,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure the three side by side and return the JSON document."""
    machine = describe_machine()
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        every = run_rounds(
            [Contender(SERVICES, SERVICES, workload)],
            rounds,
            Path(directory),
            launch=launch,
            say=say,
        )[SERVICES]
    outcomes = {
        name: [outcome.others.get(name, outcome) for outcome in every] for name in GUARANTEES
    }
    ratios = {f"{one} / {other}": _ratio(outcomes, one, other) for one, other in PAIRS}
    wrong = {n: o.mismatches for n, runs in outcomes.items() for o in runs if o.mismatches}
    right = not wrong and all(o.mismatches is not None for r in outcomes.values() for o in r)
    measured = ratios[f"{EXACTLY_ONCE} / {EXACTLY_ONCE_BARE}"]["throughput"]
    bar = Bar("throughput with causal logging / without", "at least", LOGGING_MIN, measured)
    return {
        "benchmark": "overhead",
        "workload": asdict(workload),
        "systems": {name: summarise(runs) for name, runs in outcomes.items()},
        "ratios": ratios,
        "results_equal": right,
        **({"mismatches": wrong} if wrong else {}),
        "bars": [bar.as_json(right)],
        "notes": {name: runs[-1].notes for name, runs in outcomes.items()},
        "rounds": {name: [run.epoch_ms for run in runs] for name, runs in outcomes.items()},
        "machine": machine,
        "versions": describe_versions(),
    }


def format_overhead(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = [f"{'guarantee':<24}{'records/s':>14}{'epoch p50':>12}"]
    for name, numbers in document["systems"].items():
        speed, epoch = numbers["records_per_s"], numbers["epoch_ms_p50"]
        lines.append(f"{name:<24}{speed:>14,.0f}{epoch:>9,.0f} ms")
    lines.append("")
    for name, numbers in document["ratios"].items():
        each = ", ".join(f"{ratio:.3f}" for ratio in numbers["each_round"])
        cpu = "" if numbers["cpu"] is None else f"; by processor time {numbers['cpu']:.3f}"
        lines.append(f"{name}: {numbers['throughput']:.3f} (rounds: {each}){cpu}")
    lines += ["", f"results equal: {'yes' if document['results_equal'] else 'NO'}"]
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        lines.append(f"{verdict}  {bar['name']}: {bar['measured']:.3f} ({bar['bar']})")
    return "\n".join(lines)


def _ratio(outcomes: Mapping[str, Sequence[SystemOutcome]], one: str, other: str) -> dict[str, Any]:
    """Throughput of one over that of the other, which read the same records in each epoch."""
    rounds = [
        [b / a for a, b in zip(ones.epoch_ms, others.epoch_ms, strict=True)]
        for ones, others in zip(outcomes[one], outcomes[other], strict=True)
    ]
    cpu = [
        others.more["cpu_ms"] / ones.more["cpu_ms"]
        for ones, others in zip(outcomes[one], outcomes[other], strict=True)
        if ones.more.get("cpu_ms") and others.more.get("cpu_ms")
    ]
    return {
        "cpu": round(median(cpu), 4) if cpu else None,
        "throughput": round(median(ratio for each in rounds for ratio in each), 4),
        "each_round": [round(median(each), 4) for each in rounds],
    }
