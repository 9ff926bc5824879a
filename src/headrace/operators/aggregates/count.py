"""The number of records, or of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups
from headrace.operators.columns.records import Records


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of records, or of records that have a value in the column."""

    forms: ClassVar[tuple[Form, ...]] = ("int",)

    def start(self, records: Records, groups: Groups) -> Parts:
        of = groups.of
        if self.column is not None:
            of = of[records.present(self.column)]
        return [pa.array(np.bincount(of, minlength=groups.count))]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        return [pa.array(groups.sums(parts[0].to_numpy()))]
