"""Notices slots that hold up a job (P1), and keeps the limits of slots up to date (P7).

The driver's clock decides when to look, and what is found there is advice. What is decided stands
in the log, in the void of the plan and in commits: no clock inside a task decides what it produces.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.errors import StoreError
from headrace.log import paths
from headrace.plan.decisions.stragglers import (
    WorkMark,
    budget_s,
    limits_after,
    limits_of_stragglers,
)
from headrace.plan.epoch import Plan, Report, WorkOrder
from headrace.plan.options import Options
from headrace.plan.overload import SlotLimit
from headrace.store.counts import UPKEEP, counted_as
from headrace.store.store import Store

OVERLOAD = "overload"
"""The kind of notices about limits."""
JOBS_KEPT = 32
"""The median is that of so many jobs."""
LOOK_EVERY_S = 0.5
"""How often slow tasks are looked for, once the budget is spent."""


class StragglerWatch:
    """Watches the job of one driver at a time."""

    def __init__(self, store: Store, options: Options, tell: Callable[[str, str], None]) -> None:
        """`tell` gets the kind and text of a notice."""
        self._store, self._system, self._tell = store, store.system, tell
        self._straggler_s, self._target_s = options.straggler_s, options.epoch_target_s
        self._jobs_s: deque[float] = deque(maxlen=JOBS_KEPT)
        self._lock = threading.Lock()
        self._order: WorkOrder | None = None
        self._budget_s: float | None = None
        self._began_s = self._looked_s = self._took_s = 0.0
        self.found: dict[str, SlotLimit] = {}
        """Label -> limit of the slots for which the job was given up."""

    @property
    def budget_s(self) -> float | None:
        """How long the next job may take; None if no job is looked into."""
        if self._straggler_s is None:
            return None
        return budget_s(self._jobs_s, self._straggler_s, self._system.limits)

    @property
    def mark_after_s(self) -> float:
        """After which time a task says how far it has come; 0: never."""
        budget = self.budget_s
        return 0.0 if budget is None else budget / 2

    def begins(self, order: WorkOrder) -> None:
        """A job begins."""
        now, budget = self._system.uptime_s(), self.budget_s
        with self._lock:
            self._order, self.found = order, {}
            self._began_s = self._looked_s = now
            self._budget_s = budget

    def ends(self, *, well: bool) -> None:
        """The job has ended."""
        with self._lock:
            self._order = None
        self._took_s = self._system.uptime_s() - self._began_s
        if well:
            self._jobs_s.append(self._took_s)

    def look(self) -> bool:
        """Whether the job is to be given up, because slots hold it up. Any thread may call it."""
        now = self._system.uptime_s()
        with self._lock:
            order, budget, began = self._order, self._budget_s, self._began_s
        if order is None or budget is None or now - began < budget:
            return False
        if not self.found and now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            slots = {name: len(bases) for name, bases in order.bases.items()}
            marks = self._marks(order.plan)
            found = limits_of_stragglers(marks, order.plan, slots, self._target_s)
            with self._lock:
                if self._order is not order:
                    return False  # the job has ended while the store was asked
                self.found = found
            for label, limit in found.items():
                self._tell(
                    OVERLOAD,
                    f"slot {label} holds up epoch {order.plan.epoch}: from now on it processes "
                    f"{limit.records:,} records per epoch",
                )
        return bool(self.found)

    def _marks(self, plan: Plan) -> list[WorkMark]:
        """What slow tasks of this plan say; none if the store does not answer."""
        found = []
        try:
            with counted_as(UPKEEP):
                for name in self._store.list(paths.WORK):
                    if paths.is_work_mark(name, plan.epoch):
                        data = self._store.read(f"{paths.WORK}/{name}")
                        found.append(msgspec.msgpack.decode(data, type=WorkMark))
        except (OSError, StoreError, msgspec.MsgspecError):
            return []
        return found

    def limits_after(
        self, known: Mapping[str, SlotLimit], reports: Sequence[Report]
    ) -> dict[str, SlotLimit] | None:
        """The limits that the commit of the last job names; None if they do not change."""
        after = limits_after(known, reports, self._took_s, self._target_s, self._system.limits)
        for label in known.keys() - (known if after is None else after).keys():
            self._tell(OVERLOAD, f"slot {label} keeps up again: it has no limit any more")
        return after
