"""Sessions that are emitted early and then grow or merge: their old rows are withdrawn.

The row of a session is identified by its key, `window_start` and `window_end`. When a session has
grown or merged, its next row has another window, so a consumer that keeps the old row must learn
that it is no longer valid. Each session therefore remembers which of its rows are valid. They are
withdrawn in the epoch that sends the row in their place, directly before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups
from headrace.operators.columns.output import Column, behind
from headrace.operators.columns.records import Records
from headrace.operators.windows.partials import WINDOW_BYTES, Partials, window_times
from headrace.operators.windows.window import Every, Window

WITHDRAWN = "withdrawn"
"""The column that marks a withdrawn row. Such a row has only its key and window besides."""


@dataclass(frozen=True)
class Standing(Aggregate):
    """The windows of a session's rows that were sent and not withdrawn, as `Partials.windows`."""

    forms: ClassVar[tuple[Form, ...]] = ("bytes",)

    def start(self, records: Records, groups: Groups) -> Parts:
        return [pa.array([b""] * groups.count, pa.binary())]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        found = [b""] * groups.count
        for owner, windows in zip(groups.of.tolist(), parts[0].to_pylist(), strict=True):
            found[owner] += windows
        return [pa.array([b"".join(_each(windows)) for windows in found], pa.binary())]


def withdraws(window: Window, emit: str | Every) -> bool:
    """Whether a row that was sent may be replaced by a row of another window."""
    return window.merging and emit != "final"


@dataclass
class Replaced:
    """Withdrawn rows, and for each of them the row that is sent in its place.

    A withdrawn row gets the time of that row, because its own time may be behind the watermark.
    """

    gone: Partials
    instead: Partials

    @staticmethod
    def by(rows: Partials, out: Any) -> Replaced:
        """The rows that the rows selected by `out` replace; the latter are valid from now on."""
        standing, own = rows.parts[-1].to_pylist(), rows.windows()
        owners: list[int] = []
        windows: list[bytes] = []
        for i in np.flatnonzero(out).tolist():
            gone = [window for window in _each(standing[i]) if window != own[i]]
            owners += [i] * len(gone)
            windows += gone
            standing[i] = own[i]
        rows.parts[-1] = pa.array(standing, pa.binary())
        instead = rows.take(np.array(owners, np.int64))
        starts, ends = window_times(windows)
        return Replaced(replace(instead, start=starts, end=ends), instead)

    def before(
        self, columns: dict[str, Column], gone: dict[str, Column], count: int
    ) -> dict[str, Column]:
        """The columns of withdrawn rows, which have only `gone`, then those of `count` rows."""
        withdrawn = len(self.gone)
        marks = pa.array([True] * withdrawn + [False] * count, pa.bool_())
        if not withdrawn:
            return {**columns, WITHDRAWN: marks}
        made: dict[str, Column] = {}
        for name in dict.fromkeys([*columns, *gone]):
            made[name] = behind(
                gone.get(name, pa.nulls(withdrawn)), columns.get(name, pa.nulls(count))
            )
        return {**made, WITHDRAWN: marks}


def _each(windows: bytes) -> list[bytes]:
    cuts = range(0, len(windows), WINDOW_BYTES)
    return sorted({windows[at : at + WINDOW_BYTES] for at in cuts})
