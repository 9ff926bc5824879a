"""All stages of all systems, by turns, and the document."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.frame.system import FOREIGN, OURS
from headrace.bench.latency.arithmetic import PERCENTILES, Rate
from headrace.bench.latency.members import Config
from headrace.bench.latency.queries import (
    LEFT_OUT,
    NATIVE,
    PEERS_OF,
    TICKS_PER_WINDOW,
    TWS,
    TWS_ROW,
    LatencyQuery,
    make_query,
)
from headrace.bench.latency.stages import BURST_FILES, Loaded, StageFigures
from headrace.bench.peers.foreign.environments import missing
from headrace.errors import HeadraceError

BAR_SHARE = 0.5
BARS = {"p50": 0.4, "p99": 0.6}
WARM_BURSTS = 3
TICK_MIN_S = 0.001
BURST_SHARES = {TWS: 0.25, TWS_ROW: 0.25}
"""Of the records of a burst: a slower system needs fewer for as long a burst."""
Names = Mapping[str, Sequence[StageFigures]]


@dataclass(frozen=True)
class LatencyWorkload:
    """What is asked, and how the load is shaped."""

    query: str = "keyed-count"
    keys: int = 1_000
    seconds: float = 15.0
    tick_s: float = 0.1
    burst_records: int = 800_000
    slots: int = 2
    seed: int = 1
    adds_values: bool = False
    hot: float = 0.0

    def __post_init__(self) -> None:
        if self.tick_s < TICK_MIN_S:
            raise HeadraceError(f"a tick takes at least {TICK_MIN_S:g} s, not {self.tick_s:g}")
        self.asked()

    def asked(self) -> LatencyQuery:
        """The query of one system, with its input."""
        return make_query(
            self.query,
            self.keys,
            self.tick_s,
            self.seed,
            adds_values=self.adds_values,
            hot=self.hot,
        )


def run_latency(
    workload: LatencyWorkload,
    rates: Sequence[Rate],
    peers: Sequence[str] = (NATIVE,),
    *,
    rounds: int = 3,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measures every system at every rate, `rounds` times, and returns the JSON document."""
    loaded, left_out = loadable(workload.query, peers)
    left_out |= missing([name for name in loaded if name in FOREIGN])
    loaded = [name for name in loaded if name not in left_out]
    for name, reason in left_out.items():
        say(f"{name} is left out: {reason}")
    machine = describe_machine()
    members: list[Loaded] = []
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        try:
            for name in [OURS, *loaded]:
                say(f"starting {name}")
                members.append(_start(name, workload, Path(directory)))
            capacity = _capacities(members, workload, rounds, say)
            measured = _by_turns(members, capacity, workload, rates, rounds, say)
            loads = [round(load, 2) for load in os.getloadavg()]
            wrong = {}
            for member in members:
                member.process.end()
                found = member.query.mismatches(rows for _, rows in member.outputs())
                if found:
                    wrong[member.name] = found
        finally:
            for member in members:
                member.process.kill()
    machine |= {"load_average_after": loads}
    return document(workload, capacity, rates, measured, wrong, machine, left_out)


