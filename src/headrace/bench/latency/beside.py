"""The open load of a benchmark's query, beside its throughput: `--rate` of the other benchmarks.

Its figures are in the document of the benchmark, under `latency`; its bars are among the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.bench.latency.arithmetic import Rate
from headrace.bench.latency.run import LatencyWorkload, format_latency, run_latency
from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError

Run = Callable[..., dict[str, Any]]


def load_of(workload: CountWorkload, *, seconds: float, burst_records: int) -> LatencyWorkload:
    """The same question under an open load."""
    if workload.state_keys:
        raise HeadraceError(
            "an open load begins with empty state: leave --state-keys or --rate out"
        )
    return LatencyWorkload(
        query=workload.query,
        keys=workload.keys,
        seconds=seconds,
        burst_records=burst_records,
        slots=workload.slots,
        seed=workload.seed,
        adds_values=workload.adds_values,
        hot=workload.hot,
    )


def with_latency(
    document: Mapping[str, Any],
    load: LatencyWorkload,
    rates: Sequence[Rate],
    peers: Sequence[str],
    *,
    rounds: int,
    work_dir: Path | None,
    say: Say,
    run: Run = run_latency,
) -> dict[str, Any]:
    """The document with what an open load has shown."""
    say("now the same query under an open load")
    found = run(load, rates, peers, rounds=rounds, work_dir=work_dir, say=say)
    return {
        **document,
        "results_equal": document["results_equal"] and found["results_equal"],
        "bars": [*document["bars"], *found["bars"]],
        "latency": found,
    }


def format_beside(document: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str]) -> str:
    """The benchmark's own table, and below it that of the open load, if there was one."""
    found = document.get("latency")
    if found is None:
        return table(document)
    # Its bars are shown once, with its own table.
    own = {**document, "bars": document["bars"][: len(document["bars"]) - len(found["bars"])]}
    return f"{table(own)}\n\nUnder an open load:\n{format_latency(found)}"
