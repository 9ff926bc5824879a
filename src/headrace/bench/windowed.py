"""`headrace bench windowed-count` and `top-k`: the same query in Headrace and in its peers.

With `hot`, one key gets that share of the records, and our run with even keys is measured in the
same rounds: combining before the shuffle should make the two equally fast.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace.bench.frame.bars import LARGE_EPOCH, SMALL_EPOCH, Bar, foreign_bars
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Contender, Launch, Say, run_rounds
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.summary import Numbers, ratios, spread, summarise
from headrace.bench.frame.system import (
    FOREIGN,
    NEXMARK_NATIVE,
    NEXMARK_TWS,
    NEXMARK_TWS_PANDAS,
    OURS,
    PYFLINK,
    WINDOWS_NATIVE,
    WINDOWS_TWS,
    WINDOWS_TWS_ROW,
)
from headrace.bench.nexmark import answers as nexmark
from headrace.bench.peers.foreign.entrants import contenders_of
from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError

EVEN_LABEL = f"{OURS}-even-keys"
HOT_BAR = 0.9
TWS_BAR = 3.0
"""Times the throughput of `transformWithState`, at least."""
NEXMARK_EVENTS = 100_000
"""Events of an epoch, at least, for a bar."""
_FOREIGN = {name: name for name in FOREIGN}
_NEXMARK = {
    "spark-native": NEXMARK_NATIVE,
    "spark-tws": NEXMARK_TWS_PANDAS,
    "spark-tws-row": NEXMARK_TWS,
    **_FOREIGN,
}
PEERS_OF: dict[str, dict[str, str]] = {
    "windowed-count": {
        "spark-native": WINDOWS_NATIVE,
        "spark-tws": WINDOWS_TWS,
        "spark-tws-row": WINDOWS_TWS_ROW,
        **_FOREIGN,
    },
    "top-k": {"spark-native": WINDOWS_NATIVE},
    **dict.fromkeys(nexmark.QUERIES, _NEXMARK),
}
"""Query -> peer, as it is asked for -> the system that answers the query."""


def run_windowed(
    workload: CountWorkload,
    *,
    peers: Sequence[str] = (),
    rounds: int = 1,
    work_dir: Path | None = None,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure side by side and return the JSON document."""
    known = PEERS_OF[workload.query]
    for peer in peers:
        if peer not in known:
            raise HeadraceError(
                f"{workload.query} has no peer {peer!r}; choose from {', '.join(known)}"
            )
    names = [OURS, *dict.fromkeys(known[peer] for peer in peers)]
    contenders, unavailable = contenders_of(names, workload, say)
    if workload.hot:
        contenders.append(Contender(EVEN_LABEL, OURS, replace(workload, hot=0.0)))
    machine = describe_machine()
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        outcomes = run_rounds(contenders, rounds, Path(directory), launch=launch, say=say)
    return _document(workload, outcomes, machine, unavailable)


def _document(
    workload: CountWorkload,
    outcomes: Mapping[str, Sequence[SystemOutcome]],
    machine: Mapping[str, object],
    unavailable: Mapping[str, str],
) -> dict[str, Any]:
    systems = {name: summarise(found) for name, found in outcomes.items()}
    others = {name: numbers for name, numbers in systems.items() if name != OURS}
    against = ratios(systems[OURS], others)
    wrong = {n: o.mismatches for n, found in outcomes.items() for o in found if o.mismatches}
    document: dict[str, Any] = {
        "benchmark": workload.query,
        "workload": asdict(workload),
        "systems": systems,
        "ratios": against,
        "results_equal": not wrong
        and all(o.mismatches is not None for found in outcomes.values() for o in found),
    }
    if wrong:
        document["mismatches"] = wrong
    if unavailable:
        document["unavailable"] = dict(unavailable)
    return document | {
        "bars": [
            b.as_json(document["results_equal"]) for b in bars(workload, against, unavailable)
        ],
        "notes": {name: found[-1].notes for name, found in outcomes.items()},
        "spread": {name: spread(found) for name, found in outcomes.items()},
        "rounds": {name: [run.epoch_ms for run in found] for name, found in outcomes.items()},
        "machine": dict(machine),
        "versions": describe_versions(),
    }


def bars(
    workload: CountWorkload, against: Mapping[str, Numbers], unavailable: Iterable[str] = ()
) -> list[Bar]:
    """The bars that this workload's shape is meant for."""
    if workload.query in nexmark.QUERIES:
        foreign = foreign_bars(
            [peer for peer in [*against, *unavailable] if peer == PYFLINK], against
        )
        return nexmark_bars(workload, against, foreign)
    found = []
    native = against.get(WINDOWS_NATIVE, {})
    shape = (workload.records, workload.keys)
    if shape == LARGE_EPOCH and not workload.hot:
        name = f"throughput / {WINDOWS_NATIVE}"
        limit = 1.5 if workload.query == "windowed-count" else 1.0
        found.append(Bar(name, "at least", limit, native.get("throughput")))
        found += [
            Bar(f"throughput / {peer}", "at least", TWS_BAR, against[peer]["throughput"])
            for peer in (WINDOWS_TWS, WINDOWS_TWS_ROW)
            if peer in against
        ]
        asked = [*against, *unavailable]
        found += foreign_bars([peer for peer in asked if peer == PYFLINK], against)
    if shape == SMALL_EPOCH and not workload.hot:
        name = f"epoch p50 / {WINDOWS_NATIVE}"
        found.append(Bar(name, "at most", 0.6, native.get("epoch_p50")))
    if shape == LARGE_EPOCH and workload.hot == HOT_BAR:
        even = against.get(EVEN_LABEL, {}).get("throughput")
        found.append(Bar(f"throughput with one key at {HOT_BAR:.0%} / even", "at least", 0.7, even))
    return found


def nexmark_bars(
    workload: CountWorkload, against: Mapping[str, Numbers], foreign: Iterable[Bar] = ()
) -> list[Bar]:
    """The bars of joins and sessions, where enough was read to judge them."""
    if workload.records < NEXMARK_EVENTS:
        return []
    limits = {NEXMARK_TWS: TWS_BAR, NEXMARK_TWS_PANDAS: TWS_BAR}
    if workload.query in ("q3", "q8"):
        limits[NEXMARK_NATIVE] = 1.0
    found = [
        Bar(f"{workload.query}: throughput / {peer}", "at least", limit, ratio["throughput"])
        for peer, limit in limits.items()
        if (ratio := against.get(peer)) is not None
    ]
    return [*found, *foreign]
