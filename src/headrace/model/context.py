"""`ctx`: the interface of hooks. The worker implements it; tests may fake it.

Invariant: all its answers are the same on every retry and replay of an epoch.
"""

from __future__ import annotations

import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.model.services import Call, CallMany, Http, OutsideService
from headrace.model.values.time import Duration, Instant

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from headrace.model.values.rows import Rows


class Services(ABC):
    """The part of `ctx` that record, timer and table hooks share."""

    watermark: int
    """The input watermark that the previous epoch committed (in timers: this epoch's)."""

    final: bool
    """Whether the input has ended and the watermark is at the end of time."""

    @abstractmethod
    def now(self) -> int:
        """Wall time of the epoch in microseconds; the same on every replay."""

    @property
    @abstractmethod
    def random(self) -> random.Random:
        """Random numbers, seeded by epoch, computation, key and hook: the same on every replay."""

    @abstractmethod
    def uuid(self) -> uuid.UUID:
        """A unique id that is the same on every retry: use it as an idempotency key."""

    @abstractmethod
    def count(self, metric: str, n: int = 1) -> None:
        """Adds to a metric of this computation."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Asks for a checkpoint at the end of this epoch, where `checkpoint_every=` is more than 1.

        It does not wait for it: the state of this epoch is durable a little later.
        """

    http: OutsideService[Http] = OutsideService()
    """Web requests whose answers a replay repeats; failures are ServiceError."""

    call: OutsideService[Call] = OutsideService()
    """Calls a function of the outside world; a replay gets what it returned, or raised."""

    call_many: OutsideService[CallMany] = OutsideService()
    """Calls a function for each of many requests, in batches where it is a service with `batch=`;
    a replay gets the same answers."""

    @abstractmethod
    def outside(self, name: str) -> Any:
        """The implementation of a service that calls the outside world; called once per name."""


def service_names() -> frozenset[str]:
    """The names on `ctx` of services that call the outside world."""
    return frozenset(OutsideService.names)


class Context(Services):
    """The `ctx` of `process_record` and `process_timer`."""

    key: Any
    """The key in whose context the hook runs."""

    @abstractmethod
    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        """Sends a record to the output stream. If there are several, `to=` names one."""

    @abstractmethod
    def set_timer(
        self,
        tag: Any = "",
        *,
        at: Instant | None = None,
        after: Duration | None = None,
        clock: str = "event",
        hold: Instant | None = None,
    ) -> None:
        """Sets the timer `tag` of this key; replaces an earlier timer of that tag."""

    @abstractmethod
    def cancel_timer(self, tag: Any = "") -> None:
        """Removes the timers `tag` of this key, of both clocks, if there are any."""

    @abstractmethod
    def forget(self) -> None:
        """Removes state, timers and holds of this key."""

    @abstractmethod
    def hold(self, timestamp: Instant) -> None:
        """Keeps the output watermark at or below `timestamp` until `release`."""

    @abstractmethod
    def release(self) -> None:
        """Ends this key's hold."""


@dataclass(frozen=True)
class Input:
    """The rows that arrived from one input, in their original form, and their keys."""

    stream: str
    first: int
    """The position of its first row in the table, for `pass_on`."""
    key_index: np.ndarray[Any, Any]
    rows: Rows
    feedback: bool = False
    """Whether it comes through a feedback stream: then no record is late."""


class TableContext(Services):
    """The `ctx` of `process_table` and `process_timers`.

    Rows of `ctx.read()` are the distinct keys of the table, in the order of its
    `key_index` column, so state and input match by position. (In `process_timers` more rows
    follow: the keys that have only due timers.)
    """

    watermark_before: int
    """The input watermark that the previous epoch committed, in timers too."""

    watermark_after: int
    """The input watermark that this epoch will commit: later records below it will be late. Do not
    use it to decide which records of this epoch are late."""

    epoch: int
    """The epoch's number. Numbers rise, and the writes of an epoch take effect once."""

    def planned_table(self) -> tuple[str, pa.Buffer] | None:
        """Digest and bytes of the version of a lookup table that the plan names, if it does."""
        return None

    @abstractmethod
    def keys(self) -> Sequence[Any]:
        """The distinct keys, in the order of `read()`."""

    @abstractmethod
    def inputs(self) -> Sequence[Input]:
        """The records of `process_table`, separately for each input, in the order of the table.

        For computations with several inputs whose values have different columns. With
        `reads_values = False` the table has only the columns `key_index`, time and `stream`, so
        values of different inputs need not fit into one table.
        """

    @abstractmethod
    def read(self) -> pa.Table:
        """State of the table's keys: a column per field, and `key` if values are read."""

    @abstractmethod
    def write(self, columns: pa.Table | dict[str, Any] | None = None, **more: Any) -> None:
        """Writes new values of fields, one row per key as in `read()`. Other fields stay."""

    @abstractmethod
    def entries(self, name: str, key_index: Any = None) -> pa.Table:
        """Entries of a `Map`, of the keys at these positions or of all: `key_index`, `entry`,
        `value`, each key's in entry order."""

    @abstractmethod
    def put_entries(self, name: str, key_index: Any, entry: Any, value: Any) -> None:
        """Sets entries of a `Map`, row by row; a value of None removes the entry."""

    @abstractmethod
    def timers(self, tag: Any = "", clock: str = "event") -> pa.Array:
        """The time of the timer `tag` of each key; null if the key has none."""

    @abstractmethod
    def set_timers(
        self, key_index: Any, at: Any, *, tag: Any = "", clock: str = "event", hold: Any = None
    ) -> None:
        """Sets the timer `tag` of the keys at these positions; `at` and `hold` are columns."""

    @abstractmethod
    def cancel_timers(self, key_index: Any, *, tag: Any = "") -> None:
        """Removes the timer `tag` of the keys at these positions."""

    @abstractmethod
    def pass_on(self, rows: Any, *, to: str | None = None) -> None:
        """Sends rows of the input unchanged. `rows` are their positions, or a mask."""

    @abstractmethod
    def produce_table(
        self,
        table: pa.Table | dict[str, Any],
        *,
        to: str | None = None,
        timestamp: str | np.ndarray[Any, Any] | int | None = None,
        key_index: Any = None,
        causes: Any = None,
        ties: str = "order",
    ) -> None:
        """Sends one record per row.

        `timestamp` is a column's name, an array or one instant. `key_index` is the key of each
        row. `causes` is the input row (without a key) that caused each row; ordered consumers sort
        by it. They get rows of one key and instant in the order of the table. If this order
        depends on how the input was cut, use `ties="content"`: rows are then sorted by content.
        """

    @abstractmethod
    def produce_values(
        self,
        values: Sequence[Any],
        *,
        to: str | None = None,
        timestamp: Any,
        key_index: Any = None,
        causes: Any = None,
        ties: str = "order",
    ) -> None:
        """Sends one record per value, of any type. `timestamp` is a column."""

    @abstractmethod
    def set_aside(
        self,
        error: Exception,
        key_index: int,
        value: Any,
        timestamp: int,
        stream: str | None = None,
    ) -> None:
        """Reports an error for one key (without a key: for one row of the input).

        The result for this key is left out. A dead letter goes where `errors=` says, or the
        pipeline stops and names the key.
        """
