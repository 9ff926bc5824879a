"""Sessions: records of one key with only short gaps between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.model.values.time import Duration
from headrace.operators.columns.groups import Groups, Ints
from headrace.operators.columns.records import Records
from headrace.operators.windows.window import Assigned, Window, positive


@dataclass(frozen=True)
class Session(Window):
    """A single record is a session of the length `gap_us`. Sessions that overlap become one."""

    gap_us: int

    merging: ClassVar[bool] = True
    can_join: ClassVar[bool] = False

    def assign(self, times: Ints) -> Assigned:
        return np.arange(len(times)), times, times + self.gap_us

    def cut(self, records: Records) -> tuple[Groups, Ints, Ints]:
        """Merges the sessions of these records at once."""
        key, times = records.key, records.times
        order = np.lexsort((times, key))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (np.diff(key[order]) != 0) | (np.diff(times[order]) >= self.gap_us)
        of = np.empty(len(order), np.int64)
        of[order] = np.cumsum(begins) - 1
        groups = Groups(of, int(begins.sum()))
        return groups, -groups.newest(-times), groups.newest(times) + self.gap_us


def session(gap: Duration) -> Window:
    """Records that follow each other within less than `gap`; the window ends `gap` after the last.

    A record between two sessions may merge them.
    """
    return Session(positive(gap, "session"))
