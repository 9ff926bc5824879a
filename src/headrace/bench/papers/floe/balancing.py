"""Floe's figures 6a, 6b and 6c: balance between neighbours, scale-out, and what a change costs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from headrace.bench.elastic.emulated import ZipfKeys
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.arrivals import Phase
from headrace.bench.papers.local.engine import Ran
from headrace.bench.papers.local.serving import (
    EMULATED,
    SERVE,
    balanced,
    is_counted,
    serving,
    spread,
)
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.plan.elastic.settings import EVEN, RING, Scale
from headrace.plan.interval.cadence import Cadence
from headrace.plan.rings.wanted import Wanted
from headrace.store.disk import DiskStore

COST_US = 2_000
WORD_US = 5_000
SLOTS = 8
RATES = (100, 500, 1_000)
EVERY = (1, 4, 16)
REBALANCE_MS_MAX = 500.0
REACTION_S_MAX = 3.0
BIN_S = 1.0


def measure_cascade(say: Say) -> Points:
    """Skewed words on a ring of slots; each slot looks only at itself and its neighbour."""
    words = ZipfKeys(2_000, 1.1, 10**9)

    def word(n: int, dice: Random) -> str:
        return words(n, dice)

    phases = [Phase(60, 0.5 * SLOTS * 1e6 / WORD_US)]
    run, arrivals = serving(
        phases, word, cost_us=WORD_US, threads=2 * SLOTS, slots=SLOTS, balance=RING,
        epoch_target_s=0.5, max_slots=2 * SLOTS,
    )  # fmt: skip
    ran = run.read(arrivals.schedule.count)
    right = is_counted(run, arrivals)
    run.close()
    told = ran.told("balancer")
    for at, text in told:
        say(f"{at:6.1f} s: {text}")
    thirds = _thirds([seen.seconds * 1e3 for seen in ran.epochs])
    latency = _thirds(ran.latencies_ms(arrivals).tolist())
    return {
        "emulated": EMULATED,
        "seconds": arrivals.schedule.seconds,
        "decisions": [[at, text] for at, text in told],
        "asked_in_vain": sum("has no room" in text for _, text in told),
        "epoch_ms_p50_by_third": thirds,
        "latency_ms_p50_by_third": latency,
        "right": right,
    }


def judge_cascade(points: Mapping[str, Any]) -> ShapeVerdict:
    """Moves are seen, between neighbours, and then they end."""
    told = points["decisions"]
    shape = Judgement().at_least("the number of decisions of the ring policy", len(told), 1)
    givers = {text.split("slot ")[1].split(" ")[0] for _, text in told if "gives to slot" in text}
    shape.at_least("slots that gave to a neighbour", len(givers), 2)
    late = [at for at, _ in told if at > points["seconds"] * 2 / 3]
    shape.at_most("decisions in the last third", len(late), 0)
    first, *_, last = points["latency_ms_p50_by_third"]
    return shape.at_most("median latency, last third / first,", last / first, 1.2).verdict()


def measure_ramp(say: Say) -> Points:
    """The rate triples at once."""
    per_slot = 1e6 / COST_US
    low_s, high_s = 8.0, 24.0
    phases = [Phase(low_s, per_slot), Phase(high_s, 3 * per_slot)]
    run, arrivals = serving(
        phases, balanced(SLOTS, 50), cost_us=COST_US, threads=SLOTS, slots=2, balance=EVEN,
        scale=Scale(every=1, reports=2, cooldown="5s"), epoch_target_s=0.25, max_slots=SLOTS,
    )  # fmt: skip
    ran = run.read(arrivals.schedule.count)
    right = is_counted(run, arrivals)
    run.close()
    grown = [seen.at_s for seen in ran.epochs if seen.slots[SERVE] > 2 and seen.at_s > low_s]
    throughput = _throughput(ran, arrivals.schedule.seconds)
    found = {
        "emulated": EMULATED,
        "rate": 3 * per_slot,
        "rises_at_s": low_s,
        "more_slots_at_s": round(grown[0], 2) if grown else None,
        "slots": [[round(seen.at_s, 2), seen.slots[SERVE]] for seen in ran.epochs[::4]],
        "throughput": throughput,
        "decisions": [[at, text] for at, text in ran.told("scaler")],
        "right": right,
    }
    say(f"more slots after {found['more_slots_at_s']} s; throughput by second: {throughput}")
    return found


def judge_ramp(points: Mapping[str, Any]) -> ShapeVerdict:
    """Throughput flattens below the new rate, more slots come, and it follows."""
    rises, grown, rate = points["rises_at_s"], points["more_slots_at_s"], points["rate"]
    reaction = None if grown is None else grown - rises
    shape = Judgement().at_most("seconds until there are more slots", reaction, REACTION_S_MAX)
    after = points["throughput"][int(rises) :]
    shape.below("the lowest throughput after the rise", min(after), "the rate", 0.9 * rate)
    top = float(np.mean(after[-5:]))
    return shape.at_least("throughput of the last seconds / the rate", top / rate, 0.95).verdict()


def measure_changes(say: Say) -> Points:
    """How much longer the epoch of a ring change takes, by rate and checkpoint interval."""
    found: dict[str, Any] = {}
    right = True
    for rate in RATES:
        for every in EVERY:
            with tempfile.TemporaryDirectory(prefix="headrace-floe-") as directory:
                run, _ = serving(
                    [Phase(3600, rate)], spread(2_000), cost_us=500, threads=4, slots=2,
                    store=DiskStore(Path(directory)), checkpoint_every=Cadence(every),
                )  # fmt: skip
                cost = []
                for slots in (4, 3, 2, 4):
                    _epochs(run, 4)
                    before = run.ran.epochs[-4:]
                    run.driver.stop()
                    run.driver.ledger.wanted[SERVE] = Wanted(slots=slots)
                    first = len(run.ran.epochs)
                    run.until(lambda: run.ran.epochs[-1].slots[SERVE] == slots)  # noqa: B023
                    longest = max(seen.seconds for seen in run.ran.epochs[first:])
                    usual = float(np.median([seen.seconds for seen in before]))
                    cost.append(max(0.0, longest - usual) * 1e3)
                counted = Checkpoint(run.store).scan(SERVE)
                total = sum(kept["count"] for _, kept in counted)
                right = right and total == run.driver.ledger.counters.records
                run.close()
            each = {"p50": round(float(np.median(cost)), 1), "worst": round(max(cost), 1)}
            found.setdefault(str(rate), {})[str(every)] = each
            say(f"{rate}/s, a checkpoint every {every}: {each} ms")
    return {"emulated": EMULATED, "rebalance_ms": found, "right": right}


def judge_changes(points: Mapping[str, Any]) -> ShapeVerdict:
    """Within the paper's range at every rate and interval."""
    worst = max(each["p50"] for rate in points["rebalance_ms"].values() for each in rate.values())
    return (
        Judgement()
        .at_most("the longest median of a change, ms,", worst, REBALANCE_MS_MAX)
        .verdict()
    )


