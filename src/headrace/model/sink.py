"""The contract of a sink.

Rows reach a sink in two steps. `encode` runs in the task that produced the rows; its bytes are
staged beside the state. `deliver` runs on the driver after the epoch's commit, in epoch order.
After a crash it runs again, until it has returned. So `deliver` must be idempotent for each (sink,
epoch): an epoch at or below `high_water` changes nothing.

Epoch numbers do not distinguish two copies of one checkpoint: both have an epoch 7. So a delivery
names its commit too. A sink that stores the commit beside its high-water can refuse the epochs of a
copy whose history differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.model.values.rows import Rows
from headrace.store.store import Store


class Part(msgspec.Struct, frozen=True):
    """The rows that one producer staged for one epoch."""

    label: str
    digest: str
    read: Callable[[], bytes]
    """The staged bytes, checked against the digest."""
    name: str = ""
    """The name of the staged file: epoch, label and digest."""
    rows: int = 0
    size: int = 0
    """How many bytes it has, if it lies in the sink's own store; else 0."""
    is_own: bool = False
    """Whether it lies in the sink's own store (`Sink.own_store`), under its name."""


class EncodedFile(NamedTuple):
    """A file in its final form, before it has a name."""

    directory: str
    """Where it belongs, as `day=2024-05-01`; "" if directories do not matter."""
    suffix: str
    data: bytes
    rows: int


class Delivery(msgspec.Struct, frozen=True):
    """One epoch for one sink."""

    epoch: int
    checkpoint: str
    """The checkpoint's id; a sink refuses epochs of a foreign one."""
    parts: Sequence[Part]
    spark: Any = None
    weak: bool = False
    """Delivered before the commit, perhaps several times: without a claim or a high-water."""
    commit: str = ""
    """A name of the epoch's commit: the same on every try, different in any other history."""
    place: str = ""
    """Where the checkpoint lies, for messages."""
    complete: bool = True
    """False if the epoch's rows are left out, because they may have arrived (at-most-once)."""


class Opening(msgspec.Struct, frozen=True):
    """The data that a sink gets when a driver takes over."""

    checkpoint: str
    generation: int
    committed: int
    """The last committed epoch."""
    store: Store
    """The sink's own part of the checkpoint's store. It is durable (`store/store.py`)."""
    commits: Mapping[int, str] = {}
    """Epoch -> its commit, as in `Delivery.commit`, as far back as the checkpoint knows them."""
    place: str = ""
    """Where the checkpoint lies, for messages."""


class Sink(ABC):
    """Writes a stream to an outside system. Extend this for a system that Headrace lacks."""

    def identity(self) -> str | None:
        """Where it writes, so that two sinks on one place are refused; None if not shared."""
        return None

    def target(self) -> str | None:
        """As `identity`, but known after `open`: a table has names that only its system knows."""
        return self.identity()

    def open(self, opening: Opening) -> None:
        """Called when a driver takes over. Refuse a target of another checkpoint here."""

    @abstractmethod
    def encode(self, rows: Rows) -> bytes:
        """The staged bytes of some rows. Runs on an executor. Equal rows must give equal bytes."""

    def own_store(self) -> Store | None:
        """Where tasks write rows in their final form; None: rows are staged in the checkpoint.

        A file that the commit names is then part of its epoch. The sink deletes the others.
        """
        return None

    def encode_files(self, rows: Rows) -> Sequence[EncodedFile]:
        """The files of some rows, for `own_store`. Equal rows must give equal files."""
        return [EncodedFile("", "", self.encode(rows), len(rows))]

    @abstractmethod
    def high_water(self) -> int:
        """The last epoch that was delivered, or 0."""

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Makes an epoch visible, atomically and once."""

    def verify(self, epoch: int, commit: str) -> None:
        """Checks that an epoch at or below `high_water` was delivered by this commit.

        Raises IncompatibleState if it is known to come from another commit: then the sink belongs
        to a copy of the checkpoint.
        """

    def tidy(self) -> None:
        """Deletes what no delivery can need any more. Called now and then, beside deliveries."""

    def close(self) -> None:
        """Called when the run has ended."""
