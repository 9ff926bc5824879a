"""`headrace bench balance`: how soon, and how well, is the load of Zipf keys spread over slots?

The same stream runs once with each policy and once without balance. After each epoch the busiest
slot is compared with its bound, max(1.3 x the mean load, 1.1 x the heaviest key): in records, which
the slots really got. Now and then the hot keys move. Service time is emulated (see `emulated`).
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from headrace import EpochProgress, Pipeline, sources
from headrace.bench.elastic.emulated import (
    COMPUTATION,
    LABEL,
    Running,
    Serve,
    ZipfKeys,
    counts_of,
    emulated_session,
    hashes_of,
)
from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.plan.elastic.settings import EVEN, OFF, RING

WITHIN_EPOCHS_MAX = 10
SETTLED_AFTER = 10
"""So many epochs after the start, or after hot keys moved, the load should be even again."""


@dataclass(frozen=True)
class BalanceWorkload:
    """Zipf keys over slots."""

    records: int = 4_000
    """Records in an epoch."""
    keys: int = 10_000
    exponent: float = 1.2
    slots: int = 8
    epochs: int = 90
    moves_every: int = 30
    """After how many epochs the hot keys move; they do so until the end."""
    cost_us: int = 500


@dataclass(frozen=True)
class BalancedRun:
    """What one run showed."""

    ratios: tuple[float, ...]
    """The busiest slot over its bound, by epoch."""
    epoch_ms: tuple[float, ...]
    decisions: tuple[str, ...]
    counts: dict[str, int]

    def numbers(self, workload: BalanceWorkload) -> dict[str, float]:
        """The numbers of the document."""
        since = [
            at % workload.moves_every if at >= workload.moves_every else at
            for at in range(len(self.ratios))
        ]
        settled = [r for r, n in zip(self.ratios, since, strict=True) if n >= SETTLED_AFTER]
        times = [t for t, n in zip(self.epoch_ms, since, strict=True) if n >= SETTLED_AFTER]
        within = [at for at, ratio in enumerate(self.ratios, 1) if ratio <= 1]
        return {
            "within_bound_at_epoch": float(within[0]) if within else float(len(self.ratios) + 1),
            "ratio_settled_worst": round(max(settled), 3),
            "ratio_p50": round(median(self.ratios), 3),
            "share_within_bound": round(len(within) / len(self.ratios), 3),
            "epoch_ms_p50_settled": round(median(times), 1),
            "decisions": float(len(self.decisions)),
        }


def run_balance(
    workload: BalanceWorkload,
    *,
    policies: Sequence[str] = (EVEN, RING, OFF),
    work_dir: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Runs each policy once, and returns the JSON document."""
    machine = describe_machine()
    runs: dict[str, BalancedRun] = {}
    keys = [
        ZipfKeys(workload.keys, workload.exponent, workload.records * workload.moves_every)(
            n, random.Random(0)
        )
        for n in range(workload.records * workload.epochs)
    ]
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        with emulated_session(workload.slots, Path(directory)) as spark:
            for policy in policies:
                say(f"balance={policy}: {workload.epochs} epochs")
                runs[policy] = _run(workload, policy, keys, spark, Path(directory) / policy)
    systems = {name: run.numbers(workload) for name, run in runs.items()}
    right = all(run.counts == dict(Counter(keys)) for run in runs.values())
    even = systems.get(EVEN)
    bars = [
        Bar(
            "epochs until the busiest slot is within its bound", "at most", WITHIN_EPOCHS_MAX,
            even["within_bound_at_epoch"] if even else None,
        ),
        Bar(
            "busiest slot / its bound, while hot keys move", "at most", 1.0,
            even["ratio_settled_worst"] if even else None,
        ),
    ]  # fmt: skip
    return {
        "benchmark": "balance",
        "emulated": LABEL,
        "workload": asdict(workload),
        "systems": systems,
        "results_equal": right,
        "bars": [bar.as_json(right) for bar in bars],
        "rounds": {name: list(run.ratios) for name, run in runs.items()},
        "decisions": {name: list(run.decisions) for name, run in runs.items()},
        "machine": machine,
        "versions": describe_versions(),
    }


def _run(
    workload: BalanceWorkload, policy: str, keys: Sequence[str], spark: Any, scratch: Path
) -> BalancedRun:
    hashes = hashes_of(list(keys))
    p = Pipeline("balance")
    zipf = ZipfKeys(workload.keys, workload.exponent, workload.records * workload.moves_every)
    p.read("records", sources.generate(zipf, count=len(keys), rate=1000.0))
    p.compute(Serve(workload.cost_us), inputs={"records": str}, name=COMPUTATION, outputs="unused")
    ratios: list[float] = []
    epoch_ms: list[float] = []
    decisions: list[str] = []
    running = Running()

    def on_epoch(progress: EpochProgress) -> None:
        if not progress.records:
            return
        first = progress.records_total - progress.records
        ring = running.ring()
        mine = hashes[first : progress.records_total]
        slots = np.bincount(ring.place(mine), minlength=len(ring.slots))
        heaviest = max(Counter(keys[first : progress.records_total]).values())
        bound = max(1.3 * len(mine) / len(ring.slots), 1.1 * heaviest)
        ratios.append(round(float(slots.max()) / bound, 4))
        epoch_ms.append(progress.seconds * 1_000)

    def on_notice(notice: Any) -> None:
        if notice.kind == "balancer":
            decisions.append(notice.text)

    with p.start(
        checkpoint=str(scratch), spark=spark, slots=workload.slots, until="end", balance=policy,
        epoch_records=workload.records, on_epoch=on_epoch, on_notice=on_notice,
    ) as job:  # fmt: skip
        running.begins(job)
        job.wait()
    return BalancedRun(tuple(ratios), tuple(epoch_ms), tuple(decisions), counts_of(str(scratch)))


def format_balance(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    workload = document["workload"]
    lines = [
        f"{workload['keys']:,} keys, Zipf exponent {workload['exponent']}, {workload['slots']} "
        f"slots; {document['emulated']} {workload['cost_us']} us",
        f"{'balance':<10}{'within at epoch':>17}{'worst settled':>15}{'in bounds':>11}"
        f"{'epoch p50':>12}{'decisions':>11}",
    ]
    for name, numbers in document["systems"].items():
        lines.append(
            f"{name:<10}{numbers['within_bound_at_epoch']:>17.0f}"
            f"{numbers['ratio_settled_worst']:>15.2f}{numbers['share_within_bound']:>11.0%}"
            f"{numbers['epoch_ms_p50_settled']:>9,.0f} ms{numbers['decisions']:>11.0f}"
        )
    return "\n".join([*lines, "", *bar_lines(document)])


def bar_lines(document: Mapping[str, Any]) -> list[str]:
    """Whether the results are right, and what became of each bar."""
    lines = [f"results equal: {'yes' if document['results_equal'] else 'NO'}"]
    for bar in document["bars"]:
        if bar["measured"] is None:
            lines.append(f"not measured  {bar['name']} ({bar['bar']})")
        else:
            verdict = "reached" if bar["reached"] else "MISSED"
            lines.append(f"{verdict:<13} {bar['name']}: {bar['measured']:.3f} ({bar['bar']})")
    return lines
