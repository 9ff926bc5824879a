"""One attempt of a plan: runs its job, and judges the reports.

It changes nothing: what follows from the verdict (a commit, another attempt, a void) is the
driver's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.engine.jobs.failures import final_failure
from headrace.errors import HeadraceError
from headrace.failpoints import reach
from headrace.log.content import first_damaged
from headrace.log.identity import require_present
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.verdict import RunAgain, judge
from headrace.plan.epoch import Commit, Report, WorkOrder
from headrace.store.store import Store


@dataclass(frozen=True)
class Attempt:
    """The verdict on one attempt."""

    verdict: Commit | RunAgain | HeadraceError
    riders: dict[str, bytes] = field(default_factory=dict)
    """The small files that ride in the commit's entry (M1)."""
    cause: Exception | None = None
    """What the substrate raised."""


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
    ) -> None:
        """`run` runs a job and returns its reports; `gone` says how the substrate has ended."""
        self._topology, self._store, self._checkpoint = topology, store, checkpoint
        self._run, self._gone, self._on_job = run, gone, on_job

    def attempt(self, order: WorkOrder) -> Attempt:
        """Runs the job of a plan once."""
        self._on_job(True)
        try:
            reports = self._run(order)
        except HeadraceError as error:
            return Attempt(error)
        except Exception as error:
            if (final := final_failure(str(error), self._gone())) is not None:
                return Attempt(final, cause=error)
            require_present(self._store, self._checkpoint)
            return Attempt(RunAgain(f"{type(error).__name__}: {error}"), cause=error)
        finally:
            self._on_job(False)
        reach("after-job")
        verdict = judge(self._topology, order, reports)
        # Reports of one label are equal here, and so are their riders.
        riders = {name: data for report in reports for name, data in report.riders.items()}
        if (damaged := first_damaged(riders)) is not None and isinstance(verdict, Commit):
            verdict = RunAgain(f"{damaged} was damaged on its way to the driver")
        return Attempt(verdict, riders)
