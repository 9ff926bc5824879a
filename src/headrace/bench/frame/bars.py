"""The bars (performance targets) of the keyed count, and whether a run reaches them.

A bar belongs to one shape of workload and is judged on that shape alone: a ratio from a smaller
run says nothing about it and is not shown. A bar whose numbers were not measured is not reached,
and neither is any bar in a run with wrong results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.bench.frame.summary import Numbers
from headrace.bench.frame.system import BARE_ONE_STAGE, BYTEWAX, OURS_TRIVIAL, PYFLINK
from headrace.bench.workload import CountWorkload

LARGE_EPOCH = (1_000_000, 1_000)
SMALL_EPOCH = (2_000, 1_000)

STATE_KEYS_FEW = 10_000
STATE_KEYS_MANY = 2_000_000


@dataclass(frozen=True)
class Bar:
    """One target: `measured` must be at least, or at most, `limit`."""

    name: str
    sense: str
    limit: float
    measured: float | None

    def as_json(self, results_equal: bool) -> dict[str, object]:
        """The bar as it stands in the JSON document."""
        return {
            "name": self.name,
            "bar": f"{self.sense} {self.limit:g}",
            "measured": self.measured,
            "reached": results_equal and self.reached,
        }

    @property
    def reached(self) -> bool:
        """Whether the measured number is within the limit; False where nothing was measured."""
        if self.measured is None:
            return False
        if self.sense == "at least":
            return self.measured >= self.limit
        return self.measured <= self.limit


def bar_lines(bars: Iterable[Mapping[str, Any]], digits: int = 2) -> list[str]:
    """What became of each bar of a JSON document, as lines of text."""
    lines = []
    for bar in bars:
        if bar["measured"] is None:
            lines.append(f"not measured  {bar['name']} ({bar['bar']})")
        else:
            verdict = "reached" if bar["reached"] else "MISSED"
            measured = f"{bar['measured']:.{digits}f}"
            lines.append(f"{verdict:<13} {bar['name']}: {measured} ({bar['bar']})")
    return lines


FOREIGN_BARS = {PYFLINK: 20.0, BYTEWAX: 2.0}


def foreign_bars(asked: Iterable[str], ratios: Mapping[str, Numbers]) -> list[Bar]:
    """The bars of foreign peers that were asked for, whether this machine has them or not."""
    return [
        Bar(f"throughput / {peer}", "at least", FOREIGN_BARS[peer],
            ratios.get(peer, {}).get("throughput"))
        for peer in asked if peer in FOREIGN_BARS
    ]  # fmt: skip


def peer_bars(
    workload: CountWorkload, ratios: Mapping[str, Numbers], asked: Iterable[str] = ()
) -> list[Bar]:
    """The bars that this workload's shape is meant for, for every peer they name."""

    def throughput(peer: str, limit: float) -> Bar:
        measured = ratios.get(peer, {}).get("throughput")
        return Bar(f"throughput / {peer}", "at least", limit, measured)

    def epoch(peer: str, limit: float) -> Bar:
        measured = ratios.get(peer, {}).get("epoch_p50")
        return Bar(f"epoch p50 / {peer}", "at most", limit, measured)

    if workload.state_keys > 0:
        return []
    shape = (workload.records, workload.keys)
    if shape == LARGE_EPOCH:
        foreign = foreign_bars(asked, ratios)
        if workload.hook == "table":
            return [throughput("spark-tws", 10), throughput("spark-native", 1.2), *foreign]
        return [throughput("spark-tws-row", 8), *foreign]
    if shape == SMALL_EPOCH:
        return [epoch("spark-tws", 0.25), epoch("spark-native", 0.8)]
    return []


def floor_bar(floor: Mapping[str, Numbers]) -> Bar:
    """A trivial pipeline's epoch against the bare Spark job of the same stages.

    An epoch that small takes the short way, so its job has one stage.
    """
    measured = _over(floor.get(OURS_TRIVIAL), floor.get(BARE_ONE_STAGE))
    return Bar(f"epoch p50 of a trivial pipeline / {BARE_ONE_STAGE}", "at most", 1.5, measured)


def state_bar(many: Numbers | None, few: Numbers | None) -> Bar:
    """An epoch over much state against the same epoch over little."""
    name = f"epoch p50 with {STATE_KEYS_MANY:,} keys in state / with {STATE_KEYS_FEW:,}"
    return Bar(name, "at most", 1.15, _over(many, few))


def _over(ours: Numbers | None, theirs: Numbers | None) -> float | None:
    if ours is None or theirs is None:
        return None
    return round(ours["epoch_ms_p50"] / theirs["epoch_ms_p50"], 4)
