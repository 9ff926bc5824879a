"""`--rate` of the benchmarks: an open load that follows the throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.bench.options import say

if TYPE_CHECKING:
    from headrace.bench.latency.arithmetic import Rate
    from headrace.bench.latency.run import LatencyWorkload
    from headrace.bench.workload import CountWorkload


@dataclass(frozen=True)
class OpenLoad:
    """What was asked for; it is checked before anything is measured."""

    load: LatencyWorkload
    rates: Sequence[Rate]
    peers: Sequence[str]

    @classmethod
    def of(
        cls,
        workload: CountWorkload,
        peers: Sequence[str],
        rate: str,
        *,
        seconds: float,
        burst: int,
    ) -> OpenLoad | None:
        """The load that `--rate` gives; None without it."""
        if not rate:
            return None
        from headrace.bench.latency.arithmetic import rates_of
        from headrace.bench.latency.beside import load_of
        from headrace.bench.latency.run import loadable

        load, rates = load_of(workload, seconds=seconds, burst_records=burst), rates_of(rate)
        loadable(load.query, peers)
        return cls(load, rates, peers)

    def add_to(
        self,
        document: dict[str, Any],
        *,
        rounds: int,
        work_dir: Path | None,
        json_file: Path | None,
    ) -> dict[str, Any]:
        """Runs it, and puts what it shows into the document."""
        from headrace.bench.frame.result import write_document
        from headrace.bench.latency.beside import with_latency

        if json_file is not None:
            # What was measured so far is kept, should the load fail.
            write_document(document, json_file)
        return with_latency(
            document, self.load, self.rates, self.peers, rounds=rounds, work_dir=work_dir, say=say
        )
