"""The contract of a source, and what all sources share about time.

A source is divided into *splits* (a file, a partition). The driver asks it for
ranges, and a task reads a range; the plan records the range, so reading it again
gives the same records or an error. Four traps, each of which broke a source once:

1. `read` runs on an executor and may run twice or after a newer range: it must
   depend on the split and the range alone.
2. `plan` must not return more than is durably there: what the plan names must
   still be readable after a crash.
3. Positions increase within a split and are never reused; they order ties.
4. `fingerprint` must change when the bytes under a range change.

A source whose data can change under it says in `Reading.seen` what it has read, and
compares (`compare`) when it is asked to: the ledger remembers it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.functions import checked_function
from headrace.model.values.names import names_of
from headrace.model.values.time import Duration, Instant, duration, instant
from headrace.model.values.zones import in_zone, zone_named
from headrace.store.store import Store


class Range(msgspec.Struct, frozen=True):
    """A piece of one split: positions from `start` up to, not including, `end`."""

    start: int
    end: int
    records: int
    """About how many records it holds; only back-pressure relies on it."""
    last: bool = False
    """Whether the split ends with this range, for ever."""
    fingerprint: str = ""
    """Changes when what lies under the range changes; checked before reading."""


class Rejected(msgspec.Struct, frozen=True):
    """Something in a range that is not a record."""

    position: int
    raw: str
    reason: str


SUMS = 2**128
"""Digests of blocks are added up modulo this: the order and the cuts do not matter."""


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What something that was read was like then, so that a change of it is noticed."""

    size: int
    """Bytes, or values."""
    time_ns: int = 0
    """When it was last modified; 0 where nobody knows."""
    ends: str = ""
    """A digest of its first and last block."""
    digest: str = ""
    """The sum of the digests of all blocks read: the same however ranges were cut. "" where it is
    not known. After a `/` stands which part of every block was read, if not all."""
    tail: str = ""
    """A digest of what was read of the block that comes next."""
    since: int = 0
    """The position from which the sum counts."""
    read: int = 0
    """The position to which it was read."""
    whole: bool = False
    """Whether that was its end."""

    def then(self, more: Seen) -> Seen:
        """This, after more of it was read; what was read anew from its beginning replaces this."""
        if more.since == 0:
            return more
        joined = added(self.digest, more.digest) if self.read == more.since else ""
        return msgspec.structs.replace(more, digest=joined, since=self.since)


def digest_of_sum(total: int, part: str = "") -> str:
    """A sum of digests as text."""
    return f"{total % SUMS:032x}" + (f"/{part}" if part else "")


def added(one: str, other: str) -> str:
    """Two such sums together; "" where they do not go together."""
    first, _, part = one.partition("/")
    second, _, same = other.partition("/")
    if not first or not second or part != same:
        return ""
    return digest_of_sum(int(first, 16) + int(second, 16), part)


class Change(msgspec.Struct, frozen=True):
    """How something differs from what was read of it, in words for a message."""

    what: str
    """"the file /data/a.txt"."""
    how: str
    """"has grown from 4 to 8 bytes"."""
    undo: str
    """"put the old file back"."""
    name: str = ""
    """What `accept_changed=` calls it; the stream's name where it has none."""
    told_only: bool = False
    """Whether the change can do no harm: what was read goes on being read."""


class Reading(msgspec.Struct):
    """What `read` found: Python values or Arrow columns, with their positions."""

    positions: Any
    """numpy int64, increasing."""
    values: list[Any] | None = None
    columns: pa.RecordBatch | None = None
    text: bool = False
    """Whether values are dicts of text, as their format has no types: a schema says what they are,
    and an empty cell is None where it allows None."""
    timestamps: Any = None
    """numpy int64 where the source knows them itself; otherwise `Timing` finds them."""
    rejected: list[Rejected] = []
    digest: str = ""
    """Of all bytes that were read; a replay must find the same. "" where there are none."""
    sum: str = ""
    """Of the blocks that end in the range; see `Seen.digest`."""
    tail: str = ""
    """Of the block in which the range ends."""
    seen: dict[str, Seen] = {}
    """What was read, by the names of the parts of the split; "" where it has none."""


