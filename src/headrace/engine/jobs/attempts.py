"""One attempt of a plan: runs its job, and judges the reports.

It changes nothing: what follows from the verdict (a commit, another attempt, a void) is the
driver's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from headrace.engine.jobs.failures import final_failure
from headrace.engine.jobs.stragglers import StragglerWatch
from headrace.errors import EpochFailed, HeadraceError
from headrace.failpoints import reach
from headrace.log.content import first_damaged
from headrace.log.identity import require_present
from headrace.pipeline.graph.graph import Graph
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.verdict import DeltasLost, RunAgain, judge
from headrace.plan.epoch import Commit, Plan, Report, WorkOrder
from headrace.plan.overload import SlotLimit
from headrace.store.store import Store
from headrace.worker.garbage import seldom_collecting


@dataclass(frozen=True)
class HeldUp:
    """The job was given up, because slots held it up; the next plan limits them (P2)."""

    limits: dict[str, SlotLimit]
    """Label -> limit."""

    @property
    def reason(self) -> str:
        """Why its plan is voided."""
        return f"it was held up by {', '.join(self.limits)}"


@dataclass(frozen=True)
class Attempt:
    """The verdict on one attempt."""

    verdict: Commit | RunAgain | DeltasLost | HeldUp | HeadraceError
    riders: dict[str, bytes] = field(default_factory=dict)
    """The small files that ride in the commit's entry (M1)."""
    cause: Exception | None = None
    """What the substrate raised."""


def failed_often(graph: Graph, plan: Plan, times: int, reason: str) -> EpochFailed:
    """The error of an epoch that was tried often, with smaller and smaller plans."""
    return EpochFailed(
        f"pipeline {graph.name!r}, epoch {plan.epoch}: failed {times} times, at the last for "
        f"{reason[:2000]}. Nothing of it has happened; start again when the cause is fixed"
    )


class Attempts:
    """Runs jobs on the substrate of a driver."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        checkpoint: str,
        run: Callable[[WorkOrder], Sequence[Report]],
        gone: Callable[[], str | None],
        on_job: Callable[[bool], None],
        watch: StragglerWatch,
    ) -> None:
        """`run` runs a job and returns its reports; `gone` says how the substrate has ended."""
        self._topology, self._store, self._checkpoint = topology, store, checkpoint
        self._run, self._gone, self._on_job, self._watch = run, gone, on_job, watch

    def attempt(self, order: WorkOrder, known: dict[str, SlotLimit]) -> Attempt:
        """Runs the job of a plan once. `known`: the limits of slots, which its commit may change.

        Marks and limits follow the clock of this driver; no output does.
        """
        order = replace(order, mark_after_s=self._watch.mark_after_s)
        self._on_job(True)
        self._watch.begins(order)
        well = False
        try:
            reports = self._run(order)
            well = True
        except HeadraceError as error:
            return Attempt(error)
        except Exception as error:
            if self._watch.found:
                return Attempt(HeldUp(self._watch.found), cause=error)
            if (final := final_failure(str(error), self._gone())) is not None:
                return Attempt(final, cause=error)
            require_present(self._store, self._checkpoint)
            return Attempt(RunAgain(f"{type(error).__name__}: {error}"), cause=error)
        finally:
            self._watch.ends(well=well)
            self._on_job(False)
        reach("after-job")
        with seldom_collecting():
            verdict = judge(self._topology, order, reports)
        # Reports of one label are equal here, and so are their riders.
        riders = {name: data for report in reports for name, data in report.riders.items()}
        if (damaged := first_damaged(riders)) is not None and isinstance(verdict, Commit):
            verdict = RunAgain(f"{damaged} was damaged on its way to the driver")
        if isinstance(verdict, Commit) and known:
            verdict = replace(verdict, limits=self._watch.limits_after(known, reports))
        return Attempt(verdict, riders)
