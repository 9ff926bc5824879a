"""`Aggregate`: the contract of an aggregate. Each aggregate is one class in its own file.

An aggregate is a small monoid in columns. `start` creates one accumulator per group of records,
`merge` one per group of accumulators, and `finish` the results. An accumulator has a few parts,
each of a declared form. So it is sent as columns and stored as MessagePack.

Invariant: no method may depend on the order of rows, or on the rows of other groups. So results do
not depend on how the input is cut, or on other keys. Values are compared by the order over kinds.

Nulls are ignored, as in SQL. The result of a group without values is null (for a count: 0).
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
"""Called with a group whose accumulators cannot be merged, and the reason."""


class Unfinished:
    """Stands for a result that failed, with the reason; None if the reason was reported before."""

    __slots__ = ("error",)

    def __init__(self, error: Exception | None) -> None:
        self.error = error


@dataclass(frozen=True)
class Aggregate:
    """What to compute from a column or, without a column, from the whole records."""

    column: str | None

    forms: ClassVar[tuple[Form, ...]] = ("value",)
    """The parts of an accumulator."""

    numeric: ClassVar[bool] = False
    """Whether it accepts only numbers."""

    @property
    def parts(self) -> int:
        """The number of parts of an accumulator."""
        return len(self.forms)

    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return () if self.column is None else (self.column,)

    def meaning(self) -> tuple[Any, ...]:
        """What its accumulators mean, without functions, because these cannot be compared."""
        given = [getattr(self, field.name) for field in fields(self)]
        plain_ones = [v for v in given if isinstance(v, str | int | float | tuple | None)]
        return (type(self).__name__, *plain_ones)

    def start(self, records: Records, groups: Groups) -> Parts:
        """One accumulator per group of records; raises `Refused` for records it cannot take."""
        values = records.column(self.column or "")
        if not values.null_count:
            return self.start_values(values, records.times, groups)
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        return self.start_values(
            values.take(pa.array(rows)), records.times[rows], groups.take(rows)
        )

    def start_values(self, values: pa.Array, times: Ints, groups: Groups) -> Parts:
        """One accumulator per group of values, without nulls."""
        raise InvalidPipeline(f"{type(self).__name__} cannot start")

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        """One accumulator per group of accumulators."""
        raise InvalidPipeline(f"{type(self).__name__} cannot merge")

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        """The results; `Unfinished` for a result that failed."""
        return parts[0]
