"""The file sinks of a simulation: the real ones, which also fail sometimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headrace.model.sink import Delivery, EncodedFile, Opening, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.files import FileSink
from headrace.sinks.row_format import RowFormat
from headrace.sinks.stored.sink import StoredSink
from headrace.store.store import Store
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance

_encoder = msgspec.json.Encoder(enc_hook=repr)


class SimulatedRows(RowFormat):
    """Lines of [timestamp, value], as JSON."""

    suffix = ".jsonl"

    def encode(self, rows: Rows) -> bytes:
        pairs = zip(rows.timestamps.tolist(), rows.values(), strict=True)
        return _encoder.encode_lines(list(pairs))


class Failures:
    """When a sink fails, and who hears of its deliveries."""

    def __init__(self, name: str, chance: Chance) -> None:
        self._name, self._chance = name, chance
        self._fails_again = False
        self.on_delivery: Callable[[str, int, bool], None] = lambda sink, epoch, empty: None
        """Called before every delivery begins: sink, epoch, and whether it has no rows."""
        self.on_failure: Callable[[], None] = lambda: None

    def around(self, delivery: Delivery, deliver: Callable[[Delivery], None]) -> None:
        """Delivers; may raise, before or after the epoch was applied, often twice in a row."""
        self.on_delivery(self._name, delivery.epoch, not delivery.parts)
        self._fail("before", delivery.epoch)
        deliver(delivery)
        self._fail("after", delivery.epoch)

    def _fail(self, when: str, epoch: int) -> None:
        if self._fails_again or self._chance.strikes(kinds.SINK_FAILS, "delivery"):
            again, self._fails_again = self._fails_again, False
            if not again:
                self._fails_again = self._chance.random.random() < 0.5
            self._chance.disturbances += 1
            self.on_failure()
            self._chance.note(f"sink {self._name} fails {when} it has applied epoch {epoch}")
            raise ConnectionError(f"simulated: gone {when} epoch {epoch}")


class SimulatedSink(FileSink):
    """A file sink that fails sometimes."""

    def __init__(self, name: str, path: str, chance: Chance) -> None:
        super().__init__(path, SimulatedRows())
        self.failures = Failures(name, chance)

    def deliver(self, delivery: Delivery) -> None:
        self.failures.around(delivery, super().deliver)


class SimulatedStoredSink(Sink):
    """A sink in an object store that fails sometimes. Each driver has its own, with its memory."""

    def __init__(
        self,
        name: str,
        new_store: Callable[[], Store],
        running: Callable[[], object],
        chance: Chance,
    ) -> None:
        """`running` is the driver whose turn it is."""
        self._new_store, self._running = new_store, running
        self._of: dict[int, StoredSink] = {}
        self.failures = Failures(name, chance)

    def _mine(self) -> StoredSink:
        driver = id(self._running())
        if driver not in self._of:
            self._of[driver] = StoredSink(self._new_store(), SimulatedRows())
        return self._of[driver]

    def identity(self) -> str | None:
        return self._mine().identity()

    def open(self, opening: Opening) -> None:
        self._mine().open(opening)

    def encode(self, rows: Rows) -> bytes:
        return self._mine().encode(rows)

    def own_store(self) -> Store | None:
        return self._mine().own_store()

    def encode_files(self, rows: Rows) -> Sequence[EncodedFile]:
        return self._mine().encode_files(rows)

    def high_water(self) -> int:
        return self._mine().high_water()

    def deliver(self, delivery: Delivery) -> None:
        self.failures.around(delivery, self._mine().deliver)

    def verify(self, epoch: int, commit: str) -> None:
        self._mine().verify(epoch, commit)

    def close(self) -> None:
        self._mine().close()
