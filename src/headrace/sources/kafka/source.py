"""`sources.kafka`: the records of topics, read by offsets that the driver plans.

Nothing is copied: brokers keep the records, a task reads a range of offsets from them, and a replay
reads the same range again. What can go wrong with that is told, never skipped:

- Retention has deleted records before they were read: an error that names them.
- A topic was deleted and made again: its id says so. A range names the id that it was planned for,
  and a task asks for it after it has read: what it read before is then of that topic.
- A broker does not answer: an outage, which the run waits out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Unpack

from headrace.errors import InvalidPipeline, SourceError, SourceUnavailable
from headrace.formats.format import Format
from headrace.kafka_client import Brokers, ClientSettings, Topic, library
from headrace.model.source import Change, Range, Reading, Seen, Source, Timing, Workspace, positions
from headrace.model.values.names import known_options, names_of
from headrace.model.values.time import Instant
from headrace.sources.generated import even_bounds
from headrace.sources.kafka.layout import (
    Bound,
    Layout,
    bases_in,
    keep_base,
    laid_out,
    place_of,
    places_in,
    split_of,
)
from headrace.sources.kafka.reading import OWN_OPTIONS, NoSuchOffset, read_range
from headrace.sources.kafka.values import (
    TOMBSTONES,
    Decoding,
    checked_columns,
    checked_kind,
)
from headrace.sources.options import TIMING_OPTIONS, TimingOptions
from headrace.store.store import Store

LOOK_EVERY_S = 1.0
"""How often topics and partitions are listed, and their first offsets asked for."""
_PATIENCE_S = (0.2, 0.8)
"""How long to wait before a topic that is not listed counts as gone."""


@known_options("sources.kafka", TIMING_OPTIONS)
def kafka(
    topics: str | Iterable[str] | re.Pattern[str],
    *,
    servers: str | Sequence[str],
    start: str | Instant | Mapping[Any, int] = "earliest",
    stop: str | Instant | Mapping[Any, int] | None = None,
    value: Any = "json",
    key: str = "text",
    columns: str | Iterable[str] | Mapping[str, str] = (),
    tombstones: str = "reject",
    options: Mapping[str, Any] | None = None,
    **timing: Unpack[TimingOptions],
) -> Source:
    """The committed records of topics: a topic, several, or a pattern `re.compile(...)`.

    - `servers`: "host:port", several separated by commas.
    - `start`: "earliest", "latest", a time with its zone (text, a datetime, microseconds since
      1970), or offsets by partition; decided once, when a checkpoint first starts. Partitions and
      topics that appear later are read from their beginning.
    - `stop`: None (default): the source never ends. "latest" (as of the first start), a time, or
      offsets by partition: it ends there, and `until="end"` can be reached.
    - `value`: "json", "text", "bytes", a schema as `p.read(schema=)` takes it, for JSON, or a
      format: `formats.avro(...)`, `formats.protobuf(...)`.
    - `columns`: parts of a message that become fields of its value: "key", "topic", "partition",
      "offset", "timestamp" (microseconds), "headers"; a dict gives them other names. A value that
      is no dict becomes {"value": ...}. `key`: what the key is, "text", "json" or "bytes".
    - `tombstones`: messages without a value are "reject"ed by default, by the policy of
      `p.read(errors=)`; "keep" gives None, "skip" leaves them out.
    - `options`: of librdkafka, such as "security.protocol" and "sasl.password". Their values are
      never shown, and are in no file of the checkpoint.

    Without `timestamp=`, the time of a record is that of its message.
    """
    where = "sources.kafka"
    library()
    settings = ClientSettings(servers, options, OWN_OPTIONS, where)
    schema = None
    if not isinstance(value, str | Format):
        schema, value = value, "json"
    if isinstance(value, str):
        checked_kind(value, f"{where}: value=")
    checked_kind(key, f"{where}: key=")
    if tombstones not in TOMBSTONES:
        raise InvalidPipeline(f"{where}: tombstones= is one of {', '.join(TOMBSTONES)}")
    pattern = topics if isinstance(topics, re.Pattern) else None
    named = () if isinstance(topics, re.Pattern) else names_of(topics, what=f"{where}: topics")
    if pattern is None and not named:
        raise InvalidPipeline(f"{where} needs a topic")
    made = KafkaSource(
        settings,
        named,
        pattern,
        Bound(start, f"{where}: start=", ("earliest", "latest")),
        None if stop is None else Bound(stop, f"{where}: stop=", ("latest",)),
        Decoding(value, key, checked_columns(columns), tombstones),
        Timing(**timing),
    )
    made.schema = schema
    return made


class KafkaSource(Source):
    """One split per partition."""

    cut_from: int = 50_000
    """A range of fewer offsets is not worth a second task, which has to find its place first."""

    def __init__(
        self,
        settings: ClientSettings,
        named: tuple[str, ...],
        pattern: re.Pattern[str] | None,
        start: Bound,
        stop: Bound | None,
        decoding: Decoding,
        timing: Timing,
    ) -> None:
        self.settings = settings
        self.named = tuple(dict.fromkeys(named))
        self.pattern = pattern
        self.start = start
        self.stop = stop
        self.decoding = decoding
        self.timing = timing
        self.bounded = stop is not None
        self._forget()

    def _forget(self) -> None:
        """What the driver knows; tasks do not need it."""
        self._store: Store | None = None
        self._layout = Layout({}, {})
        self._topics: dict[str, Topic] = {}
        self._firsts: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._bases: dict[tuple[str, str], int] = {}
        self._looked_at = float("-inf")
        self._is_listed = True

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name[0] != "_"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def prepare(self, workspace: Workspace) -> None:
        self._forget()
        self._store = workspace.store
        brokers, topics = self._brokers(), self._described()
        missing = [name for name in self.named if name not in topics]
        if missing:
            raise SourceError(
                f"Kafka at {self.settings.servers} has no topic {missing[0]!r}: make it first, or "
                "correct the name"
            )

        def decide() -> Layout:
            starts = self.start.find(brokers, topics)
            stops = None if self.stop is None else self.stop.find(brokers, topics)
            return Layout({name: topic.id for name, topic in topics.items()}, starts, stops)

        self._layout = laid_out(workspace.store, decide)
        if (self._layout.stops is None) == self.bounded:
            how = "with" if self._layout.stops is not None else "without"
            raise SourceError(f"this checkpoint reads {self.describe()} {how} stop=: keep it so")
        self._bases = bases_in(workspace.store)
        self._look(topics)

    def look(self, workspace: Workspace) -> None:
        """Does nothing: a range names its topic's id and its base."""

    def splits(self) -> Sequence[str]:
        self._is_listed = time.monotonic() - self._looked_at >= LOOK_EVERY_S
        self._look(self._described() if self._is_listed else None)
        if self._layout.stops is not None:
            return list(self._layout.stops)
        return [split_of(place) for place in places_in(self._topics)]

    def caught_up(self) -> bool:
        return self._is_listed or self.bounded

    def first(self, split: str) -> int:
        self._require_readable(split)
        topic = place_of(split)[0]
        start = self._layout.starts.get(split)
        if start is None or self._layout.topics.get(topic) != self._id(topic):
            start = self._firsts[split]
        return self._base(split) + start

    def plan(self, split: str, start: int, records: int) -> Range | None:
        self._require_readable(split)
        reaches, stop, base = self.reaches(split) or 0, self._stop(split), self._base(split)
        mark = f"{self._id(place_of(split)[0])} {base}"
        if stop is not None and start >= stop:
            return Range(start, start, 0, True, mark)
        if start < base + self._firsts[split]:
            first = self._firsts[split]
            raise SourceError(
                f"{split}: retention deleted the records from offset {start - base} up to {first} "
                "before any of them was read. Start again to learn how to go on"
            )
        if start > reaches:
            raise SourceUnavailable(
                f"Kafka at {self.settings.servers}: {split} ends at offset {reaches - base}, but "
                f"was read up to {start - base}: a broker is not ready yet, or has lost records"
            )
        if start == reaches:
            return None
        end = min(reaches, start + max(1, records))
        return Range(start, end, end - start, stop is not None and end >= stop, mark)

    def reaches(self, split: str) -> int | None:
        if split not in self._ends:
            return None
        end, stop = self._base(split) + self._ends[split], self._stop(split)
        return end if stop is None else min(end, stop)

    def read(self, split: str, range: Range) -> Reading:
        topic, partition = place_of(split)
        topic_id, _, base_text = range.fingerprint.partition(" ")
        base = int(base_text)
        seen = Seen(range.end, ends=topic_id, since=range.start, read=range.end, whole=range.last)
        if range.start >= range.end:
            return Reading(positions(range.start, 0), values=[], seen={"": seen})
        brokers = self._brokers()
        start, end = range.start - base, range.end - base
        try:
            messages = read_range(self.settings, topic, partition, start, end)
        except NoSuchOffset as error:
            self._require_id(brokers.topics([topic]), topic, topic_id)
            first = brokers.first_offsets([(topic, partition)])[topic, partition]
            if first <= start:
                raise SourceUnavailable(
                    f"Kafka at {self.settings.servers}: {split} does not have the offsets from "
                    f"{start} to {end}: a broker is not ready yet, or has lost records: {error}"
                ) from None
            raise SourceError(
                f"{split}: retention deleted the records from offset {start} up to {first} before "
                "they were read. Start again to learn how to go on"
            ) from None
        asked = brokers.asked([topic])  # answered while the values are decoded
        reading = self.decoding.reading(messages, base, self.stamps_itself)
        self._require_id(asked(), topic, topic_id)
        reading.seen = {"": seen}
        return reading

    @property
    def stamps_itself(self) -> bool:
        """Whether the time of a record is that of its message."""
        return self.timing.timestamp is None

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((split, "") for split in self._firsts)

    def unread(self) -> Mapping[str, Seen]:
        found = {}
        for split, start in self._layout.starts.items():
            topic, stop = place_of(split)[0], self._stop(split)
            if split in self._firsts and self._layout.topics.get(topic) == self._id(topic):
                is_whole = stop is not None and start >= stop
                found[split] = Seen(start, ends=self._id(topic), read=start, whole=is_whole)
        return found

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        topic = place_of(split)[0]
        if topic not in self._topics or split not in self._firsts:
            return None
        if seen.ends != self._id(topic):
            return Change(
                f"the topic {topic}",
                "was deleted and made again",
                "read it where the old one still is",
                topic,
                then="reading then goes on at the beginning of the new topic",
            )
        base, first = self._base(split), self._firsts[split]
        if not seen.whole and seen.read < base + first:
            return Change(
                f"the topic {topic}",
                f"begins at offset {first} in partition {place_of(split)[1]}, so retention deleted "
                f"{base + first - seen.read:,} records that were never read,",
                "read it where they still are",
                topic,
                then="reading then goes on at the first record that is there",
            )
        return seen

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        self._require_readable(split)
        topic_id = self._id(place_of(split)[0])
        read = seen.read
        if seen.ends != topic_id:
            base = keep_base(self._workspace(), split, topic_id, read - self._firsts[split])
            self._bases[split, topic_id] = base
        read = max(read, self._base(split) + self._firsts[split])
        return read, Seen(read, ends=topic_id, read=read, whole=seen.whole)

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        width = range.end - range.start
        if parts < 2 or width < self.cut_from:
            return (range,)
        bounds = even_bounds(range.start, range.end, parts)
        return tuple(
            Range(a, b, b - a, range.last and b == range.end, range.fingerprint)
            for a, b in pairwise(bounds)
        )

    def describe(self) -> str:
        which = ", ".join(self.named) if self.pattern is None else f"/{self.pattern.pattern}/"
        return f"kafka({which})"

    def _look(self, topics: dict[str, Topic] | None) -> None:
        """Asks for the ends of partitions, and if topics were listed for their beginnings."""
        brokers = self._brokers()
        if topics is not None:
            self._topics = topics
            found = brokers.first_offsets(places_in(topics))
            self._firsts = {split_of(place): offset for place, offset in found.items()}
            self._looked_at = time.monotonic()
        ends = brokers.end_offsets(places_in(self._topics))
        self._ends = {split_of(place): offset for place, offset in ends.items()}

    def _described(self) -> dict[str, Topic]:
        """The topics that there are now."""
        wanted = {*self.named, *self._topics}
        for seconds in _PATIENCE_S:
            if wanted <= set(topics := self._listed()):
                return topics
            time.sleep(seconds)  # a broker that has just started may not know all of them yet
        return self._listed()

    def _listed(self) -> dict[str, Topic]:
        brokers = self._brokers()
        if self.pattern is None:
            return brokers.topics(self.named)
        return brokers.topics(name for name in brokers.names() if self.pattern.fullmatch(name))

    def _require_readable(self, split: str) -> None:
        topic = place_of(split)[0]
        if split not in self._firsts:
            raise SourceError(f"{split} is gone before it was read to its end: put it back")
        if self.bounded and self._layout.topics.get(topic) != self._id(topic):
            raise SourceError(
                f"the topic {topic} was deleted and made again, and stop= names an offset of the "
                "old one: start a new checkpoint"
            )

    def _brokers(self) -> Brokers:
        return Brokers(self.settings, SourceUnavailable, SourceError)

    def _require_id(self, topics: Mapping[str, Topic], topic: str, planned: str) -> None:
        if topic not in topics or topics[topic].id != planned:
            how = "is gone" if topic not in topics else "was deleted and made again"
            raise SourceError(
                f"the topic {topic} {how} since this epoch was planned. Start again to learn how "
                "to go on"
            )

    def _id(self, topic: str) -> str:
        return self._topics[topic].id if topic in self._topics else ""

    def _base(self, split: str) -> int:
        return self._bases.get((split, self._id(place_of(split)[0])), 0)

    def _stop(self, split: str) -> int | None:
        return None if self._layout.stops is None else self._layout.stops[split]

    def _workspace(self) -> Store:
        if self._store is None:
            raise SourceError(f"{self.describe()} was used before it was prepared")
        return self._store
