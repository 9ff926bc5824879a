"""What a driver tells of its run: the progress of each epoch, its counts, and how it ended."""

from __future__ import annotations

from headrace.engine.driver.setup import Setup
from headrace.plan.counters import Counters
from headrace.plan.epoch import Commit
from headrace.plan.ledger import Ledger
from headrace.plan.listener import Listeners
from headrace.plan.progress import RunSummary
from headrace.plan.summary import lowest_watermark, progress_of, summary_of


class Figures:
    """The figures of one run, from the counters of the ledger."""

    def __init__(self, setup: Setup, ledger: Ledger, listeners: Listeners) -> None:
        self._graph, self._used = setup.topology.graph, setup.used
        self._ledger, self._listeners = ledger, listeners
        self._before = ledger.counters.copy()
        self.epochs = 0
        """How many epochs this run has committed."""

    def report(self, commit: Commit, seconds: float) -> None:
        """Tells listeners of a committed epoch."""
        if not self._listeners:
            return
        counted, used = self.counted(), self._used()
        self._listeners.epoch(
            progress_of(
                self._graph.name, commit, self._ledger, counted, seconds, self.watermark(), used
            )
        )

    def counted(self) -> Counters:
        """The counters of this run so far."""
        return self._ledger.counters.since(self._before)

    def watermark(self) -> int:
        """The lowest input watermark of all computations."""
        return lowest_watermark(self._graph, self._ledger)

    def summary(self, reason: str, undelivered: int, *, whole: bool) -> RunSummary:
        """How the run ended; with `whole`, counters include all runs of this checkpoint."""
        known = self._ledger
        epochs, counted = (known.epoch, known.counters) if whole else (self.epochs, self.counted())
        return summary_of(self._graph, epochs, counted, known, reason, undelivered)