class Timing:
    """Where a record's time comes from and how late it may be.

    - `timestamp`: a column's name or a function of the value; None: time of ingestion.
    - `unit`: of numeric timestamps, "s", "ms", "us" (default) or "ns". Text that holds a number
      is read as one where `unit` is given; other text is ISO 8601.
    - `zone`: of times that have none, an IANA name such as "Europe/Berlin". Without it such text is
      refused, and columns of Arrow's times without a zone are UTC. A time that comes twice, as
      clocks are put back, is the first of both; one that is skipped is read with the offset before.
    - `lateness`: how far records may be out of order.
    - `starts`: a function from a split's name to the earliest time in it: the
      watermark is then the oldest unfinished split's (the source's own report).
    - `idle`: a split without news for that long no longer holds the watermark.
    - `expected`: splits that will come; one that is missing holds the watermark.
    - `max_skew`: how far a split's watermark may run ahead of the slowest.
    - `id`: a column's name or a function that identifies a record; duplicates
      within `id_slack` of the watermark are dropped.
    """

    __slots__ = (
        "expected", "id", "id_slack_us", "idle_us", "lateness_us", "max_skew_us", "starts",
        "timestamp", "unit", "unit_us", "zone",
    )  # fmt: skip

    def __init__(
        self,
        *,
        timestamp: str | Callable[[Any], Any] | None = None,
        unit: str | None = None,
        zone: str | None = None,
        lateness: Duration = "0s",
        starts: Callable[[str], Instant] | None = None,
        idle: Duration | None = None,
        expected: str | Iterable[str] = (),
        max_skew: Duration | None = None,
        id: str | Callable[[Any], Any] | None = None,
        id_slack: Duration = "10m",
    ) -> None:
        units = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
        if unit is not None and unit not in units:
            raise InvalidPipeline(f"unit= is one of {', '.join(units)}, not {unit!r}")
        if timestamp is not None and not isinstance(timestamp, str) and not callable(timestamp):
            raise InvalidPipeline("timestamp= is a column's name or a function of the value")
        for option, given in (("timestamp=", timestamp), ("id=", id)):
            if callable(given):
                checked_function(given, option, "value")
        self.timestamp = timestamp
        self.unit = unit
        self.unit_us = units[unit or "us"]
        self.zone = None if zone is None else zone_named(zone).key
        self.lateness_us = duration(lateness, what="lateness=")
        self.starts = starts
        self.idle_us = None if idle is None else duration(idle, what="idle=")
        self.expected = names_of(expected, what="expected=")
        self.max_skew_us = None if max_skew is None else duration(max_skew, what="max_skew=")
        self.id = id
        self.id_slack_us = duration(id_slack, what="id_slack=")

    def micros(self, raw: Any) -> int:
        """A raw timestamp cell as microseconds; raises ValueError with the reason."""
        if raw is None:
            raise ValueError("the timestamp is missing")
        if isinstance(raw, str):
            raw = self._read(raw)
        if isinstance(raw, datetime):
            if raw.tzinfo is None:
                if self.zone is None:
                    raise ValueError(
                        f"the timestamp {raw.isoformat(' ')} has no time zone: say which it is "
                        'where the source is made, zone="UTC" or zone="Europe/Berlin"'
                    )
                raw = in_zone(raw, zone_named(self.zone))
            return instant(raw, what="the timestamp")
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            raise ValueError(
                f"the timestamp is {type(raw).__name__}, not a number or ISO 8601 text"
            )
        if raw != raw or raw in (float("inf"), float("-inf")):
            raise ValueError(f"the timestamp is {raw}")
        return round(raw * self.unit_us) if self.unit_us != 1.0 else round(raw)

    def _read(self, text: str) -> datetime | int | float:
        """What a timestamp of text means."""
        text = text.strip()
        is_number = _NUMBER.fullmatch(text) is not None
        if is_number and self.unit is not None:
            return float(text) if "." in text else int(text)
        # Python would read 13 digits, a time in milliseconds, as a day in the middle ages.
        if is_number and len(text) != len("20140516"):
            raise ValueError(
                f"the timestamp {text[:40]!r} is a number without a unit: say which it is where "
                'the source is made, unit="s" or unit="ms"'
            )
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"the timestamp {text[:40]!r} is not ISO 8601") from None


