"""`ctx`: what a hook may ask and do. The worker provides it; tests may fake it.

All that it answers is the same on every retry and replay of an epoch.
"""

from __future__ import annotations

import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.model.services import Call, Http, OutsideService
from headrace.model.values.time import Duration, Instant

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from headrace.model.values.rows import Rows


class Services(ABC):
    """What record, timer and table hooks share."""

    watermark: int
    """The input watermark as the previous epoch committed it (in timers: this epoch's)."""

    final: bool
    """Whether the input has ended and the watermark is at the end of time."""

    @abstractmethod
    def now(self) -> int:
        """Wall time in microseconds: the epoch's, the same on every replay."""

    @property
    @abstractmethod
    def random(self) -> random.Random:
        """Dice seeded by epoch, computation, key and hook: the same on every replay."""

    @abstractmethod
    def uuid(self) -> uuid.UUID:
        """A unique id that is the same on every retry: use it as an idempotency key."""

    @abstractmethod
    def count(self, metric: str, n: int = 1) -> None:
        """Adds to a metric of this computation."""

    http: OutsideService[Http] = OutsideService()
    """Web requests whose answers a replay repeats; failures are ServiceError."""

    call: OutsideService[Call] = OutsideService()
    """Calls a function of the outside world; a replay gets what it returned, or raised."""

    @abstractmethod
    def outside(self, name: str) -> Any:
        """What stands behind a service that reaches the outside; it is asked for once."""


def service_names() -> frozenset[str]:
    """The names on `ctx` that reach the outside."""
    return frozenset(OutsideService.names)


class Context(Services):
    """The `ctx` of `process_record` and `process_timer`."""

    key: Any
    """The key in whose context the hook runs."""

    @abstractmethod
    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        """Sends a record to the output stream; `to=` names it where there are several."""

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
        """Sets the timer `tag` of this key, replacing the one of that tag."""

    @abstractmethod
    def cancel_timer(self, tag: Any = "") -> None:
        """Removes the timers `tag` of this key, by either clock, if there are any."""

    @abstractmethod
    def forget(self) -> None:
        """Removes state, timers and holds of this key."""

    @abstractmethod
    def hold(self, timestamp: Instant) -> None:
        """Keeps the output watermark at or below `timestamp` until released."""

    @abstractmethod
    def release(self) -> None:
        """Ends this key's hold."""


@dataclass(frozen=True)
class Input:
    """What arrived from one input: its rows in their own form, and whose they are."""

    stream: str
    first: int
    """The position of its first row in the table, for `pass_on`."""
    key_index: np.ndarray[Any, Any]
    rows: Rows
    feedback: bool = False
    """Whether it comes through a feedback stream: then none of it is late."""


class TableContext(Services):
    """The `ctx` of `process_table` and `process_timers`.

    Rows of `ctx.read()` are the distinct keys of the table, in the order of its
    `key_index` column, so state and input meet by position. (With `process_timers` there
    are more rows: behind them the keys that only have due timers.)
    """

    watermark_before: int
    """The input watermark as the previous epoch committed it, in timers too."""

    watermark_after: int
    """The input watermark that this epoch will commit: so far no more will come on time. Do not
    judge by it who is late."""

    epoch: int
    """The epoch's number. Numbers rise, and what an epoch wrote is there once."""

    @abstractmethod
    def keys(self) -> Sequence[Any]:
        """The distinct keys, in the order of `read()`."""

    @abstractmethod
    def inputs(self) -> Sequence[Input]:
        """The records of `process_table`, each input's apart, in the order of the table.

        For computations with several inputs whose values have different columns. With
        `reads_values = False` the table then has no columns but `key_index`, the time and
        `stream`, and nothing is packed to fit beside the others.
        """

    @abstractmethod
    def read(self) -> pa.Table:
        """State of the table's keys: a column per field, and `key` where values are read."""

    @abstractmethod
    def write(self, columns: pa.Table | dict[str, Any] | None = None, **more: Any) -> None:
        """New values of fields, a row per key as in `read()`; unnamed fields stay."""

    @abstractmethod
    def entries(self, name: str, key_index: Any = None) -> pa.Table:
        """Entries of a `Map`, of the keys at these positions or of all: `key_index`, `entry`,
        `value`, each key's in entry order."""

    @abstractmethod
    def put_entries(self, name: str, key_index: Any, entry: Any, value: Any) -> None:
        """Sets entries of a `Map`, row by row; a value of None removes the entry."""

    @abstractmethod
    def timers(self, tag: Any = "", clock: str = "event") -> pa.Array:
        """When the timer `tag` of each key fires; null where there is none."""

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
        """Sends rows of the input on as they are: their positions, or a mask."""

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
        """Sends a record per row. `timestamp` is a column's name, an array or one instant;
        `key_index` says whose record each row is, `causes` which row of the input (without a
        key) each comes from: ordered consumers sort by it. Rows of one key and instant reach
        them in this order or, where that depends on how the input was cut, with
        `ties="content"`, by what is in them."""

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
        """Sends a record per value, of whatever form; `timestamp` is a column."""

    @abstractmethod
    def set_aside(
        self,
        error: Exception,
        key_index: int,
        value: Any,
        timestamp: int,
        stream: str | None = None,
    ) -> None:
        """Something that the hook makes for one key (without a key: for that row of the input) has
        raised, and is not made: its dead letter goes where `errors=` says, or the pipeline
        stops and says for whom."""
