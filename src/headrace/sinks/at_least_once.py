"""The base class of sinks whose target cannot say whether an epoch has arrived.

The high-water mark is written to the checkpoint after the rows were handed over. So after a crash
in between, the same rows of the same epoch are handed over again. For a target that can store the
epoch's number with its rows, derive a sink from `Sink` instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from headrace.errors import SinkError
from headrace.failpoints import reach
from headrace.model.sink import Delivery, Opening, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.high_water import HighWater, open_high_water
from headrace.sinks.rows_file import dump, load_parts


class AtLeastOnceSink(Sink):
    """Hands over staged rows in the order of epochs; a crash may repeat the last epoch.

    A subclass implements `hand_over`. This class does the staging and keeps the high-water mark.
    """

    _mark: HighWater | None = None

    @abstractmethod
    def hand_over(self, parts: Sequence[Rows], delivery: Delivery) -> None:
        """Writes the rows of an epoch to the target. Runs on the driver; a crash may repeat it."""

    def open(self, opening: Opening) -> None:
        self._mark = open_high_water(opening)

    def encode(self, rows: Rows) -> bytes:
        return dump(rows)

    def high_water(self) -> int:
        return self._high_water().read()

    def deliver(self, delivery: Delivery) -> None:
        mark = self._high_water()
        if not delivery.weak and mark.read_again() >= delivery.epoch:
            mark.verify(delivery.epoch, delivery.commit)
            return
        parts = load_parts(delivery.parts)
        if parts:
            reach("before-claim")
            self.hand_over(parts, delivery)
            reach("after-publish")
        if not delivery.weak:
            mark.advance(delivery.epoch, delivery.commit)
            reach("after-high-water")

    def verify(self, epoch: int, commit: str) -> None:
        self._high_water().verify(epoch, commit)

    def tidy(self) -> None:
        self._high_water().tidy()

    def _high_water(self) -> HighWater:
        if self._mark is None:
            raise SinkError("the sink was not opened: open() comes first")
        return self._mark
