"""`headrace bench balance`: how soon, and how well, is the load of Zipf keys spread over slots?

The same stream runs once with each policy and once without balance. After each epoch the busiest
slot is compared with its bound, max(1.3 x the mean load, 1.1 x the heaviest key): in records, which
the slots really got in that epoch. Service time is emulated (see `emulated`).

Every `moves_every` epochs the hot keys move. No balancer can know that before it happens, so the
bound is broken for as long as the balancer takes to react. What is asked:

- *Reaction*: after the start, and after each move of the hot keys, the bound holds again within 10
  epochs. An epoch counts for the reaction up to the last one of a segment (from one move to the
  next) in which the bound is broken: a bound that holds, and breaks again, has not held.
- *Stays there*: from the 11th epoch of a segment on, no epoch at all breaks the bound.

Both are judged by the worst segment. How many epochs of the whole run were within the bound,
reactions included, is shown beside them.
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
from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.plan.elastic.settings import EVEN, OFF, RING

WITHIN_EPOCHS_MAX = 10
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
        each = workload.moves_every
        segments = [self.ratios[at : at + each] for at in range(0, len(self.ratios), each)]
        reactions = [reaction(segment) for segment in segments]
        settled = [r for segment in segments for r in segment[WITHIN_EPOCHS_MAX:]]
        times = [took for at, took in enumerate(self.epoch_ms) if at % each >= WITHIN_EPOCHS_MAX]
        within = sum(ratio <= 1 for ratio in self.ratios)
        return {
            "reaction_epochs_start": float(reactions[0]),
            "reaction_epochs_worst": float(max(reactions)),
            "ratio_settled_worst": round(max(settled or self.ratios), 3),
            "ratio_worst": round(max(self.ratios), 3),
            "ratio_p50": round(median(self.ratios), 3),
            "share_within_bound": round(within / len(self.ratios), 3),
            "epoch_ms_p50_settled": round(median(times or self.epoch_ms), 1),
            "decisions": float(len(self.decisions)),
        }


def reaction(ratios: Sequence[float]) -> int:
    """How many epochs of a segment there are until the bound holds for the rest of it."""
    return max((at for at, ratio in enumerate(ratios, 1) if ratio > 1), default=0)


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
            "epochs until the busiest slot stays within its bound, after the start and each move "
            "of the hot keys", "at most", WITHIN_EPOCHS_MAX,
            even["reaction_epochs_worst"] if even else None,
        ),
        Bar(
            "busiest slot / its bound, from the 11th epoch after each of these", "at most", 1.0,
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
        f"{'balance':<10}{'reaction':>17}{'worst settled':>15}{'in bounds':>11}"
        f"{'epoch p50':>12}{'decisions':>11}",
    ]
    for name, numbers in document["systems"].items():
        lines.append(
            f"{name:<10}{numbers['reaction_epochs_worst']:>10.0f} epochs"
            f"{numbers['ratio_settled_worst']:>15.2f}{numbers['share_within_bound']:>11.0%}"
            f"{numbers['epoch_ms_p50_settled']:>9,.0f} ms{numbers['decisions']:>11.0f}"
        )
    return "\n".join([*lines, "", *judged(document)])


def judged(document: Mapping[str, Any]) -> list[str]:
    """Whether the results are right, and what became of each bar."""
    equal = f"results equal: {'yes' if document['results_equal'] else 'NO'}"
    return [equal, *bar_lines(document["bars"], digits=3)]
