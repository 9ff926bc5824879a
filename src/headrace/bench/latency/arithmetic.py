"""Paces, latencies and percentiles: pure arithmetic.

A percentile is of records, not of files or epochs: each file counts as often as it has records.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.errors import HeadraceError

PERCENTILES = (50, 95, 99)
SHARE_MAX = 2.0
"""A rate up to this is a share of the capacity; a higher one is records per second."""


@dataclass(frozen=True)
class Rate:
    """A load: a share of the measured capacity, or records per second."""

    given: float

    def __post_init__(self) -> None:
        if not 0 < self.given < float("inf"):
            raise HeadraceError(f"a rate must be a number above 0, not {self.given:g}")

    @property
    def is_share(self) -> bool:
        """Whether it is a share of the capacity."""
        return self.given <= SHARE_MAX

    def records_per_s(self, capacity: float) -> float:
        """The load on a system with this capacity."""
        return self.given * capacity if self.is_share else self.given

    def share(self, capacity: float) -> float:
        """The load as a share of this capacity."""
        return self.given if self.is_share else self.given / capacity


def rates_of(given: str) -> tuple[Rate, ...]:
    """The rates in a text such as `0.5` or `0.1,0.5,0.9`."""
    try:
        found = tuple(Rate(float(part)) for part in given.split(",") if part.strip())
    except ValueError as error:
        raise HeadraceError(
            f"rates are numbers such as 0.5 (a share of the capacity) or 20000 (records/s), "
            f"separated by commas: {given!r}"
        ) from error
    if not found:
        raise HeadraceError("give at least one rate, such as 0.5")
    return found


def file_sizes(records_per_s: float, tick_s: float, ticks: int) -> list[int]:
    """How many records appear with each tick; together as many as the rate says."""
    ends = [round(records_per_s * tick_s * (tick + 1)) for tick in range(ticks)]
    sizes = [end - begin for begin, end in zip([0, *ends], ends)]
    if min(sizes) < 1:
        raise HeadraceError(
            f"{records_per_s:g} records/s are less than one in each {tick_s:g} s: give a higher "
            "rate or a longer tick"
        )
    return sizes


def percentiles(latencies: Sequence[float], weights: Sequence[int]) -> dict[str, float]:
    """p50, p95 and p99: the smallest latency that so many per cent of the weight do not exceed."""
    if not latencies or len(latencies) != len(weights) or sum(weights) <= 0:
        raise HeadraceError("there is no latency to take percentiles of")
    order = np.argsort(np.asarray(latencies), kind="stable")
    values = np.asarray(latencies, dtype=float)[order]
    running = np.cumsum(np.asarray(weights)[order])
    return {
        f"p{percent}": float(
            values[min(np.searchsorted(running, percent / 100 * running[-1]), len(values) - 1)]
        )
        for percent in PERCENTILES
    }


@dataclass(frozen=True)
class VisibleEpoch:
    """Something became visible: an epoch, with so many records of the input behind it."""

    epoch: int
    records: int
    when: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class ArrivedFile:
    """A file appeared at the source."""

    records: int
    when: float
    reached: int
    """The largest event time up to and with this file, in microseconds."""


def when_visible(files: Sequence[ArrivedFile], steps: Sequence[VisibleEpoch]) -> list[float]:
    """When each file's records had all been taken by an epoch that is visible; in order."""
    found: list[float] = []
    taken, needed = 0, 0
    at = iter(steps)
    step: VisibleEpoch | None = None
    for file in files:
        needed += file.records
        while taken < needed:
            step = next(at, None)
            if step is None:
                raise HeadraceError(f"only {taken:,} of {needed:,} records became visible")
            taken += step.records
        if step is None:
            raise HeadraceError("the first file has no records")
        found.append(step.when)
    return found


def closing(files: Sequence[ArrivedFile], closes: int) -> int | None:
    """Which file let a row that closes at this event time come out; None if none has yet."""
    at = bisect.bisect_left([file.reached for file in files], closes)
    return at if at < len(files) else None
