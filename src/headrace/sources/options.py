"""The options about time that every source takes, as one typed set of keywords.

`headrace.model.source.Timing` says what each of them means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from headrace.model.values.time import Duration, Instant


class TimingOptions(TypedDict, total=False):
    """The keywords of `**timing`, typed for editors; `Timing` checks the values."""

    timestamp: str | Callable[[Any], Any] | None
    unit: str | None
    zone: str | None
    lateness: Duration
    starts: Callable[[str], Instant] | None
    idle: Duration | None
    expected: str | Iterable[str]
    max_skew: Duration | None
    id: str | Callable[[Any], Any] | None
    id_slack: Duration


TIMING_OPTIONS = tuple(TimingOptions.__annotations__)
