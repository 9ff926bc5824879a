"""The driver's side of balance and scale: hears notes, and adds load and decisions to commits.

It decides nothing itself: `plan/elastic` does, from the ledger. An error there must not stop the
pipeline: rings then stay as they are, and the run says so once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from headrace.engine.driver.figures import JOB, Figures
from headrace.engine.driver.setup import Setup
from headrace.engine.driver.takeover import tasks_for
from headrace.plan.decisions.next_step import Offer
from headrace.plan.decisions.resizing import (
    elasticity,
    loads_in,
    report_every,
    report_of,
    rings_wanted,
    view_of,
)
from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.figures import LoadFigures
from headrace.plan.elastic.fold import fold_report
from headrace.plan.elastic.load import SlotLoad
from headrace.plan.elastic.meter import LoadMeter
from headrace.plan.elastic.view import RingView
from headrace.plan.epoch import Plan, Report, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.listener import Listeners
from headrace.plan.options import EAGER
from headrace.plan.rings.announced import pieces_in
from headrace.plan.rings.ring import Ring


class Elastic:
    """The meter of one leader, and what its run lets the balancer and the scaler do."""

    def __init__(
        self,
        setup: Setup,
        ledger: Ledger,
        ring_of: Callable[[str], Ring],
        listeners: Listeners,
        figures: Figures,
    ) -> None:
        """`ring_of` gives the ring that a computation has now; `figures` hears what is measured."""
        substrate, options = setup.substrate, setup.options
        self.settings = elasticity(
            options, substrate.parallelism, tasks_for(setup), grows=substrate.grows
        )
        slots = sum(map(len, ledger.slots.values()))
        self.report_every = report_every(options, setup.store.system.limits, slots)
        self._substrate = substrate
        self._memory: dict[str, Any] = {
            "eager": options.recovery == EAGER,
            "cache_bytes": options.state_cache_bytes,
        }
        self._uptime_s = setup.store.system.uptime_s
        self._listeners, self._figures = listeners, figures
        self._meter = LoadMeter()
        self._rings = {name: ring.digest for name, ring in ledger.rings.items()}
        """Computation -> what names its ring: a version can come again after a restore."""
        self._ring_of = ring_of
        self._views: dict[str, tuple[str, RingView]] = {}
        """Computation -> the name of its ring, and the ring as policies see it."""
        self._loads: dict[str, dict[int, SlotLoad]] = {}
        self._failed = False
        self.ready: Mapping[str, set[int]] = {}
        """Computation -> slots that have prefetched what an announced ring gives them (J7)."""

    def planned(self, plan: Plan, offers: Iterable[Offer]) -> None:
        """A plan was made of some offers: what it leaves of them will need slots too."""
        known = [offer.left for offer in offers]
        left = [each for each in known if each is not None]
        taken = sum(read.range.records for task in plan.reads for read in task)
        waiting = sum(left) if len(left) == len(known) else None
        self._meter.offered(plan.epoch, taken, waiting)
        self._figures.backlog = waiting

    def run(self, order: WorkOrder) -> Sequence[Report]:
        """Runs an epoch; takes the figures of its reports and all notes that have come."""
        epoch = order.plan.epoch
        self._meter.planned(epoch, order.plan.wall)
        began_s = self._uptime_s()
        work = msgspec.structs.replace(order, **self._memory)
        reports = self._figures.time(JOB, self._substrate.run, work)
        self._meter.ran(epoch, max(0, round((self._uptime_s() - began_s) * 1e6)))
        self._loads = loads_in(reports)
        notes = self._substrate.notes()
        self.ready = pieces_in(notes, order.plan.epoch)
        self._meter.heard(note for note in notes if note.measures)
        self._figures.heard(epoch, notes)
        return reports

    def committed(self, plan: Plan, ledger: Ledger) -> tuple[LoadFigures | None, Decided | None]:
        """What the commit of a plan says of load and rings; the ledger, which has it, gets both."""
        rings = {name: ring.digest for name, ring in ledger.rings.items()}
        if rings != self._rings:
            for name in rings:
                if self._rings.get(name) != rings[name]:
                    self._meter.ring_changed(name, plan.epoch)
            self._rings = rings
        if not plan.sketch or not self.settings.is_on:
            return None, None
        try:
            view = partial(self._view, ledger)
            load = report_of(self._meter, ledger, self._loads, self.settings, view)
            fold_report(ledger, load, None)
            decided = rings_wanted(ledger, self.settings, view)
        except Exception as error:
            if not self._failed:
                self._failed = True
                what = f"rings stay as they are: {type(error).__name__}: {error}"
                self._listeners.notice("doubt", f"the balancer failed, and {what}")
            return None, None
        fold_report(ledger, None, decided)
        return load, decided or None

    def _view(self, ledger: Ledger, name: str) -> RingView:
        """A ring as policies see it, made once for each ring."""
        ref = ledger.rings[name]
        digest, view = self._views.get(name, ("", None))
        if view is None or digest != ref.digest:
            view = view_of(self._ring_of(name), ref.version)
            self._views[name] = ref.digest, view
        return view

    def told(self, decided: Decided | None) -> None:
        """The commit is in the log: listeners hear what was decided, and why."""
        for decision in () if decided is None else decided.decisions:
            self._listeners.notice(decision.by, decision.text)
