"""One plot, and the sections of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.bench.report.svg import bar_chart

Document = Mapping[str, Any]

PERFORMANCE = "Throughput and latency, by query and peer"
LOAD = "Load against latency"
SCALING = "Scaling with keys, state, intervals and slots"
TIMELINES = "Recovery, rescale and balance over time"
GROWTH = "Growth"
SECTIONS = (PERFORMANCE, LOAD, SCALING, TIMELINES, GROWTH)


class Plot(NamedTuple):
    """One plot."""

    name: str
    """Of its file, without a suffix."""
    section: str
    title: str
    svg: str


def bars_of(name: str, section: str, title: str, unit: str, bars: Mapping[str, float]) -> Plot:
    """Horizontal bars; logarithmic if they differ much."""
    known = [value for value in bars.values() if value > 0]
    log = bool(known) and max(known) / min(known) > 30
    return Plot(name.replace(" ", "-"), section, title, bar_chart(title, unit, bars, log=log))
