"""The contract of a source, and what all sources share about time.

A source is divided into *splits* (a file, a partition). The driver asks it for ranges, and a task
reads a range. The plan records the range, so reading it again gives the same records or an error.
Four traps, each of which broke a source once:

1. `read` runs on an executor. It may run twice, or after a newer range. So it must depend only on
   the split and the range.
2. `plan` must not return more than is durable: the ranges of a plan must still be readable after a
   crash.
3. Positions increase within a split and are never reused. They decide the order of ties.
4. `fingerprint` must change when the bytes of a range change.

A source whose data can change describes in `Reading.seen` what it has read. The ledger stores this
description, and the source compares its data with it on demand (`compare`).
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
    """A part of one split: positions from `start` up to, but not including, `end`."""

    start: int
    end: int
    records: int
    """About how many records it holds; only back-pressure relies on it."""
    last: bool = False
    """Whether the split ends with this range, for ever."""
    fingerprint: str = ""
    """Changes when the data of the range changes; checked before reading."""


class Rejected(msgspec.Struct, frozen=True):
    """Input in a range that could not be read as a record."""

    position: int
    raw: str
    reason: str


SUMS = 2**128
"""Digests of blocks are added modulo this. The sum does not depend on order or cuts."""


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A description of data at the time it was read, so that a later change is detected."""

    size: int
    """Bytes, or values."""
    time_ns: int = 0
    """When it was last modified; 0 if that is unknown."""
    ends: str = ""
    """A digest of its first and last block."""
    digest: str = ""
    """The sum of the digests of all blocks read; it does not depend on how ranges were cut. "" if
    unknown. If only a part of every block was read, a `/` and the name of the part follow."""
    tail: str = ""
    """A digest of the part of the next block that was read."""
    since: int = 0
    """The position from which the sum counts."""
    read: int = 0
    """The position to which it was read."""
    whole: bool = False
    """Whether `read` is its end."""

    def then(self, more: Seen) -> Seen:
        """The description after more was read. It is `more` if that starts at the beginning."""
        if more.since == 0:
            return more
        joined = added(self.digest, more.digest) if self.read == more.since else ""
        return msgspec.structs.replace(more, digest=joined, since=self.since)


def digest_of_sum(total: int, part: str = "") -> str:
    """A sum of digests as text."""
    return f"{total % SUMS:032x}" + (f"/{part}" if part else "")


def added(one: str, other: str) -> str:
    """The sum of two sums of digests; "" if they cannot be added."""
    first, _, part = one.partition("/")
    second, _, same = other.partition("/")
    if not first or not second or part != same:
        return ""
    return digest_of_sum(int(first, 16) + int(second, 16), part)


class Change(msgspec.Struct, frozen=True):
    """How data differs from what was read, as parts of a message."""

    what: str
    """"the file /data/a.txt"."""
    how: str
    """"has grown from 4 to 8 bytes"."""
    undo: str
    """"put the old file back"."""
    name: str = ""
    """Its name in `accept_changed=`; the stream's name if it has none."""
    told_only: bool = False
    """Whether the change is harmless, and only reported: reading continues."""
    then: str = ""
    """"reading then goes on at ...": what accepting it does; "" for what it does with a file."""


class Reading(msgspec.Struct):
    """The result of `read`: Python values or Arrow columns, with their positions."""

    positions: Any
    """numpy int64, increasing."""
    values: list[Any] | None = None
    columns: pa.RecordBatch | None = None
    text: bool = False
    """Whether values are dicts of text, because their format has no types. A schema gives the
    types; an empty cell is None if the schema allows None."""
    exact: bool = False
    """Whether decimals, dates and times in values stay what they are; otherwise they are what
    MessagePack makes of them."""
    timestamps: Any = None
    """numpy int64 if the source knows the timestamps; otherwise `Timing` extracts them."""
    rejected: list[Rejected] = []
    digest: str = ""
    """A digest of all bytes that were read; a replay must get the same one. "" if unknown."""
    sum: str = ""
    """The sum of digests of the blocks that end in the range; see `Seen.digest`."""
    tail: str = ""
    """A digest of the block in which the range ends; see `Seen.tail`."""
    seen: dict[str, Seen] = {}
    """What was read, by the names of the parts of the split; "" if it has no parts."""
    left_out: tuple[str, ...] = ()
    """Columns that are null here, whatever they are in the data; see `read_columns`."""
    coded: dict[str, Any] = {}
    """Some columns of text once more, as Arrow dictionaries, if the source has them so. A value is
    in its dictionary once, and occurs in the rows."""


