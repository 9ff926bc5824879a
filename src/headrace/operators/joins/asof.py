"""The as-of join: joins each left record with the newest right record that is not after it.

It is an ordered computation: records wait for the watermark and arrive in time order, a right
record before a left record of the same instant. So it keeps only the newest right row of each key,
and the result is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.model.computation import Computation
from headrace.model.state import state
from headrace.model.values.codec import decode_value, packed_exactly
from headrace.model.values.time import END
from headrace.operators.joins.columns import is_unequal
from headrace.operators.joins.combine import Pairing

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record, Timer


class Kept(msgspec.Struct, array_like=True):
    """A row of the table, in encoded form."""

    row: bytes
    timestamp: int = 0

    @staticmethod
    def of(row: Mapping[str, Any], timestamp: int) -> Kept:
        """Encodes a row, to keep it."""
        return Kept(packed_exactly(row), timestamp)

    def columns(self) -> Mapping[str, Any]:
        """The decoded row."""
        return decode_value(self.row)


class AsOfJoin(Computation, ordered=True):
    """Keeps the newest right row of each key."""

    newest: Kept | None = state(None)

    def __init__(
        self, pairing: Pairing, left_stream: str, how: str, tolerance_us: int | None
    ) -> None:
        self.pairing = pairing
        self.left_stream = left_stream
        self.how = how
        self.tolerance_us = tolerance_us
        self.calls_users = pairing.calls_users

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Handles a new version of the table's row, or a record that looks it up."""
        time, row = record.timestamp, self.pairing.row(record.value)
        newest = self.newest
        if record.stream != self.left_stream:
            if is_unequal(ctx.key):
                return  # no record will look it up
            if newest is not None and time < newest.timestamp:
                return  # a late row: a newer version is known
            self.newest = Kept.of(row, time)
            if self.tolerance_us is not None:
                ctx.set_timer(at=min(time + self.tolerance_us + 1, END), hold=END)
            return
        found = newest is not None and newest.timestamp <= time
        if found and newest is not None and self.tolerance_us is not None:
            found = time - newest.timestamp <= self.tolerance_us
        if found and newest is not None:
            self._produce(row, newest.columns(), ctx)
        elif self.how == "left":
            self._produce(row, None, ctx)

    def _produce(
        self, left: Mapping[str, Any], right: Mapping[str, Any] | None, ctx: Context
    ) -> None:
        ctx.produce(msgspec.Raw(self.pairing.packed(self.pairing(left, right, ctx.key))))

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """Removes the newest version, because it is too old for all later records."""
        self.newest = None
