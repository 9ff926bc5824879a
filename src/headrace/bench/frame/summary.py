"""Reduces the outcomes of several rounds to the few numbers that are published.

Throughput is all measured records over all measured time. Percentiles are taken
over the epochs of one round; then each number's median over the rounds is
reported, so that one disturbed round has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.system import FOREIGN

Numbers = dict[str, float]


def summarise(outcomes: Sequence[SystemOutcome]) -> Numbers:
    """The published numbers of one entry; latency only where it was measured."""
    rounds = [_one_round(outcome) for outcome in outcomes]
    return {
        name: round(median(numbers[name] for numbers in rounds), 3)
        for name in rounds[0]
        if all(name in numbers for numbers in rounds)
    }


def spread(outcomes: Sequence[SystemOutcome]) -> dict[str, list[float]]:
    """The lowest and the highest of each number over the rounds."""
    rounds = [_one_round(outcome) for outcome in outcomes]
    return {
        name: [round(pick(numbers[name] for numbers in rounds), 3) for pick in (min, max)]
        for name in rounds[0]
        if all(name in numbers for numbers in rounds)
    }


def ratios(ours: Numbers, theirs: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Ours over theirs. Throughput is better above 1, epoch time below.

    Foreign peers have no epochs, so no epochs are compared with theirs.
    """
    found: dict[str, Numbers] = {}
    for name, numbers in theirs.items():
        found[name] = {"throughput": round(ours["records_per_s"] / numbers["records_per_s"], 4)}
        if name not in FOREIGN:
            found[name]["epoch_p50"] = round(ours["epoch_ms_p50"] / numbers["epoch_ms_p50"], 4)
    return found


def _one_round(outcome: SystemOutcome) -> Numbers:
    numbers: Numbers = {}
    if outcome.records is not None:
        numbers["records_per_s"] = outcome.records / (sum(outcome.epoch_ms) / 1_000)
    numbers["epoch_ms_p50"] = median(outcome.epoch_ms)
    numbers["epoch_ms_p95"] = float(np.percentile(outcome.epoch_ms, 95))
    for percentile, milliseconds in outcome.latency_ms.items():
        numbers[f"latency_ms_{percentile}"] = milliseconds
    numbers.update(outcome.more)
    return numbers