def loadable(query: str, peers: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The peers that are put under the load, and peer -> why it is left out."""
    known = PEERS_OF[query]
    for peer in peers:
        if peer not in known and peer not in LEFT_OUT:
            raise HeadraceError(
                f"latency has no peer {peer!r} for {query}; choose from {', '.join(known)}"
            )
    asked = list(dict.fromkeys(peers))
    left_out = {peer: LEFT_OUT[peer] for peer in asked if peer not in known}
    return [peer for peer in asked if peer in known], left_out


def _start(name: str, workload: LatencyWorkload, directory: Path) -> Loaded:
    window_us = TICKS_PER_WINDOW * round(workload.tick_s * 1e6)
    home = directory / name
    config = Config(
        name, workload.query, window_us, workload.slots, str(home), workload.adds_values
    )
    member = Loaded(config, workload.asked(), workload.tick_s)
    member.process.rest()
    return member


def _capacities(
    members: Sequence[Loaded], workload: LatencyWorkload, rounds: int, say: Say
) -> dict[str, float]:
    """Records per second of each system when input waits for it; by turns, after a warm-up."""
    for number in range(WARM_BURSTS):
        for member in members:
            say(f"warming up {member.name}: burst {number + 1} of {WARM_BURSTS}")
            member.burst(_burst(member, workload))
    found: dict[str, list[float]] = {member.name: [] for member in members}
    for _ in range(max(2, rounds)):
        for member in members:
            found[member.name].append(member.burst(_burst(member, workload)))
    for name, rates in found.items():
        say(f"capacity of {name}: {median(rates):,.0f} records/s")
    return {name: median(rates) for name, rates in found.items()}


def _burst(member: Loaded, workload: LatencyWorkload) -> int:
    share = BURST_SHARES.get(member.name, 1.0)
    return max(BURST_FILES, round(workload.burst_records * share))


def _by_turns(
    members: Sequence[Loaded],
    capacity: Mapping[str, float],
    workload: LatencyWorkload,
    rates: Sequence[Rate],
    rounds: int,
    say: Say,
) -> dict[str, list[list[StageFigures]]]:
    """System -> rate by rate, in the order given: what each round has shown."""
    found: dict[str, list[list[StageFigures]]] = {m.name: [[] for _ in rates] for m in members}
    for number in range(rounds):
        for at, rate in enumerate(rates):
            # Every other stage begins with the other system.
            order = members if (number + at) % 2 == 0 else list(reversed(members))
            for member in order:
                load = rate.records_per_s(capacity[member.name])
                measured = member.stage(load, workload.seconds)
                found[member.name][at].append(measured)
                shown = ", ".join(f"{p} {ms:,.0f} ms" for p, ms in measured.percentiles.items())
                say(
                    f"round {number + 1} of {rounds}: {member.name} at {load:,.0f} records/s: "
                    f"{shown}"
                )
    return found


def document(
    workload: LatencyWorkload,
    capacity: Mapping[str, float],
    rates: Sequence[Rate],
    measured: Mapping[str, Sequence[Sequence[StageFigures]]],
    wrong: Mapping[str, Sequence[str]],
    machine: Mapping[str, object],
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Turns what was measured into the JSON document."""
    sweep = {
        name: [
            {
                "share": round(rate.share(capacity[name]), 4),
                "records_per_s": round(stages[0].rate, 1),
                **_median(stages),
            }
            for rate, stages in zip(rates, by_rate)
        ]
        for name, by_rate in measured.items()
    }
    at = _bar_rate(rates)
    systems = {
        name: {
            "capacity_records_per_s": round(capacity[name], 1),
            "share": points[at]["share"],
            "records_per_s": points[at]["records_per_s"],
            **{f"latency_ms_p{p}": points[at][f"p{p}"] for p in PERCENTILES},
            "feed_late_ms": round(max(s.feed_late_ms for s in measured[name][at]), 1),
        }
        for name, points in sweep.items()
    }
    ratios = {
        name: {
            f"p{p}": round(systems[OURS][f"latency_ms_p{p}"] / numbers[f"latency_ms_p{p}"], 4)
            for p in PERCENTILES
        }
        for name, numbers in systems.items()
        if name != OURS
    }
    equal = not wrong
    bars = []
    if rates[at].given == BAR_SHARE and NATIVE in ratios:
        bars = [
            Bar(f"latency {p} at {BAR_SHARE:.0%} load / {NATIVE}", "at most", limit,
                ratios[NATIVE][p])
            for p, limit in BARS.items()
        ]  # fmt: skip
    return {
        "benchmark": "latency",
        "workload": asdict(workload),
        "systems": systems,
        "ratios": ratios,
        "sweep": sweep,
        "results_equal": equal,
        **({"mismatches": dict(wrong)} if wrong else {}),
        **({"left_out": dict(left_out)} if left_out else {}),
        "bars": [bar.as_json(equal) for bar in bars],
        "rounds": {
            name: [[asdict(stage) for stage in stages] for stages in by_rate]
            for name, by_rate in measured.items()
        },
        "machine": dict(machine),
        "versions": describe_versions(),
    }


def _bar_rate(rates: Sequence[Rate]) -> int:
    """The place of the rate that is shown as the result: half of the capacity, or the first."""
    return next((at for at, rate in enumerate(rates) if rate.given == BAR_SHARE), 0)


def _median(stages: Sequence[StageFigures]) -> dict[str, float]:
    found: dict[str, float] = {}
    for p in PERCENTILES:
        each = [stage.percentiles[f"p{p}"] for stage in stages]
        found |= {
            f"p{p}": round(median(each), 2),
            f"p{p}_low": round(min(each), 2),
            f"p{p}_high": round(max(each), 2),
        }
    return found


def format_latency(found: Mapping[str, Any]) -> str:
    """The document as a table of plain text, followed by its bars."""
    lines = [f"{'system':<16}{'load':>7}{'records/s':>12}{'p50':>10}{'p95':>10}{'p99':>10}"]
    for name, points in found["sweep"].items():
        for point in points:
            line = f"{name:<16}{point['share']:>7.0%}{point['records_per_s']:>12,.0f}"
            line += "".join(f"{point[f'p{p}']:>7,.0f} ms" for p in PERCENTILES)
            lines.append(line)
    for name, ratio in found["ratios"].items():
        shown = ", ".join(f"{p} {value:.2f} x" for p, value in ratio.items())
        lines.append(f"ours / {name} at {found['systems'][OURS]['share']:.0%}: {shown}")
    lines += ["", f"results equal: {'yes' if found['results_equal'] else 'NO'}"]
    for name, wrong in found.get("mismatches", {}).items():
        lines += [f"  {name}: {line}" for line in wrong]
    for name, reason in found.get("left_out", {}).items():
        lines.append(f"left out: {name}: {reason}")
    return "\n".join([*lines, *bar_lines(found["bars"])])
