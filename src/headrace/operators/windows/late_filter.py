"""Sends late records aside before the shuffle, so that the other records can be combined."""

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
    """A keyless step: sends records whose windows have all closed to the port `late`.

    It has the same inputs as the window after it, and so the same watermark. It cannot be used for
    windows that merge: only their slot knows whether they are still open.
    """

    def __init__(self, window: Window, grace_us: int) -> None:
        self.window, self.grace_us = window, grace_us

    reads_values = False

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Separates the late records of a task from the others."""
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