_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{0,30})?")


class Source(ABC):
    """Brings outside data in. Extend this for a system that Headrace does not know."""

    timing: Timing

    bounded: bool = True
    """Whether `splits` and their ends are known for good when the pipeline starts."""

    def prepare(self, workspace: Workspace) -> None:
        """Called once on the driver before the first plan of a run."""

    def close(self) -> None:
        """Called once on the driver when the run ends."""

    @abstractmethod
    def splits(self) -> Sequence[str]:
        """The names of the splits known now, those already ended included or not."""

    def first(self, split: str) -> int:
        """The position at which a split begins."""
        return 0

    @abstractmethod
    def plan(self, split: str, start: int, records: int) -> Range | None:
        """The next range of about `records` records from `start`; None when there is none now.

        A split that turns out to have nothing left returns an empty range with `last=True`.
        """

    @abstractmethod
    def read(self, split: str, range: Range) -> Reading:
        """The records of a range. Runs on an executor."""

    def low_watermark(self, split: str, position: int) -> int | None:
        """The source's own word: nothing at or after `position` is older than this.

        Tasks ask too, of a pickled copy: it must depend on its arguments alone.
        """
        if self.timing.starts is None:
            return None
        return instant(self.timing.starts(split), what=f"starts({split!r})")

    def columns(self) -> Sequence[str] | None:
        """The columns of its values, where they are known before anything is read."""
        return None

    def caught_up(self) -> bool:
        """Whether there is no more at this moment than `plan` offers when asked after this."""
        return True

    def settle(self, split: str, position: int) -> None:
        """Epochs up to `position` are committed: no run reads what lies before again."""

    def release(self, split: str, position: int) -> None:
        """No epoch that is kept reads before `position`: the source may let go of it for good."""

    def look(self, workspace: Workspace) -> None:
        """Called instead of `prepare` where ranges that were planned before are read again.

        `workspace` shows the source's own, and keeps nothing of what is written to it; there may be
        no Spark.
        """
        self.prepare(workspace)

    def finished(self, splits: Iterable[str]) -> None:
        """These are read to their end and committed: `splits` need not list them any more."""

    def parts(self) -> Iterable[tuple[str, str]]:
        """(split, name) of all that can be compared with what was read, as named in `seen`."""
        return ()

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        """Whether it still is what was read: `seen`, perhaps with another time, or the change.

        None where it is gone, or there is nothing to compare. Without `closely` only what
        costs next to nothing is compared, and the rest where that differs.
        """
        return None

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        """A change was accepted: the position of the split to go on from, and what counts as read.

        What was read to its end counts as read as it is now.
        """
        return seen.read, seen

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        """`range` cut into at most `parts` ranges that different tasks may read."""
        return (range,)

    def describe(self) -> str:
        """A word for messages and for the pipeline's fingerprint."""
        return type(self).__name__


class Workspace(msgspec.Struct):
    """What a source may use on the driver: a part of the checkpoint's store, and Spark.

    The store is the source's own and durable: `store/store.py` has its contract. It may lie on a
    disk, in an object store or in memory, so names in it are not paths. A source that needs a path,
    for example for Spark to write to, asks `store.local_path(name)` and refuses None.
    """

    store: Store
    spark: Any = None


def cell_of(value: Any, column: str) -> Any:
    """A column of a value that is a mapping or an object of a class."""
    if not isinstance(value, Mapping) and hasattr(value, column):
        return getattr(value, column)
    return value[column]


def positions(start: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Positions of `count` records that follow each other."""
    return np.arange(start, start + count, dtype=np.int64)
