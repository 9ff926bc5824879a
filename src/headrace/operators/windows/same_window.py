"""The window that rows name in their columns, because they come from a window themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.values.kinds import kind_of
from headrace.model.values.shown import shown
from headrace.operators.columns.cells import values_in
from headrace.operators.columns.groups import Ints
from headrace.operators.columns.records import Records, Refused
from headrace.operators.windows.window import WINDOW_COLUMNS, Assigned, Window


@dataclass(frozen=True)
class SameWindow(Window):
    """Each row is in the window that its columns name."""

    columns: ClassVar[tuple[str, ...]] = WINDOW_COLUMNS
    event_time_only: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "same_window()"

    def assign(self, times: Ints) -> Assigned:
        raise InvalidPipeline("same_window() takes windows from columns, not from times")

    def pieces_of(self, records: Records) -> tuple[Ints, Ints]:
        """The windows of rows. Refuses rows that name no window."""
        ends, starts = (_times_in(records, name) for name in reversed(WINDOW_COLUMNS))
        return starts, ends


def same_window() -> Window:
    """The window that the rows name in their columns `window_start` and `window_end`."""
    return SameWindow()


def is_time(cell: Any) -> bool:
    """Whether a cell can be the start or end of a window: a 64-bit integer."""
    return type(cell) is int and -(2**63) <= cell < 2**63


def _times_in(records: Records, name: str) -> Ints:
    """The start or end of the window that rows name. Refuses rows that name none."""
    column = records.column(name)
    if pa.types.is_int64(column.type) and not column.null_count:
        return column.to_numpy()
    cells = values_in(column)
    bad = {i: _no_window(cell, name) for i, cell in enumerate(cells) if not is_time(cell)}
    if bad:
        raise Refused(bad)
    return np.array(cells, np.int64)


def _no_window(cell: Any, name: str) -> Exception:
    return TypeError(
        "same_window() needs rows that come from a window, each with microseconds in "
        f"{name!r}; this one has {kind_of(cell)} there ({shown(cell, 80)})"
    )