def _epochs(run: Any, count: int) -> None:
    until = len(run.ran.epochs) + count
    run.until(lambda: len(run.ran.epochs) >= until)


def _throughput(ran: Ran, seconds: float) -> list[float]:
    """Records per second, second by second."""
    bins = np.zeros(int(seconds / BIN_S))
    before = 0
    for seen in ran.epochs:
        # An epoch's records are spread over its time, so that short bins are not empty.
        first = max(0.0, seen.at_s - max(seen.seconds, 1e-3))
        for at in range(int(first), min(int(seen.at_s) + 1, len(bins))):
            share = min(seen.at_s, at + 1) - max(first, at)
            bins[at] += max(0.0, share) * (seen.records - before) / max(seen.at_s - first, 1e-3)
        before = seen.records
    return [round(float(each), 1) for each in bins]


def _thirds(values: list[float]) -> list[float]:
    size = max(1, len(values) // 3)
    parts = (values[:size], values[size : 2 * size], values[2 * size :])
    return [round(float(np.median(part)), 2) for part in parts if part]


FLOE_6A = PaperRow(
    "floe-6a",
    "skew: load cascades between neighbours, and is stable after 200 s",
    f"without Spark, policy `ring`, {SLOTS} slots, words by Zipf's law; {EMULATED} ({WORD_US} us)",
    "the cascade is seen; it settles",
    measure_cascade,
    judge_cascade,
)
FLOE_6B = PaperRow(
    "floe-6b",
    "scale-out reacts in 1.5 to 3 s",
    f"without Spark, a rate that triples at once; {EMULATED} ({COST_US} us)",
    "throughput flattens, then follows",
    measure_ramp,
    judge_ramp,
)
FLOE_6C = PaperRow(
    "floe-6c",
    "rebalance latency of 10 to 500 ms, by rate and checkpoint interval",
    "without Spark: 2 -> 4 -> 3 -> 2 -> 4 slots at 100 to 1,000 records/s, a checkpoint every 1, 4 "
    f"and 16 epochs; {EMULATED} (500 us)",
    "at most 500 ms",
    measure_changes,
    judge_changes,
)
