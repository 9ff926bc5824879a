"""`headrace bench rescale`: what does it cost to change the number of slots under load?

Both systems count per key, with many keys in state and a steady load, and go through the same
sizes. Headrace is told the new number of slots while it runs. For the peer, Spark's Structured
Streaming, the query is stopped, its state is repartitioned, and it is started again. See `steady`
for what is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.bench.elastic.steady import SIZES, resized_before
from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Contender, Launch, Say, run_rounds
from headrace.bench.frame.summary import summarise
from headrace.bench.frame.system import OURS, RESCALED, SPARK_REPARTITION
from headrace.bench.workload import CountWorkload

PAUSE_RATIO_MAX = 0.05
"""At least twenty times less disturbance."""
EPOCH_RATIO_MAX = 2.0


def run_rescale(
    workload: CountWorkload,
    *,
    peer: bool = True,
    rounds: int = 5,
    work_dir: Path | None = None,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measures both side by side and returns the JSON document."""
    resized_before(workload)  # refuses a workload that is too short
    contenders = [Contender(OURS, RESCALED, workload)]
    if peer:
        contenders.append(Contender(SPARK_REPARTITION, SPARK_REPARTITION, workload))
    machine = describe_machine()
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        outcomes = run_rounds(contenders, rounds, Path(directory), launch=launch, say=say)
    systems = {name: summarise(runs) for name, runs in outcomes.items()}
    ratios = {
        name: {"pause": round(systems[OURS]["pause_ms"] / numbers["pause_ms"], 5)}
        for name, numbers in systems.items()
        if name != OURS and numbers["pause_ms"]
    }
    wrong = {n: o.mismatches for n, runs in outcomes.items() for o in runs if o.mismatches}
    right = not wrong and all(o.mismatches is not None for r in outcomes.values() for o in r)
    measured = ratios.get(SPARK_REPARTITION, {}).get("pause")
    epoch_ratio = systems[OURS]["rescale_epoch_ratio"]
    bars = [
        Bar(f"pause / {SPARK_REPARTITION}", "at most", PAUSE_RATIO_MAX, measured),
        Bar("epoch of a rescale / its neighbours", "at most", EPOCH_RATIO_MAX, epoch_ratio),
    ]
    return {
        "benchmark": "rescale",
        "workload": {**asdict(workload), "sizes": SIZES},
        "systems": systems,
        "ratios": ratios,
        "results_equal": right,
        **({"mismatches": wrong} if wrong else {}),
        "bars": [bar.as_json(right) for bar in bars],
        "notes": {name: [run.notes for run in runs] for name, runs in outcomes.items()},
        "rounds": {name: [run.epoch_ms for run in runs] for name, runs in outcomes.items()},
        "machine": machine,
        "versions": describe_versions(),
    }


def format_rescale(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    sizes = " -> ".join(map(str, document["workload"]["sizes"]))
    lines = [
        f"{document['workload']['state_keys']:,} keys in state, slots {sizes}",
        f"{'system':<22}{'pause':>12}{'worst':>12}{'latency p50':>14}{'epoch p50':>12}",
    ]
    for name, numbers in document["systems"].items():
        lines.append(
            f"{name:<22}{numbers['pause_ms']:>9,.0f} ms{numbers['pause_ms_worst']:>9,.0f} ms"
            f"{numbers['file_latency_ms_p50']:>11,.0f} ms{numbers['epoch_ms_p50']:>9,.0f} ms"
        )
    lines += ["", f"results equal: {'yes' if document['results_equal'] else 'NO'}"]
    return "\n".join([*lines, *bar_lines(document["bars"], digits=3)])
