"""Sends late records aside before the shuffle, so that the others can still be combined there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.model.computation import Computation
from headrace.operators.columns.records import Records, Refused
from headrace.operators.windows.window import Window

if TYPE_CHECKING:
    from headrace.model.context import TableContext


class LateAside(Computation):
    """Keyless: sends records all of whose windows have closed to the port `late`.

    It has the same inputs as the window behind it and so the same watermark. It is not for
    windows that merge: whether one of those is still open is known in its slot only.
    """

    def __init__(self, window: Window, grace_us: int) -> None:
        self.window, self.grace_us = window, grace_us

    reads_values = False

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All records of a task."""
        (given,) = ctx.inputs()
        records = Records(given.rows, given.key_index)
        while True:
            try:
                ends = self.window.last_ends(*self.window.pieces_of(records))
            except Refused as refused:
                for row in sorted(refused.errors):
                    at = int(records.positions[row])
                    one = given.rows.take(np.array([at]))
                    ctx.set_aside(refused.errors[row], at, one.values()[0], int(one.timestamps[0]))
                records = records.without(refused.errors)
                continue
            late = self.window.closes(ends, self.grace_us) <= ctx.watermark_before
            ctx.pass_on(records.positions[~late], to="")
            ctx.pass_on(records.positions[late], to="late")
            return
