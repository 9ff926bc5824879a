"""`Aggregate`: what an aggregate is. Each is one class in a file of its own.

An aggregate is a small monoid in columns. `start` makes one accumulator per group of
records, `merge` one per group of accumulators, `finish` the results. An accumulator is a
few parts, each of a form, so it travels as columns and is stored as MessagePack. None of it
may depend on the order of rows, nor on the rows of other groups: that is what makes results
independent of the cut and of the neighbours. Values are compared by the order over kinds.

Nulls are left out, as in SQL; a group in which nothing is left gives null (a count: 0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, Ints
from headrace.operators.columns.records import Records

Parts = list[pa.Array]

Failed = Callable[[int, Exception], None]
"""Called with a group whose accumulators cannot be merged, and why."""


class Unfinished:
    """Stands for a result that could not be made, and says why; None if that was told before."""

    __slots__ = ("error",)

    def __init__(self, error: Exception | None) -> None:
        self.error = error


@dataclass(frozen=True)
class Aggregate:
    """What to compute from a column, or from the records themselves where there is none."""

    column: str | None

    forms: ClassVar[tuple[Form, ...]] = ("value",)
    """The parts of an accumulator."""

    numeric: ClassVar[bool] = False
    """Whether it takes nothing but numbers."""

    @property
    def parts(self) -> int:
        """How many parts an accumulator has."""
        return len(self.forms)

    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return () if self.column is None else (self.column,)

    def meaning(self) -> tuple[Any, ...]:
        """What its accumulators are made of; functions cannot be compared and are left out."""
        given = [getattr(self, field.name) for field in fields(self)]
        plain_ones = [v for v in given if isinstance(v, str | int | float | tuple | None)]
        return (type(self).__name__, *plain_ones)

    def start(self, records: Records, groups: Groups) -> Parts:
        """One accumulator per group of records; `Refused` names those that it cannot take."""
        values = records.column(self.column or "")
        if not values.null_count:
            return self.start_values(values, records.times, groups)
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        return self.start_values(
            values.take(pa.array(rows)), records.times[rows], groups.take(rows)
        )

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """The same over values without nulls."""
        raise InvalidPipeline(f"{type(self).__name__} cannot start")

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        """One accumulator per group of accumulators."""
        raise InvalidPipeline(f"{type(self).__name__} cannot merge")

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        """The results; `Unfinished` where there is none."""
        return parts[0]
