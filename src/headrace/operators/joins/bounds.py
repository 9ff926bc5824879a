"""`interval("-5s", "10s")`: how users write the bounds of an interval join."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import InvalidPipeline
from headrace.model.values.time import Duration, duration


@dataclass(frozen=True)
class Interval:
    """How far a right record's time may be from a left record's time, both ends included."""

    lower_us: int
    upper_us: int

    def __post_init__(self) -> None:
        if self.lower_us > self.upper_us:
            raise InvalidPipeline(
                f"interval: its lower end ({self.lower_us} us) lies above its upper end "
                f"({self.upper_us} us)"
            )


def interval(lower: Duration, upper: Duration) -> Interval:
    """Right records from `left.time + lower` to `left.time + upper`, both included.

    Both are durations, and may be negative: `interval("-5s", "10s")`.
    """
    return Interval(_signed(lower, "interval: lower"), _signed(upper, "interval: upper"))


def _signed(given: Duration, what: str) -> int:
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration(given.strip()[1:], what=what)
    if not isinstance(given, str) and hasattr(given, "days") and given.days < 0:
        return -duration(-given, what=what)
    return duration(given, what=what)
