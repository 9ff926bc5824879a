"""Checks what is handed to sinks, and which rows drivers report as undelivered (at-most-once).

It knows commits from the log alone, and asks the engine for one number only: how many rows it has
reported as undelivered.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.testing.simulator.checkers.consumer import Consumer
from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.violation import Violation


class Deliveries:
    """Every delivery of a schedule, by sink and epoch."""

    def __init__(
        self, log: LogChecker, consumer: Consumer, teller: Callable[[], tuple[int, int, int]]
    ) -> None:
        """`teller` gives the running driver: number, generation, rows it has reported so far."""
        self._log, self._consumer, self._teller = log, consumer, teller
        self._handed: set[tuple[str, int]] = set()
        """Epochs whose rows a driver began to hand over."""
        self.passed_over: set[tuple[str, int]] = set()
        """Epochs that a driver reported as undelivered."""
        self._told: dict[int, dict[tuple[str, int], int]] = {}
        """Driver -> the epochs that it must have reported, with their rows."""

    def begins(self, sink: str, epoch: int, empty: bool) -> None:
        """A sink is handed an epoch; `empty` where it has no rows."""
        if not self._consumer.outputs[sink].may_lose:
            return
        self._log.catch_up()
        if epoch > len(self._log.commits):
            return  # handed over before its commit: the consumer reports that
        commit = self._log.commits[epoch - 1]
        rows = sum(file["rows"] for file in commit["staged"] if file["sink"] == sink)
        place = (sink, epoch)
        if not empty:
            # An epoch reported as undelivered may still be handed over once, by a driver that slept
            if place in self._handed:
                raise Violation(f"sink {sink}: the rows of epoch {epoch} are handed over again")
            self._handed.add(place)
        elif rows:
            self._passes_over(place, rows)

    def _passes_over(self, place: tuple[str, int], rows: int) -> None:
        sink, epoch = place
        if self._consumer.has_acknowledged(sink, epoch):
            raise Violation(f"sink {sink} has acknowledged epoch {epoch}, which is passed over")
        number, generation, told = self._teller()
        own = self._log.committed_by[epoch - 1] == generation
        if own and place not in self._handed:
            raise Violation(
                f"sink {sink}: driver {number} skips epoch {epoch}, which it committed itself, "
                "although no delivery of it has begun"
            )
        self.passed_over.add(place)
        expected = self._told.setdefault(number, {})
        expected[place] = rows
        if told != sum(expected.values()):
            raise Violation(
                f"driver {number} has skipped {sum(expected.values())} rows and reported {told}"
            )

    def check_lost(self) -> None:
        """Every committed row has appeared, or its epoch was reported as undelivered."""
        for name, output in self._consumer.outputs.items():
            for commit in self._log.commits if output.may_lose else ():
                epoch = commit["epoch"]
                strong = any(f["rows"] for f in commit["staged"] if f["sink"] == name)
                if strong and epoch not in output.epochs and (name, epoch) not in self.passed_over:
                    raise Violation(
                        f"sink {name}: epoch {epoch} never appeared, and no driver reported it"
                    )
