"""SEEP's figures 9 and 10: the scaler's threshold, and the scaler beside an expert's choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.bench.elastic.scaler import KEEPS_UP_S, MORE_SLOTS_MAX
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.arrivals import Phase
from headrace.bench.papers.local.engine import percentiles
from headrace.bench.papers.local.serving import EMULATED, SERVE, balanced, is_counted, serving
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.plan.elastic.settings import EVEN, Scale

COST_US = 10_000
PER_SLOT = 1e6 / COST_US
"""Records per second that one slot can serve."""
MAX_SLOTS = 16
EPOCH_TARGET_S = 0.5
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
DEMAND = 4.0
"""Slots that the highest load of the threshold sweep keeps busy."""
HIGH = 6.0
"""The same of the comparison with fixed slots."""
SETTLED_S = 8.0
"""The scaler's latency counts from so long before the end on, when it has long decided."""
LATENCY_MS_MAX = 2e3 * EPOCH_TARGET_S
"""The 95th percentile that the expert and the scaler must keep: a record waits for the epoch that
runs when it arrives, and for its own."""
OPTIONS: dict[str, Any] = {"epoch_target_s": EPOCH_TARGET_S, "max_slots": MAX_SLOTS}


def measure_thresholds(say: Say) -> Points:
    """A load that rises and stays, with each threshold."""
    phases = [Phase(15, 0.5 * PER_SLOT, DEMAND * PER_SLOT), Phase(10, DEMAND * PER_SLOT)]
    found: dict[str, Any] = {}
    right = True
    for above in THRESHOLDS:
        scale = Scale(above=above, aim=0.85 * above, below=0.5 * above, every=2, cooldown="5s")
        run, arrivals = serving(
            phases, balanced(MAX_SLOTS, 50), cost_us=COST_US, threads=MAX_SLOTS, slots=1,
            scale=scale, balance=EVEN, **OPTIONS,
        )  # fmt: skip
        ran = run.read(arrivals.schedule.count)
        right = right and is_counted(run, arrivals)
        run.close()
        found[f"{above:g}"] = {
            **percentiles(ran.latencies_ms(arrivals)),
            "slots": max(seen.slots[SERVE] for seen in ran.epochs),
            "decisions": len(ran.told("scaler")),
        }
        say(f"threshold {above:.0%}: {found[f'{above:g}']}")
    return {"emulated": EMULATED, "thresholds": found, "right": right}


def judge_thresholds(points: Mapping[str, Any]) -> ShapeVerdict:
    """Fewer slots with a higher threshold; latency is bad at both ends."""
    found = {float(above): each for above, each in points["thresholds"].items()}
    slots = [each["slots"] for each in found.values()]
    tails = {above: each["p95"] for above, each in found.items()}
    shape = Judgement().falls("the number of slots, by threshold,", slots)
    shape.best_between("the 95th percentile of latency", tails, 0.3, 0.7)
    values = list(tails.values())
    best = min(values)
    shape.below("the best 95th percentile, ms", best, "that of the lowest threshold", values[0])
    shape.below("the best 95th percentile, ms", best, "that of the highest", values[-1])
    return shape.verdict()


def measure_expert(say: Say) -> Points:
    """A load that rises and stays: the scaler, and fixed numbers of slots."""
    low, high = Phase(6, PER_SLOT), Phase(24, HIGH * PER_SLOT)
    scale = Scale(every=2, cooldown="5s", drain="10s")
    run, arrivals = serving(
        [low, high], balanced(MAX_SLOTS, 50), cost_us=COST_US, threads=MAX_SLOTS, slots=2,
        scale=scale, balance=EVEN, **OPTIONS,
    )  # fmt: skip
    ran = run.read(arrivals.schedule.count)
    right = is_counted(run, arrivals)
    run.close()
    latencies = ran.latencies_ms(arrivals)
    settled = percentiles(latencies[-int(SETTLED_S * HIGH * PER_SLOT) :])
    points: Points = {
        "emulated": EMULATED,
        "scaler": {
            "slots": ran.epochs[-1].slots[SERVE],
            **percentiles(latencies),
            "settled_p95": settled["p95"],
        },
        "decisions": [text for _, text in ran.told("scaler")],
        "fixed": {},
    }
    say(f"scaler: {points['scaler']}")
    for fixed in range(int(HIGH) - 1, MAX_SLOTS + 1):
        run, arrivals = serving(
            [high._replace(seconds=12)], balanced(fixed, 50), cost_us=COST_US, threads=fixed,
            slots=fixed, epoch_target_s=EPOCH_TARGET_S,
        )  # fmt: skip
        alone = run.read(arrivals.schedule.count)
        right = right and is_counted(run, arrivals)
        run.close()
        behind = max(0.0, alone.epochs[-1].at_s - arrivals.schedule.seconds)
        each = {
            "behind_s": round(behind, 2),
            "needs": round(HIGH / fixed, 3),
            **percentiles(alone.latencies_ms(arrivals)),
        }
        points["fixed"][str(fixed)] = each
        say(f"{fixed} slots: {each}")
        if _takes(each):
            break
    return points | {"right": right}


def judge_expert(points: Mapping[str, Any]) -> ShapeVerdict:
    """At most a quarter more slots than the expert takes, who leaves as much room as the scaler."""
    best = min((int(n) for n, each in points["fixed"].items() if _takes(each)), default=None)
    scaler = points["scaler"]
    what = f"slots of the scaler / the best fixed number ({best})"
    shape = Judgement().at_most(what, scaler["slots"] / best if best else None, MORE_SLOTS_MAX)
    what = "the scaler's p95 of latency at last, ms, as is asked of the expert,"
    return shape.at_most(what, scaler["settled_p95"], LATENCY_MS_MAX).verdict()


def _takes(fixed: Mapping[str, float]) -> bool:
    """Whether an expert would take so many slots: they keep up, in time, and have room to spare."""
    in_time = fixed["behind_s"] <= KEEPS_UP_S and fixed["p95"] <= LATENCY_MS_MAX
    return in_time and fixed["needs"] <= Scale().above


SEEP_9 = PaperRow(
    "seep-9",
    "threshold of 10 to 90 %: fewer VMs as it rises, latency bad at both ends, best at 50-70 %",
    f"without Spark, a load that rises to {DEMAND:g} busy slots; {EMULATED} ({COST_US} us)",
    "same shape",
    measure_thresholds,
    judge_thresholds,
    note="a new slot costs an epoch little, so a low threshold wastes slots rather than latency",
)
SEEP_10 = PaperRow(
    "seep-10",
    "an expert needs 20 VMs, automatic scale-out 25",
    f"without Spark, a load that keeps {HIGH:g} slots busy; the expert takes the least slots of "
    f"which records need at most {Scale().above:.0%}, where the scaler adds some, with a p95 of at "
    f"most {LATENCY_MS_MAX:g} ms, which the scaler must keep too; {EMULATED} ({COST_US} us)",
    "at most 25 % more",
    measure_expert,
    judge_expert,
    note="without room to spare the smallest number that keeps up is 6, as busy as can be; the "
    "scaler adds slots above 80 % of the time, so it never stays there",
)
