"""The window for all time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.model.values.time import BEGINNING, END
from headrace.operators.columns.groups import Groups, Ints, group
from headrace.operators.columns.records import Records
from headrace.operators.windows.window import Assigned, Window


@dataclass(frozen=True)
class Whole(Window):
    """One window, which closes when all input has ended."""

    endless: ClassVar[bool] = True
    can_join: ClassVar[bool] = False

    def assign(self, times: Ints) -> Assigned:
        return np.arange(len(times)), *self.pieces(times)

    def pieces(self, times: Ints) -> tuple[Ints, Ints]:
        return np.full(len(times), BEGINNING), np.full(len(times), END)

    def cut(self, records: Records) -> tuple[Groups, Ints, Ints]:
        groups = group([records.key])
        return groups, np.full(groups.count, BEGINNING), np.full(groups.count, END)


def whole() -> Window:
    """One window for all time, closed when all input has ended; rows have no window columns."""
    return Whole()
