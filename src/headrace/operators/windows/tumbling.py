"""Tumbling windows: of one size, one after another, aligned to 1970 UTC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.model.values.time import END, Duration
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.records import Records
from headrace.operators.windows.window import Assigned, Window, positive


@dataclass(frozen=True)
class Tumbling(Window):
    """Windows of one size, one after another."""

    size_us: int

    def assign(self, times: Ints) -> Assigned:
        starts = times // self.size_us * self.size_us
        # A time may be any 64-bit number: the last window ends at the largest time.
        return np.arange(len(times)), starts, np.minimum(starts, END - self.size_us) + self.size_us

    def cut(self, records: Records) -> tuple[Groups, Ints, Ints]:
        return cut_evenly(records, self.size_us)


def tumbling(size: Duration) -> Window:
    """Windows of one size, one after another."""
    return Tumbling(positive(size, "tumbling"))


def cut_evenly(records: Records, size_us: int) -> tuple[Groups, Ints, Ints]:
    """`Window.cut` for pieces of one size. It groups by small numbers, which is fast."""
    number = records.times // size_us
    groups = group([number, records.key])
    starts = number[groups.one_row()] * size_us
    return groups, starts, starts + size_us
