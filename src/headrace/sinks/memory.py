"""Keeps rows in the memory of the driver's process, for tests and notebooks.

Only the object in the driver collects rows; its copies on executors only encode. When the process
ends, the rows are lost, and so is the record of which epochs were delivered.
"""

from __future__ import annotations

import threading
from typing import Any

from headrace.errors import SinkError
from headrace.failpoints import reach
from headrace.model.sink import Delivery, Opening, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.high_water import HighWaterMark
from headrace.sinks.rows_file import dump, load_parts

_Epoch = list[tuple[Any, int]]


def memory() -> Memory:
    """Keeps what arrives: `.rows` the values, `.records` (value, timestamp), `.epochs` by epoch."""
    return Memory()


class Memory(Sink):
    """The sink behind `memory`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[int, _Epoch] = {}
        self._high_water = 0
        self._mark = HighWaterMark("")
        """The checkpoint and the commit that the last epoch came from."""
        self._checkpoint: str | None = None

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return (Memory, ())

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        return self

    def __copy__(self) -> Memory:
        return self

    @property
    def rows(self) -> list[Any]:
        """The values, in the order of delivery."""
        return [value for value, _ in self.records]

    @property
    def records(self) -> list[tuple[Any, int]]:
        """(value, timestamp), in the order of delivery."""
        with self._lock:
            return [record for epoch in self._records.values() for record in epoch]

    @property
    def epochs(self) -> dict[int, list[Any]]:
        """The values of each epoch that had any."""
        with self._lock:
            return {
                epoch: [value for value, _ in records] for epoch, records in self._records.items()
            }

    def clear(self) -> None:
        """Drops the rows. Epochs delivered before stay delivered."""
        with self._lock:
            self._records = {}

    def open(self, opening: Opening) -> None:
        with self._lock:
            is_new = opening.checkpoint != self._checkpoint
            self._admit(opening.checkpoint)
            if is_new:  # rows that another process received are lost with that process
                self._high_water = opening.committed
                self._mark = HighWaterMark("")
            commit = opening.commits.get(self._high_water, "")
            self._verify(self._high_water, HighWaterMark(opening.checkpoint, commit, opening.place))

    def encode(self, rows: Rows) -> bytes:
        return dump(rows)

    def high_water(self) -> int:
        with self._lock:
            return self._high_water

    def deliver(self, delivery: Delivery) -> None:
        arrived: _Epoch = []
        for rows in load_parts(delivery.parts):
            arrived += zip(rows.values(), rows.timestamps.tolist(), strict=True)
        reach("before-claim")
        with self._lock:
            self._admit(delivery.checkpoint)
            if not delivery.weak:
                mark = HighWaterMark(delivery.checkpoint, delivery.commit, delivery.place)
                if self._high_water >= delivery.epoch:
                    self._verify(delivery.epoch, mark)
                    return
                self._high_water, self._mark = delivery.epoch, mark
            if arrived:
                self._records.setdefault(delivery.epoch, []).extend(arrived)
        reach("after-high-water")

    def verify(self, epoch: int, commit: str) -> None:
        with self._lock:
            self._verify(epoch, HighWaterMark(self._checkpoint or "", commit))

    def _verify(self, epoch: int, mine: HighWaterMark) -> None:
        if epoch == self._high_water:
            mine.require(self._mark, epoch, "this memory sink")

    def _admit(self, checkpoint: str) -> None:
        if checkpoint == self._checkpoint:
            return
        if self._records:
            raise SinkError(
                f"this memory sink holds rows of the checkpoint {self._checkpoint}, not of "
                f"{checkpoint}: call its clear(), or make another one"
            )
        self._checkpoint = checkpoint
        self._high_water = 0
