"""Decides about rings from the ledger after a report: what the driver asks of `plan/elastic`. Pure.

`report_of` makes what a commit says of load; `rings_wanted` makes what it decides from that. Both
see the ledger after the commit, without the next plan, so a new leader sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.limits import Limits
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.figures import LoadFigures
from headrace.plan.elastic.load import SlotLoad
from headrace.plan.elastic.meter import LoadMeter
from headrace.plan.elastic.settings import OFF, Elasticity
from headrace.plan.elastic.view import RingView
from headrace.plan.epoch import Report
from headrace.plan.ledger import Ledger
from headrace.plan.options import Options
from headrace.plan.rings.ring import Ring

GROWTH = 4
"""Where Spark adds executors by itself, slots may be this many times the cores at the start."""


def elasticity(options: Options, cores: int, tasks: int, *, grows: bool = False) -> Elasticity:
    """What a run lets the balancer and the scaler do.

    `grows`: whether the substrate gets more executors when there are more tasks. If it does not,
    slots stay within its cores, unless `max_slots=` says otherwise.
    """
    return Elasticity(
        policy=options.balance,
        scale=options.scale,
        slots_max=options.max_slots or (GROWTH * cores if grows else cores),
        sets_tasks=grows and options.scale is not None,
        tasks=tasks,
        epoch_us=0 if options.epoch_records is not None else round(options.epoch_target_s * 1e6),
    )


def report_every(options: Options, limits: Limits, slots: int) -> int:
    """How many epochs one report covers; 0 if nothing is decided from reports."""
    if options.balance == OFF and options.scale is None:
        return 0
    chosen = options.scale.every if options.scale is not None else 0
    return chosen or limits.report_every_epochs * (1 + slots // limits.report_slots)


def loads_in(reports: Iterable[Report]) -> dict[str, dict[int, SlotLoad]]:
    """Computation -> slot -> its load, from the reports of an epoch."""
    found: dict[str, dict[int, SlotLoad]] = {}
    for report in reports:
        if report.load is not None and report.slot is not None:
            found.setdefault(report.host, {})[report.slot] = report.load
    return found


def report_of(
    meter: LoadMeter,
    ledger: Ledger,
    loads: dict[str, dict[int, SlotLoad]],
    settings: Elasticity,
    view: Callable[[str], RingView],
) -> LoadFigures:
    """What the commit of a report epoch says of load; the ledger has that commit already."""
    slots = {name: tuple(sorted(each)) for name, each in ledger.slots.items()}
    intervals = {name: len(view(name)) for name in ledger.rings}
    return meter.report(ledger.epoch, ledger.load, loads, slots, intervals, settings)


def rings_wanted(ledger: Ledger, settings: Elasticity, view: Callable[[str], RingView]) -> Decided:
    """What to want after a report that the ledger has."""
    rings = {name: view(name) for name in ledger.rings if name in ledger.load.of}
    return decide_rings(
        ledger.load.of,
        rings,
        ledger.wanted,
        settings,
        epoch=ledger.epoch,
        wall=ledger.wall,
        tasks=ledger.tasks,
        early=ledger.load.early,
        overhead=ledger.load.overhead,
    )


def view_of(ring: Ring, version: int) -> RingView:
    """A ring as policies see it."""
    return RingView.of(ring.lows, ring.owners, version, ring.slots)
