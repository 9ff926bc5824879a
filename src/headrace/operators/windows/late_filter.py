"""Late records aside, before the shuffle: so what is left can still be combined there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.values.time import END
from headrace.operators.columns.groups import Ints
from headrace.operators.columns.records import Records, Refused
from headrace.operators.steps.stateless import record_times
from headrace.operators.windows.partials import window_column
from headrace.operators.windows.window import Window

if TYPE_CHECKING:
    from headrace.model.context import TableContext


class LateAside(Computation):
    """Keyless: sends records all of whose windows have closed to the port `late`.

    It has the same inputs as the window behind it and so the same watermark. Sessions are
    not judged here: whether one is still open is known in its slot only.
    """

    def __init__(self, window: Window, grace_us: int) -> None:
        self.window, self.grace_us = window, grace_us

    reads_values = False

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All records of a task."""
        times, taken = record_times(table), np.arange(table.num_rows)
        match self.window.kind:
            case "tumbling":
                ends = times // self.window.size_us * self.window.size_us + self.window.size_us
            case "hopping":
                ends = times // self.window.every_us * self.window.every_us + self.window.size_us
            case "sliding":
                ends = times + 1
            case "same":
                ends, taken = self._ends(ctx)
            case _:
                ends = np.full(len(times), END)
        closes = np.minimum(ends, END - self.grace_us) + self.grace_us
        late = closes <= ctx.watermark_before
        ctx.pass_on(taken[~late], to="")
        ctx.pass_on(taken[late], to="late")

    def _ends(self, ctx: TableContext) -> tuple[Ints, Ints]:
        """The ends that records carry, and the positions of those that carry one."""
        (given,) = ctx.inputs()
        records = Records(given.rows, given.key_index)
        try:
            return window_column(records, "window_end"), records.positions
        except Refused as refused:
            for row, error in sorted(refused.errors.items()):
                one = given.rows.take(np.array([row]))
                ctx.set_aside(error, row, one.values()[0], int(one.timestamps[0]))
            records = records.without(refused.errors)
            return window_column(records, "window_end"), records.positions
