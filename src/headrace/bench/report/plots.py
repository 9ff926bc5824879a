"""Which plots the documents of benchmarks give: pure functions of these documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from headrace.bench.papers.shape import slope
from headrace.bench.report.paper_plots import linear_road_plots, paper_plots
from headrace.bench.report.plot import (
    GROWTH,
    LOAD,
    PERFORMANCE,
    SCALING,
    TIMELINES,
    Document,
    Plot,
    bars_of,
)
from headrace.bench.report.svg import line_chart


def plots_of(name: str, document: Document) -> list[Plot]:
    """The plots of one document; none if it has nothing that can be drawn."""
    match document.get("benchmark"):
        case "recovery":
            return list(_recovery(name, document))
        case "recovery-by-replay":
            return list(_replay(name, document))
        case "balance":
            return list(_balance(name, document))
        case "scale":
            return list(_scale(name, document))
        case "backends":
            return list(_backends(name, document))
        case "growth":
            return list(_growth(name, document))
        case "eviction":
            return list(_eviction(name, document))
        case "rescale":
            return [*_timelines(name, document), *_systems(name, document)]
        case "latency":
            return [*_sweep(name, document)]
        case "linear-road":
            return list(linear_road_plots(name, document))
        case "paper":
            return list(paper_plots(name, document))
    return [*_systems(name, document), *_sweep(name, document.get("latency", {}))]


def _systems(name: str, document: Document) -> Iterable[Plot]:
    """Systems beside each other: records per second, and the time of an epoch."""
    systems = document.get("systems", {})
    if not isinstance(systems, Mapping):
        return
    every = {**systems, **document.get("floor", {}), **document.get("state_growth", {})}
    for figure, unit, what in (
        ("records_per_s", "records per second", "throughput"),
        ("epoch_ms_p50", "milliseconds", "median epoch"),
        ("pause_ms_worst", "milliseconds", "longest pause"),
    ):
        bars = {
            label: float(numbers[figure])
            for label, numbers in every.items()
            if isinstance(numbers, Mapping) and isinstance(numbers.get(figure), int | float)
        }
        if len(bars) >= 2:
            yield bars_of(f"{name}-{what}", PERFORMANCE, f"{name}: {what}", unit, bars)


def _sweep(name: str, document: Document) -> Iterable[Plot]:
    series = {
        f"{system} {share}": [(point["share"] * 100, point[share]) for point in points]
        for system, points in document.get("sweep", {}).items()
        for share in ("p50", "p99")
        if all(share in point for point in points)
    }
    if series:
        title = f"{name}: latency of a record by load"
        svg = line_chart(title, "load, % of what the system can take", "ms", series, log_y=True)
        yield Plot(f"{name}-load", LOAD, title, svg)


def _recovery(name: str, document: Document) -> Iterable[Plot]:
    rounds = document.get("rounds", {})
    series = {
        system: list(enumerate(runs[-1]["latencies_ms"], 1))
        for system, runs in rounds.items()
        if runs and runs[-1].get("latencies_ms")
    }
    title = f"{name}: latency of each file; a process is killed on the way"
    if series:
        svg = line_chart(title, "file, one per second", "ms", series, log_y=True)
        yield Plot(f"{name}-timeline", TIMELINES, title, svg)
    bars = {
        system: numbers["recovery_ms"]
        for system, numbers in document.get("systems", {}).items()
        if numbers.get("recovery_ms") is not None
    }
    if bars:
        yield bars_of(f"{name}-time", TIMELINES, f"{name}: until latency is as before", "ms", bars)


def _replay(name: str, document: Document) -> Iterable[Plot]:
    workload, systems = document["workload"], document["systems"]
    series: dict[str, list[tuple[float, float]]] = {}
    for label, numbers in systems.items():
        way, _, rest = label.partition(" at ")
        if ", every" in rest:
            continue
        rate, _, slots = rest.partition("/s, ")
        series.setdefault(f"{way}, {slots}", []).append((float(rate), numbers["recovery_ms"]))
    if series and len(workload.get("rates", ())) > 1:
        title = f"{name}: recovery by rate"
        svg = line_chart(title, "records per second", "ms", series, log_x=True, log_y=True)
        yield Plot(f"{name}-rates", TIMELINES, title, svg)


def _balance(name: str, document: Document) -> Iterable[Plot]:
    series = {
        f"balance={policy}": list(enumerate(ratios, 1))
        for policy, ratios in document.get("rounds", {}).items()
    }
    title = f"{name}: the busiest slot over its bound (emulated service time)"
    svg = line_chart(title, "epoch", "busiest slot / its bound", series)
    yield Plot(f"{name}-timeline", TIMELINES, title, svg)


def _timelines(name: str, document: Document) -> Iterable[Plot]:
    """The epochs of a run that is resized, end to end."""
    series = {
        system: [
            (at / 1e3, took) for at, took in zip(accumulate(rounds[-1]), rounds[-1], strict=True)
        ]
        for system, rounds in document.get("rounds", {}).items()
        if rounds and isinstance(rounds[-1], list)
    }
    if series:
        title = f"{name}: epochs of a run that is resized"
        svg = line_chart(title, "busy seconds since the first epoch", "ms", series, log_y=True)
        yield Plot(f"{name}-timeline", TIMELINES, title, svg)


def _scale(name: str, document: Document) -> Iterable[Plot]:
    sizes = document["sizes"]
    few = min(each["slots"] for each in sizes)
    most = max(each["intervals"] for each in sizes)
    for by, chosen in (
        ("intervals", [each for each in sizes if each["slots"] == few]),
        ("slots", [each for each in sizes if each["intervals"] == most]),
    ):
        series = {
            "time": [(each[by], each["driver_ms"]) for each in chosen],
            "time of a processor": [(each[by], each["driver_cpu_ms"]) for each in chosen],
        }
        title = f"{name}: what an epoch costs the driver, by {by}"
        svg = line_chart(title, by, "ms", series, log_x=True, log_y=True)
        yield Plot(f"{name}-{by}", SCALING, title, svg)


def _backends(name: str, document: Document) -> Iterable[Plot]:
    for figure, what in (("writes_per_s", "writes"), ("reads_per_s", "reads")):
        series = {
            store: [(float(keys), each[figure]) for keys, each in system["keys"].items()]
            for store, system in document["systems"].items()
        }
        title = f"{name}: {what} of 1 KB, by keys in state"
        svg = line_chart(title, "keys", f"{what} per second", series, log_x=True, log_y=True)
        yield Plot(f"{name}-{what}", SCALING, title, svg)


def _eviction(name: str, document: Document) -> Iterable[Plot]:
    for trace, found in document["traces"].items():
        series = {
            policy: [(float(share) * 100, rate * 100) for share, rate in rates.items()]
            for policy, rates in found["hit_rate"].items()
        }
        title = f"{name}: keys found in memory, {trace}"
        svg = line_chart(title, "cache, % of the keys that are alive", "hits, %", series)
        yield Plot(f"{name}-{trace}", SCALING, title, svg)


def _growth(name: str, document: Document) -> Iterable[Plot]:
    if document.get("epochs"):
        series = {
            "time of an epoch": [(e["files"], e["seconds"] * 1e3) for e in document["epochs"]]
        }
        title = f"{name}: an epoch, by files that were read"
        svg = line_chart(title, "files in the watched directory", "ms", series)
        yield Plot(f"{name}-files", GROWTH, title, svg)
    axes = document.get("axes", {})
    series = {
        _powers(axis, found): [(p["size"], p["cpu_ms"]) for p in found["points"]]
        for axis, found in axes.items()
        if axis != "epochs"
    }
    if series:
        title = f"{name}: time of a processor for an epoch, along each axis"
        svg = line_chart(title, "size", "ms", series, log_x=True, log_y=True)
        yield Plot(f"{name}-axes", GROWTH, title, svg)
    if "epochs" in axes:
        points = axes["epochs"]["points"]
        for figure, what, unit in (
            ("cpu_ms", "time of a processor for an epoch", "ms"),
            ("memory_mb", "memory of the process", "MB"),
            ("files", "files of the checkpoint", "files"),
            ("log_bytes", "bytes of the log", "bytes"),
        ):
            title = f"{name}: {what}, over {points[-1]['epoch']:,} epochs"
            line = {what: [(p["epoch"], p[figure]) for p in points]}
            svg = line_chart(title, "epoch", unit, line)
            yield Plot(f"{name}-epochs-{figure}", GROWTH, title, svg)


def _powers(axis: str, found: Document) -> str:
    """The power over all sizes, and between the last two, where a fixed cost hides less."""
    last = found["points"][-2:]
    end = slope([p["size"] for p in last], [p["cpu_ms"] for p in last])
    shown = "unknown" if end is None else f"{end:.2f}"
    return f"{axis}: power {found['slope']:.2f}, at the end {shown}"
