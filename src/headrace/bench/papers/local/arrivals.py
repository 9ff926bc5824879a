"""Records that arrive by a schedule, whether they are read or not: an open loop.

The schedule is a list of phases, each with a rate that goes linearly from its first to its last
value. Record n is due at a known time, so its latency counts from then on, also if it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.model.source import Timing
from headrace.sources.generated import GeneratedSource

_STEP_S = 0.001


class Phase(NamedTuple):
    """Some seconds of input."""

    seconds: float
    rate: float
    """Records per second at its beginning."""
    rate_at_end: float | None = None
    """The same at its end; None: it does not change."""


class ArrivalSchedule:
    """When each record is due, in seconds since the start."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        rates: list[npt.NDArray[np.float64]] = []
        for phase in phases:
            end = phase.rate if phase.rate_at_end is None else phase.rate_at_end
            steps = max(1, round(phase.seconds / _STEP_S))
            rates.append(np.linspace(phase.rate, end, steps))
        arrived = np.cumsum(np.concatenate(rates)) * _STEP_S
        self._arrived = np.concatenate(([0.0], arrived))
        self._times = np.arange(len(self._arrived)) * _STEP_S

    @property
    def count(self) -> int:
        """How many records there are."""
        return int(self._arrived[-1])

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return float(self._times[-1])

    def due(self, elapsed_s: float) -> int:
        """How many records have arrived by then."""
        return min(int(np.interp(elapsed_s, self._times, self._arrived)), self.count)

    def times(self, first: int, end: int) -> npt.NDArray[np.float64]:
        """When the records from `first` up to `end` were due."""
        return np.interp(np.arange(first, end) + 1, self._arrived, self._times)


class Arrivals(GeneratedSource):
    """A source in one split, whose records appear when they are due."""

    def __init__(
        self,
        schedule: ArrivalSchedule,
        function: Callable[[int, Random], Any],
        *,
        timing: Timing | None = None,
    ) -> None:
        timing = Timing() if timing is None else timing
        super().__init__(function, schedule.count, None, False, 1, 0, None, timing)
        self.schedule = schedule
        self._began_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first look."""
        if self._began_s is None:
            self._began_s = time.monotonic()
        return time.monotonic() - self._began_s

    def reaches(self, split: str) -> int | None:
        return self.schedule.due(self.elapsed_s)
