"""`sinks.kafka`: every epoch is in the topic once, and whole for readers of committed records.

Delivery is on the driver, after the commit, from staged rows. An epoch is one transaction, which
also writes the mark: the epoch, its commit, and the generation of the driver (protocol F4).

Invariants:
- The mark in Kafka is the truth. Kafka forgets it some time after the last epoch (as brokers are
  set: `offsets.retention.minutes`, 7 days). So it is copied to the sink's part of the checkpoint
  now and then, and the copy counts if no epoch was committed since; otherwise the sink refuses.
- A driver registers its generation when it opens the sink. A driver that finds a higher one is
  fenced. A producer that was replaced by one of an older generation begins again.
- Producers have their names from the checkpoint's id and the topic. A copy of a checkpoint has the
  same id, so its producers replace those of the original: one of the two stops. Whichever finds a
  mark of another commit is refused.
- Two sinks of one driver would have producers of one name, and each would take the mark of the
  other for its own. They are refused, also if they reach the topic by different addresses.
- With several producers each has its own part of the keys, its own transaction and its own mark:
  an epoch is whole per producer. The number of producers changes between epochs only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from headrace.errors import Fenced, IncompatibleState, InvalidPipeline, SinkError, SinkUnavailable
from headrace.failpoints import reach
from headrace.formats.format import Format
from headrace.kafka_client import Brokers, ClientSettings, library
from headrace.log.paths import safe
from headrace.model.key_spec import KeyGiven
from headrace.model.sink import Delivery, Opening, Sink
from headrace.model.values.names import known_options
from headrace.model.values.rows import Rows
from headrace.sinks.high_water import HighWater, HighWaterMark, open_high_water
from headrace.sinks.kafka.messages import Message, MessageFormat, dealt, load_messages
from headrace.sinks.kafka.producer import (
    OWN_OPTIONS,
    TIMEOUT,
    EpochMark,
    EpochProducer,
    ProducerReplaced,
)
from headrace.store.store import Store
from headrace.worker.garbage import seldom_collecting

PRODUCERS_MAX = 64
REPLACED_MAX = 8
"""So often a producer begins again after another took its place."""
_OPENED = "opened"
_open: dict[tuple[str, ...], str] = {}
"""Cluster, topic and driver -> where the sink that writes there keeps its files."""
_MESSAGE_BYTES = 1_000_000
_LATE_MAX = 3
"""So often in a row a transaction may run out of the longest time."""


@known_options("sinks.kafka")
def kafka(
    topic: str,
    *,
    servers: str | Sequence[str],
    key: KeyGiven = None,
    value: str | Format | Callable[[Any], Any] = "json",
    timestamp: bool = True,
    parallel: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Sink:
    """Writes rows to a topic, which must exist. Readers need isolation.level=read_committed.

    - `key`: a column, several, or a function of the value; None: messages have no key. Text and
      bytes are written as they are, other keys as JSON. Keys go to partitions as with Kafka's own
      clients (murmur2).
    - `value`: "json" (default), "text", "bytes", a format (`formats.avro(...)`,
      `formats.protobuf(...)`), or a function of the value that returns bytes, text or None. None is
      a message without a value, a tombstone.
    - `timestamp`: whether a message has the record's timestamp (not later than now, because brokers
      refuse that), or the time at which it is sent.
    - `parallel`: how many producers share an epoch. Each key belongs to one, so its messages stay
      in order; with more than one, readers may see an epoch in so many steps.
    - `options`: of librdkafka. Their values are never shown, and are in no file of the checkpoint.
    """
    where = "sinks.kafka"
    library()
    if type(topic) is not str or not topic:
        raise InvalidPipeline(f"{where} needs the name of a topic, not {topic!r:.80}")
    if type(parallel) is not int or not 1 <= parallel <= PRODUCERS_MAX:
        raise InvalidPipeline(f"{where}: parallel= is 1 to {PRODUCERS_MAX}, not {parallel!r}")
    if type(timestamp) is not bool:
        raise InvalidPipeline(f"{where}: timestamp= is True or False, not {timestamp!r:.80}")
    settings = ClientSettings(servers, options, OWN_OPTIONS, where)
    bytes_max = settings.number("message.max.bytes", _MESSAGE_BYTES)
    settings.number(TIMEOUT, 0)
    format = MessageFormat(key, value, bytes_max, topic)
    return KafkaSink(topic, settings, format, timestamp, parallel)


class KafkaSink(Sink):
    """The sink behind `kafka`."""

    def __init__(
        self,
        topic: str,
        settings: ClientSettings,
        format: MessageFormat,
        timestamp: bool,
        parallel: int,
    ) -> None:
        self.topic = topic
        self.format = format
        self.timestamp = timestamp
        self.parallel = parallel
        self._settings: ClientSettings | None = settings
        self._forget()

    def _forget(self) -> None:
        self._producers: list[EpochProducer] = []
        self._mark = EpochMark(0)
        """The last epoch that every producer has."""
        self._generation = 0
        self._claimed: tuple[str, ...] = ()
        self._batch_bytes = _MESSAGE_BYTES
        self._store: Store | None = None
        self._kept: HighWater | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only encode: they need no brokers, and no passwords.
        return {
            **{name: value for name, value in self.__dict__.items() if name[0] != "_"},
            "_settings": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> KafkaSink:
        return self

    def __copy__(self) -> KafkaSink:
        return self

    def identity(self) -> str:
        return f"kafka:{self._known().servers}/{self.topic}"

    def encode(self, rows: Rows) -> bytes:
        return self.format.encode(rows)

    def high_water(self) -> int:
        return self._mark.epoch

    def open(self, opening: Opening) -> None:
        self.close()
        settings = self._known()
        brokers = Brokers(settings, SinkUnavailable, SinkError)
        if self.topic not in brokers.topics([self.topic]):
            raise SinkError(
                f"Kafka at {settings.servers} has no topic {self.topic!r}: make it first, with the "
                "partitions that its readers need"
            )
        self._claim(brokers.cluster_of(self.topic), opening)
        configured = brokers.settings_of(self.topic)
        if self.format.key.keyless and "compact" in configured.get("cleanup.policy", ""):
            raise SinkError(
                f"the topic {self.topic} is compacted, so it takes no messages without a key: say "
                "what the key is, sinks.kafka(..., key=), or change the topic's cleanup.policy"
            )
        # Otherwise brokers refuse small messages, too, where many are sent at once.
        taken = int(configured.get("max.message.bytes", _MESSAGE_BYTES))
        self._batch_bytes = max(1, min(_MESSAGE_BYTES, taken - taken // 10))
        self.format.prepare()
        self._generation = opening.generation
        self._kept = open_high_water(opening)
        self._store = opening.store.below(safe(opening.checkpoint))
        self._producers = [self._producer(opening, number) for number in range(self.parallel)]
        for _ in range(REPLACED_MAX):
            try:
                self._mark = self._register(opening)
                break
            except ProducerReplaced:
                continue
        else:
            raise self._replaced()
        self._store.put_if_absent(_OPENED, self.topic.encode())

    def _claim(self, cluster: str, opening: Opening) -> None:
        driver = opening.checkpoint, opening.place, str(opening.generation)
        place, mine = (cluster, self.topic, *driver), opening.store.where()
        if _open.setdefault(place, mine) != mine:
            raise InvalidPipeline(
                f"two sinks of this pipeline write to the topic {self.topic}, by different "
                "servers=: give each its own topic, or one stream to write"
            )
        self._claimed = place

    def _register(self, opening: Opening) -> EpochMark:
        """Takes the place of all producers of the last driver, and writes this generation."""
        first = self._producers[0]
        self._begin(first)
        before = 1 if first.mark is None else first.mark.producers
        more = [self._producer(opening, number) for number in range(self.parallel, before)]
        for producer in (*self._producers[1:], *more):
            self._begin(producer)
        everyone = [*self._producers, *more]
        last = self._last_mark(everyone[:before], opening)
        self._verify(last, opening.commits.get(last.epoch, ""), opening.place)
        mark = EpochMark(
            last.epoch, opening.checkpoint, last.commit, opening.place, opening.generation,
            self.parallel,
        )  # fmt: skip
        # Producer 0 is the last: its mark says how many there are.
        for producer in reversed(everyone):
            own = producer.mark
            is_ahead = own is not None and own.epoch > mark.epoch
            ahead = {"epoch": own.epoch, "commit": own.commit} if own and is_ahead else {}
            producer.send((), replace(mark, **ahead))
        for producer in more:
            producer.close()
        return mark

    @seldom_collecting()
    def deliver(self, delivery: Delivery) -> None:
        if not delivery.weak and self._mark.epoch >= delivery.epoch:
            self.verify(delivery.epoch, delivery.commit)
            return
        messages = [each for part in delivery.parts for each in load_messages(part)]
        reach("before-claim")
        mark = EpochMark(
            delivery.epoch, delivery.checkpoint, delivery.commit, delivery.place,
            self._generation, self.parallel,
        )  # fmt: skip
        shares = dealt(messages, self.parallel)
        wanted = None if delivery.weak else mark
        if self.parallel == 1:
            self._send(self._producers[0], shares[0], wanted)
        else:
            with ThreadPoolExecutor(self.parallel) as threads:
                jobs = [
                    threads.submit(self._send, producer, share, wanted)
                    for producer, share in zip(self._producers, shares, strict=True)
                ]
            for job in jobs:
                job.result()
        if delivery.weak:
            return
        reach("after-publish")
        self._mark = mark
        reach("after-high-water")

    def verify(self, epoch: int, commit: str) -> None:
        for mark in (self._mark, *(producer.mark for producer in self._producers)):
            if mark is not None and mark.epoch == epoch:
                self._verify(mark, commit, "")

    def tidy(self) -> None:
        """Copies the mark to the checkpoint: Kafka forgets it some day."""
        mark = self._mark  # a delivery beside this may replace it
        if self._kept is not None and mark.epoch > self._kept.read():
            self._kept.advance(mark.epoch, mark.commit)
            self._kept.tidy()

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
        self._producers = []
        if self._claimed:
            _open.pop(self._claimed, None)
            self._claimed = ()

    def _send(
        self, producer: EpochProducer, messages: list[Message], mark: EpochMark | None
    ) -> None:
        for _ in range(REPLACED_MAX):
            try:
                if not producer.has_begun:
                    self._begin(producer)
                found = producer.mark
                if mark is not None and found is not None and found.epoch >= mark.epoch:
                    self._verify(
                        found, mark.commit if found.epoch == mark.epoch else "", mark.place
                    )
                    return
                if producer.late >= _LATE_MAX:  # and no newer driver was found
                    raise SinkError(
                        f"the topic {self.topic}: brokers end a transaction before the epoch of "
                        f"{len(messages):,} messages is sent: raise {TIMEOUT} in options= (and "
                        "transaction.max.timeout.ms of the brokers), or make epochs smaller"
                    )
                producer.send(messages, mark)
                return
            except ProducerReplaced:
                continue
        raise self._replaced()

    def _begin(self, producer: EpochProducer) -> None:
        found = producer.begin()
        if found is not None and found.generation > self._generation:
            producer.drop()
            raise Fenced(
                f"the topic {self.topic} has a newer driver of this checkpoint (generation "
                f"{found.generation}, at {found.place or 'another place'}); this one, of "
                f"generation {self._generation}, stops"
            )

    def _last_mark(self, producers: Sequence[EpochProducer], opening: Opening) -> EpochMark:
        """The last epoch that all producers of the last driver have."""
        marks = [producer.mark for producer in producers if producer.mark is not None]
        if len(marks) < len(producers):
            return self._kept_mark(producers, opening)
        oldest = min(marks, key=lambda mark: mark.epoch)
        if len(producers) != self.parallel and len({mark.epoch for mark in marks}) > 1:
            raise IncompatibleState(
                f"the topic {self.topic} has a part of epoch {oldest.epoch + 1}, which was dealt "
                f"to {len(producers)} producers: start once with parallel={len(producers)}"
            )
        return oldest

    def _kept_mark(self, producers: Sequence[EpochProducer], opening: Opening) -> EpochMark:
        """The mark of a topic for which Kafka has none, or not those of all producers."""
        kept, store = self._kept, self._store
        # Producer 0 is registered last: with its mark, a topic was opened before.
        is_new = producers[0].mark is None and (store is None or not _exists(store, _OPENED))
        if kept is None or is_new:
            return EpochMark(0)
        epoch = kept.read()
        if epoch < opening.committed:
            lost = [producer.name for producer in producers if producer.mark is None]
            groups = f"the group {lost[0]}" if len(lost) == 1 else f"groups {', '.join(lost)}"
            each = "" if len(lost) == 1 else ", of each of these groups"
            raise IncompatibleState(
                f"Kafka no longer knows which epoch the topic {self.topic} has: the offsets of "
                f"{groups} are gone (offsets.retention.minutes), and the checkpoint knows "
                f"only that it has epoch {epoch} of {opening.committed}. Look which rows the topic "
                f"has, and say the last epoch that is there{each}: kafka-consumer-groups.sh "
                f"--group {lost[0]} --topic {self.topic}:0 --reset-offsets --to-offset EPOCH "
                "--execute"
            )
        found = kept.find(epoch)
        return EpochMark(epoch, opening.checkpoint, "" if found is None else found.commit)

    def _verify(self, found: EpochMark, commit: str, place: str) -> None:
        mine = HighWaterMark(found.checkpoint, commit, place)
        theirs = HighWaterMark(found.checkpoint, found.commit, found.place)
        mine.require(theirs, found.epoch, f"the topic {self.topic}")

    def _replaced(self) -> Fenced:
        return Fenced(
            f"another producer writes to the topic {self.topic} under the name of this one "
            f"({self._producers[0].name}): another driver of this checkpoint, or of a copy of it"
        )

    def _producer(self, opening: Opening, number: int) -> EpochProducer:
        name = f"headrace.{opening.checkpoint}.{self.topic}.{number}"
        settings, batch = self._known(), self._batch_bytes
        return EpochProducer(settings, self.topic, name, self.timestamp, batch)

    def _known(self) -> ClientSettings:
        if self._settings is None:
            raise SinkError(f"the sink of the topic {self.topic} was pickled: tasks only encode")
        return self._settings


def _exists(store: Store, name: str) -> bool:
    try:
        store.read(name)
    except FileNotFoundError:
        return False
    return True