class Timing:
    """Where a record's time comes from and how late it may be.

    - `timestamp`: a column's name or a function of the value; None: time of ingestion.
    - `unit`: of numeric timestamps, "s", "ms", "us" (default) or "ns". If `unit` is given, text
      that contains a number is read as a number; other text is ISO 8601.
    - `zone`: for times without a zone, an IANA name such as "Europe/Berlin". Without `zone`, text
      without a zone is refused, and Arrow times without a zone are UTC. A time that occurs twice,
      when clocks go back, is the first of the two. A time that is skipped, when clocks go forward,
      is read with the offset before the change.
    - `lateness`: how far records may be out of order.
    - `starts`: a function from a split's name to the earliest time in it. The watermark is then
      the start of the oldest unfinished split (a report of the source itself).
    - `idle`: a split without new records for that long no longer holds the watermark.
    - `expected`: splits that will appear. A missing one holds the watermark.
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
        """The instant of a timestamp that is text."""
        text = text.strip()
        is_number = _NUMBER.fullmatch(text) is not None
        if is_number and self.unit is not None:
            return float(text) if "." in text else int(text)
        # Python would read 13 digits (a time in milliseconds) as a date in the Middle Ages.
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
    """Reads data from an outside system. Extend this for a system that Headrace lacks."""

    timing: Timing

    bounded: bool = True
    """Whether `splits` and their ends are known for good when the pipeline starts."""
    rereads: bool = True
    """Whether it can read committed input again, until that is released."""
    schema: Any = None
    """The columns of its values, as `schema=` of `p.read` takes them, if the source was given
    them."""

    def prepare(self, workspace: Workspace) -> None:
        """Called once on the driver before the first plan of a run."""

    def close(self) -> None:
        """Called once on the driver when the run ends."""

    @abstractmethod
    def splits(self) -> Sequence[str]:
        """The names of the splits that are known now. Ended splits may be included or not."""

    def first(self, split: str) -> int:
        """The position at which a split begins."""
        return 0

    @abstractmethod
    def plan(self, split: str, start: int, records: int) -> Range | None:
        """The next range of about `records` records from `start`; None when there is none now.

        A split that turns out to have nothing left returns an empty range with `last=True`.
        """

    def reaches(self, split: str) -> int | None:
        """The position up to which a split has input now, as of the last `plan`; None if unknown.

        Only the scaler relies on it: what is not read yet needs slots too.
        """
        return None

    @abstractmethod
    def read(self, split: str, range: Range) -> Reading:
        """The records of a range. Runs on an executor."""

    def read_columns(self, split: str, range: Range, needed: frozenset[str]) -> Reading:
        """`read`, for a pipeline that looks at these columns only.

        Other columns may be null, of the same type, and `Reading.left_out` then names them.
        Digests are those of `read`.
        """
        return self.read(split, range)

    def low_watermark(self, split: str, position: int) -> int | None:
        """The source's own lower bound: no record at or after `position` is older than this.

        Tasks call it too, on a pickled copy, so it must depend only on its arguments.
        """
        if self.timing.starts is None:
            return None
        return instant(self.timing.starts(split), what=f"starts({split!r})")

    def columns(self) -> Sequence[str] | None:
        """The columns of its values, if they are known before anything is read."""
        return None

    def caught_up(self) -> bool:
        """Whether a call of `plan` after this one will offer all that there is at this moment."""
        return True

    def settle(self, split: str, position: int) -> None:
        """Epochs up to `position` are committed: no new plan reads records before it.

        A replay or a repair may, until they are released.
        """

    def release(self, split: str, position: int) -> None:
        """No kept epoch reads before `position`: the source may delete earlier data for ever."""

    def look(self, workspace: Workspace) -> None:
        """Called instead of `prepare` if ranges that were planned before are read again.

        `workspace` shows the source's workspace, but does not keep writes. There may be no Spark.
        """
        self.prepare(workspace)

    def finished(self, splits: Iterable[str]) -> None:
        """These splits are read to their end and committed: `splits` need not list them again."""

    def parts(self) -> Iterable[tuple[str, str]]:
        """(split, name) of all parts that can be compared with `seen`, under their names there."""
        return ()

    def unread(self) -> Mapping[str, Seen]:
        """What counts as read of splits of which nothing was read, if they may lose that, too."""
        return {}

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        """Compares a part with what was read: `seen`, perhaps with another time, or the change.

        None if the part no longer exists, or if there is nothing to compare. Without `closely`
        only cheap properties are compared first, and the content only if these differ.
        """
        return None

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        """After a change was accepted: the position to continue from, and what counts as read.

        A part that was read to its end counts as read in its present form.
        """
        return seen.read, seen

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        """Cuts `range` into at most `parts` ranges that different tasks may read."""
        return (range,)

    def describe(self) -> str:
        """A short name for messages and for the pipeline's fingerprint."""
        return type(self).__name__


class Workspace(msgspec.Struct):
    """What a source may use on the driver: a part of the checkpoint's store, and Spark.

    This part of the store is durable and belongs to the source alone; `store/store.py` has its
    contract. It may be on a disk, in an object store or in memory, so names in it are not paths. A
    source that needs a path, for example for Spark to write to, calls `store.local_path(name)` and
    refuses None.
    """

    store: Store
    spark: Any = None


def cell_of(value: Any, column: str) -> Any:
    """A column of a value. The value is a mapping or an object of a class."""
    if not isinstance(value, Mapping) and hasattr(value, column):
        return getattr(value, column)
    return value[column]


def positions(start: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The positions of `count` consecutive records."""
    return np.arange(start, start + count, dtype=np.int64)
