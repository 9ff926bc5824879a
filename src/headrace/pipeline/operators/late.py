"""Late records aside, before the shuffle: so what is left can still be combined there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.model.time import END
from headrace.pipeline.operators.partials import window_column
from headrace.pipeline.operators.stateless import record_times
from headrace.pipeline.windows import Window

if TYPE_CHECKING:
    from headrace.model.context import TableContext


class LateAside(Computation):
    """Keyless: sends records all of whose windows have closed to the port `late`.

    It has the same inputs as the window behind it and so the same watermark. Sessions are
    not judged here: whether one is still open is known in its slot only.
    """

    def __init__(self, window: Window, grace_us: int) -> None:
        self.window, self.grace_us = window, grace_us
        self.reads_values = window.kind == "same"

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All records of a task."""
        times = record_times(table)
        match self.window.kind:
            case "tumbling":
                ends = times // self.window.size_us * self.window.size_us + self.window.size_us
            case "hopping":
                ends = times // self.window.every_us * self.window.every_us + self.window.size_us
            case "sliding":
                ends = times + 1
            case "same":
                ends = window_column(table, "window_end")
            case _:
                ends = np.full(len(times), END)
        closes = np.minimum(ends, END - self.grace_us) + self.grace_us
        late = closes <= ctx.watermark_before
        ctx.pass_on(~late, to="")
        ctx.pass_on(late, to="late")
