"""The contract of a sink.

Rows reach a sink in two steps. `encode` runs in the task that produced them and
gives bytes that are staged beside the state; `deliver` runs on the driver after
the epoch's commit, in epoch order, and again after a crash until it returned.
So `deliver` must make (sink, epoch) idempotent: an epoch at or below
`high_water` changes nothing.

Numbers do not tell two copies of one checkpoint apart, which both have an epoch 7.
So a delivery names its commit too: a sink that keeps that beside its high-water can
refuse the epochs of a copy that has gone another way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.model.values.rows import Rows
from headrace.store.store import Store


class Part(msgspec.Struct, frozen=True):
    """What one producer staged for one epoch."""

    label: str
    digest: str
    read: Callable[[], bytes]
    """The staged bytes, checked against the digest."""


class Delivery(msgspec.Struct, frozen=True):
    """One epoch for one sink."""

    epoch: int
    checkpoint: str
    """The checkpoint's id; a sink refuses epochs of a foreign one."""
    parts: Sequence[Part]
    spark: Any = None
    weak: bool = False
    """Delivered before the commit, perhaps several times: no claim, no high-water."""
    commit: str = ""
    """Names the epoch's commit: the same on every try, another in every other history."""
    place: str = ""
    """Where the checkpoint lies, for messages."""
    complete: bool = True
    """Not so where the epoch's rows are left out, as they may have arrived (at-most-once)."""


class Opening(msgspec.Struct, frozen=True):
    """What a sink is told when a driver takes over."""

    checkpoint: str
    generation: int
    committed: int
    """The last committed epoch."""
    store: Store
    """A part of the checkpoint's store, of the sink's own and durable (`store/store.py`)."""
    commits: Mapping[int, str] = {}
    """Epoch -> its commit, as in `Delivery.commit`, as far back as the checkpoint knows them."""
    place: str = ""
    """Where the checkpoint lies, for messages."""


class Sink(ABC):
    """Takes a stream out. Extend this for a system that Headrace does not know."""

    def identity(self) -> str | None:
        """Where it writes, so that two sinks on one place are refused; None: nowhere shared."""
        return None

    def open(self, opening: Opening) -> None:
        """A driver has taken over. Refuse here what belongs to a foreign checkpoint."""

    @abstractmethod
    def encode(self, rows: Rows) -> bytes:
        """The staged form of some rows. Runs on an executor; same rows, same bytes."""

    @abstractmethod
    def high_water(self) -> int:
        """The last epoch that was delivered, or 0."""

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Makes an epoch visible, all of it or nothing, once."""

    def verify(self, epoch: int, commit: str) -> None:
        """An epoch at or below `high_water` must have come of this commit: IncompatibleState
        where it is known to come of another, and the sink so belongs to a copy."""

    def close(self) -> None:
        """The run has ended."""
