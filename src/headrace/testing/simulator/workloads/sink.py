"""The file sink of a simulation: the real one, which also fails sometimes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.model.sink import Delivery
from headrace.model.values.rows import Rows
from headrace.sinks.files import FileSink
from headrace.sinks.row_format import RowFormat
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance

_encoder = msgspec.json.Encoder(enc_hook=repr)


class SimulatedRows(RowFormat):
    """Lines of [timestamp, value], as JSON."""

    suffix = ".jsonl"

    def encode(self, rows: Rows) -> bytes:
        pairs = zip(rows.timestamps.tolist(), rows.values(), strict=True)
        return _encoder.encode_lines(list(pairs))


class SimulatedSink(FileSink):
    """A file sink that fails sometimes."""

    def __init__(self, name: str, path: str, chance: Chance) -> None:
        super().__init__(path, SimulatedRows())
        self._name = name
        self._chance = chance
        self._fails_again = False
        self.on_delivery: Callable[[str, int, bool], None] = lambda sink, epoch, empty: None
        """Called before every delivery begins: sink, epoch, and whether it has no rows."""
        self.on_failure: Callable[[], None] = lambda: None

    def deliver(self, delivery: Delivery) -> None:
        self.on_delivery(self._name, delivery.epoch, not delivery.parts)
        self._fail("before", delivery.epoch)
        super().deliver(delivery)
        self._fail("after", delivery.epoch)

    def _fail(self, when: str, epoch: int) -> None:
        """May raise, before or after the epoch was applied; often twice in a row."""
        if self._fails_again or self._chance.strikes(kinds.SINK_FAILS, "delivery"):
            again, self._fails_again = self._fails_again, False
            if not again:
                self._fails_again = self._chance.random.random() < 0.5
            self._chance.disturbances += 1
            self.on_failure()
            self._chance.note(f"sink {self._name} fails {when} it has applied epoch {epoch}")
            raise ConnectionError(f"simulated: gone {when} epoch {epoch}")
