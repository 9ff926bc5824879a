"""Plots of Linear Road, and of those papers' experiments that show something over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from headrace.bench.report.plot import PERFORMANCE, TIMELINES, Document, Plot, bars_of
from headrace.bench.report.svg import line_chart

_WINDOW = 4
"""Epochs that a rate is taken over."""


def linear_road_plots(name: str, document: Document) -> Iterable[Plot]:
    """Percentiles of the time of answers, and the slowest answer of each second."""
    timed = document.get("timed", {}).get("all")
    roads = document.get("roads")
    if timed:
        title = f"{name}: seconds until an answer is visible, L = {roads}"
        yield bars_of(f"{name}-answers", PERFORMANCE, title, "seconds", timed["percentiles"])
    if document.get("slowest"):
        title = f"{name}: the slowest answer to each second of input, L = {roads}"
        series = {"slowest answer": [(at / 60, took) for at, took in document["slowest"]]}
        svg = line_chart(title, "minute of the input", "seconds", series)
        yield Plot(f"{name}-timeline", TIMELINES, title, svg)


def paper_plots(name: str, document: Document) -> Iterable[Plot]:
    """The plots of one row of the papers; most rows have none."""
    points = document["ours"]
    match document["id"]:
        case "seep-6":
            yield from _rising_load(name, points)
        case "floe-6b":
            title = f"{name}: throughput when the rate triples (emulated service time)"
            series = {
                "records served": list(enumerate(points["throughput"])),
                "slots x 100": [(at, 100 * slots) for at, slots in points["slots"]],
            }
            svg = line_chart(title, "seconds", "records per second", series)
            yield Plot(f"{name}-timeline", TIMELINES, title, svg)
        case "clonos-5":
            costs = {
                query: max(0.0, 100 * each["overhead"]) for query, each in points["queries"].items()
            }
            title = f"{name}: processor time that causal recovery adds, by query"
            yield bars_of(f"{name}-overhead", PERFORMANCE, title, "%", costs)


def _rising_load(name: str, points: Mapping[str, Any]) -> Iterable[Plot]:
    epochs = points["epochs"]
    marks = epochs[::_WINDOW]
    served = [
        (end[0], (end[1] - begin[1]) / (end[0] - begin[0]))
        for begin, end in pairwise(marks)
        if end[0] > begin[0]
    ]
    title = f"{name}: Linear Road under a rising load (emulated service time)"
    series = {
        "input": list(enumerate(points["input_per_s"])),
        "output": served,
    }
    svg = line_chart(title, "seconds", "lines per second", series)
    yield Plot(f"{name}-throughput", TIMELINES, title, svg)
    slots = {
        "slots of tolls": [(at, tolls) for at, _, tolls, _ in epochs],
        "slots of accounts": [(at, accounts) for at, _, _, accounts in epochs],
        "slowest answer, s": list(enumerate(points["slowest_answer_s"])),
    }
    title = f"{name}: slots that the scaler gives, and the slowest answers"
    svg = line_chart(title, "seconds", "slots, seconds", slots)
    yield Plot(f"{name}-slots", TIMELINES, title, svg)
