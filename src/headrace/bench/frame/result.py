"""The document that a benchmark writes: JSON for machines, a table for people.

The shape of the JSON is shared by all benchmarks: `workload`, `systems`,
`ratios`, `results_equal`, `machine`, `versions`. The keyed count adds: `bars`,
`floor` and `state_growth` where they were run, `notes` on how each system was set
up, and `rounds` with every single epoch time, so that anyone can check the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.bench.frame.bars import STATE_KEYS_MANY, bar_lines, floor_bar, peer_bars, state_bar
from headrace.bench.frame.provenance import commit_of
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.summary import Numbers, ratios, spread, summarise
from headrace.bench.frame.system import OURS
from headrace.bench.workload import CountWorkload

Outcomes = Mapping[str, Sequence[SystemOutcome]]


@dataclass(frozen=True)
class Measured:
    """Everything a keyed-count benchmark measured, by label, round after round.

    `floor` holds the bare job and the trivial pipeline, `state_few` the run with
    few keys in state that `systems[OURS]` is compared with. Empty where not run.
    """

    workload: CountWorkload
    systems: Outcomes
    floor: Outcomes = field(default_factory=dict)
    state_few: Outcomes = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Peer that was asked for -> why this machine cannot have it."""


def build_document(
    measured: Measured, machine: Mapping[str, object], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Turn what was measured into the JSON document."""
    every = {**measured.systems, **measured.floor, **measured.state_few}
    systems = {name: summarise(outcomes) for name, outcomes in measured.systems.items()}
    peers = {name: numbers for name, numbers in systems.items() if name != OURS}
    against = ratios(systems[OURS], peers) if OURS in systems else {}
    wrong = _mismatches(every)
    document: dict[str, Any] = {
        "benchmark": "keyed-count",
        "workload": asdict(measured.workload),
        "systems": systems,
        "ratios": against,
        "results_equal": not wrong and _all_counted(measured.systems),
    }
    if wrong:
        document["mismatches"] = wrong
    if measured.unavailable:
        document["unavailable"] = dict(measured.unavailable)
    bars = peer_bars(measured.workload, against, [*peers, *measured.unavailable])
    if measured.floor:
        floor = {name: summarise(outcomes) for name, outcomes in measured.floor.items()}
        document["floor"] = floor
        bars.append(floor_bar(floor))
    if measured.state_few:
        few = {name: summarise(outcomes) for name, outcomes in measured.state_few.items()}
        document["state_growth"] = few
        if measured.workload.state_keys == STATE_KEYS_MANY:
            bars.append(state_bar(systems.get(OURS), next(iter(few.values()))))
    return document | {
        "bars": [bar.as_json(document["results_equal"]) for bar in bars],
        "notes": {name: outcomes[-1].notes for name, outcomes in every.items()},
        "spread": {name: spread(outcomes) for name, outcomes in every.items()},
        "rounds": {name: [run.epoch_ms for run in outcomes] for name, outcomes in every.items()},
        "machine": dict(machine),
        "versions": dict(versions),
    }


def write_document(document: Mapping[str, Any], path: Path) -> None:
    """Write the JSON document, indented, because people read it too, with its commit and day."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"day": datetime.now(UTC).date().isoformat(), "commit": commit_of(), **document}
    path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def format_table(document: Mapping[str, Any]) -> str:
    """The document as a table of plain text, followed by its bars."""
    lines = [
        f"{'system':<24}{'records/s':>14}{'epoch p50':>12}{'epoch p95':>12}{'ours/theirs':>24}"
    ]
    sections = [document["systems"], document.get("floor", {}), document.get("state_growth", {})]
    for section in sections:
        for name, numbers in section.items():
            lines.append(_row(name, numbers, document["ratios"].get(name)))
    equal = "yes" if document["results_equal"] else "NO"
    lines += ["", f"results equal: {equal}"]
    for name, found in document.get("mismatches", {}).items():
        lines += [f"  {name}: {line}" for line in found]
    for name, reason in document.get("unavailable", {}).items():
        lines.append(f"not measured: {name}: {reason}")
    return "\n".join([*lines, *bar_lines(document["bars"])])


def _row(name: str, numbers: Numbers, ratio: Numbers | None) -> str:
    speed = f"{numbers['records_per_s']:,.0f}" if "records_per_s" in numbers else "-"
    line = f"{name:<24}{speed:>14}"
    line += f"{numbers['epoch_ms_p50']:>9,.0f} ms{numbers['epoch_ms_p95']:>9,.0f} ms"
    if ratio is not None:
        line += f"{ratio['throughput']:>10.2f} x"
        line += f", p50 {ratio['epoch_p50']:>6.2f}" if "epoch_p50" in ratio else ""
    return line


def _all_counted(systems: Outcomes) -> bool:
    """Whether every system delivered counts: missing counts do not count as equal."""
    runs = [outcome for outcomes in systems.values() for outcome in outcomes]
    return bool(runs) and all(outcome.mismatches is not None for outcome in runs)


def _mismatches(every: Outcomes) -> dict[str, list[str]]:
    """The wrong counts of any round, by label."""
    wrong: dict[str, list[str]] = {}
    for name, outcomes in every.items():
        for outcome in outcomes:
            if outcome.mismatches:
                wrong[name] = outcome.mismatches
    return wrong
