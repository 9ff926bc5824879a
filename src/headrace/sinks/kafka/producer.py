"""One transactional producer: messages and the epoch's mark become visible together, or not at all.

The mark is the offset of a consumer group that no consumer is in: offset = the last epoch, metadata
= which checkpoint, commit and generation it came from. Kafka writes it in the same transaction as
the messages.

Why an epoch is there once: `begin` fences every other producer of the same name and ends its
transactions, *then* reads the mark. So nothing can be added between the mark that was read and the
transaction that follows, unless by a producer that began later; and then this transaction fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.errors import HeadraceError, SinkError, SinkUnavailable
from headrace.failpoints import reach
from headrace.kafka_client import ANSWER_S, ClientSettings, is_away, library
from headrace.sinks.kafka.messages import Message

BEGIN_S = 60.0
COMMIT_S = 120.0
"""A transaction may take longer only if `TIMEOUT` is longer."""
ABORT_S = 10.0
TIMEOUT = "transaction.timeout.ms"
"""Brokers end a transaction that is open for so long."""
_TIMEOUTS_MS = (60_000, 240_000, 900_000)
"""Each is tried when the one before was too short. A killed driver's transaction holds up readers
for so long, and brokers allow no more than the last one, or less if they are told so."""
TOGETHER = 200_000
"""So many messages may wait to be sent."""
_ANY_PARTITION = -1
"""The partitioner chooses."""

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_PRODUCER = {"linger.ms": 5, "partitioner": "murmur2_random", "compression.type": "lz4"}
OWN_OPTIONS = (
    "transactional.id", "enable.idempotence", "group.id", "isolation.level", "enable.auto.commit",
)  # fmt: skip
"""What the sink sets itself."""


class ProducerReplaced(Exception):
    """Another producer of this name has begun."""


class EpochMark(msgspec.Struct, frozen=True):
    """Where the last epoch came from."""

    epoch: int
    checkpoint: str = ""
    commit: str = ""
    place: str = ""
    generation: int = 0
    producers: int = 1
    """How many producers shared the epoch."""


class EpochProducer:
    """A producer by its name, which is its transactional.id and the group of its mark."""

    def __init__(
        self, settings: ClientSettings, topic: str, name: str, stamped: bool, batch_bytes: int
    ) -> None:
        """`batch_bytes`: about what brokers take at once for this topic."""
        self.name = name
        self._settings = settings
        self._topic = topic
        self._stamped = stamped
        self._producer: Any = None
        self._group: Any = None
        self._batch_bytes = batch_bytes
        given = settings.number(TIMEOUT, 0)
        self._timeouts = [given] if given else list(_TIMEOUTS_MS)
        self._allowed = 0
        """The longest of them that brokers have taken, or 0."""
        self.late = 0
        """So often in a row the longest time for a transaction was too short."""
        self.mark: EpochMark | None = None
        """The mark as of `begin`, or of the last transaction since."""

    @property
    def has_begun(self) -> bool:
        """Whether transactions can be made."""
        return self._producer is not None

    def begin(self) -> EpochMark | None:
        """Takes the place of any other producer of this name; returns its mark."""
        try:
            made = self._initialized()
        except library().KafkaException as error:
            found = error.args[0]
            if found.name() != _TOO_LONG or self._allowed in (0, self._timeouts[0]):
                raise self._error(found, "beginning") from None
            # Perhaps it was no long epoch, but an outage, after which a longer one was tried.
            self._timeouts = [self._allowed]
            made = self._try("beginning", self._initialized)
        self._allowed = self._timeouts[0]
        self.mark = self.read()
        self._producer = made
        return self.mark

    def _initialized(self) -> Any:
        made = self._settings.client(
            "Producer",
            **{**_PRODUCER, "queue.buffering.max.messages": TOGETHER},
            **{"transactional.id": self.name, "enable.idempotence": True},
            **{"batch.size": self._batch_bytes, TIMEOUT: self._timeouts[0]},
        )
        made.init_transactions(BEGIN_S)
        return made

    def read(self) -> EpochMark | None:
        """The mark, as brokers have it now."""
        if self._group is None:
            self._group = self._settings.client(
                "Consumer",
                **{"group.id": self.name, "isolation.level": "read_committed"},
                **{"enable.auto.commit": False},
            )
        found = self._committed()
        if found.offset < 0:
            return None
        try:
            mark = msgspec.json.decode(found.metadata or b"{}", type=_Said)
        except msgspec.DecodeError:
            mark = _Said()  # a person has set the offset
        return EpochMark(found.offset, *msgspec.structs.astuple(mark))

    def _asked(self) -> Any:
        return self._group.committed([self._place(0)], ANSWER_S)

    def _committed(self) -> Any:
        doing, until = "reading its mark", time.monotonic() + ANSWER_S
        while True:
            try:
                found = self._try(doing, self._asked)[0]
                if found.error is None:
                    return found
                raise self._error(found.error, doing)
            except SinkUnavailable:
                # The coordinator of a group may have just moved, or have been made.
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def send(self, messages: Sequence[Message], mark: EpochMark | None) -> None:
        """Sends messages in one transaction, with the mark unless they are weak.

        After any error it must begin again: whether the transaction was committed is not known.
        """
        began = time.monotonic()
        try:
            self._try("sending", lambda: self._send_or_tell(messages, mark))
        except BaseException as error:
            self.drop(abort=isinstance(error, SinkError))
            if time.monotonic() - began >= self._timeouts[0] / 1000:
                if len(self._timeouts) > 1:
                    del self._timeouts[0]
                else:
                    self.late += isinstance(error, ProducerReplaced)
            raise
        self.mark = mark or self.mark
        self.late = 0

    def _send_or_tell(self, messages: Sequence[Message], mark: EpochMark | None) -> None:
        try:
            self._send(messages, mark)
        except library().KafkaException as error:
            if error.args[0].name() == "_STATE":
                # The transaction has failed before. This call, which has no effect, tells why.
                self._producer.begin_transaction()
            raise

    def _send(self, messages: Sequence[Message], mark: EpochMark | None) -> None:
        producer = self._producer
        producer.begin_transaction()
        produce, topic, latest = producer.produce, self._topic, int(time.time() * 1000)
        for key, value, time_ms in messages:
            # A broker refuses times that lie in the future. To the library, 0 means now: so the
            # first millisecond of 1970 counts as the second.
            stamp = 0 if not self._stamped else (time_ms or 1) if time_ms < latest else latest
            while True:
                try:
                    # By position, which takes two thirds of the time: partition, two names of a
                    # callback, time.
                    produce(topic, value, key, _ANY_PARTITION, None, None, stamp)
                    break
                except BufferError:
                    producer.poll(0.05)
        if mark is not None:
            said = msgspec.json.encode(
                _Said(mark.checkpoint, mark.commit, mark.place, mark.generation, mark.producers)
            )
            place = self._place(mark.epoch, said.decode())
            group = self._group.consumer_group_metadata()
            producer.send_offsets_to_transaction([place], group, BEGIN_S)
        reach("after-claim")
        producer.commit_transaction(max(COMMIT_S, self._timeouts[0] / 1000))

    def drop(self, *, abort: bool = False) -> None:
        """Forgets the producer. The next `begin` of this name ends its open transaction.

        `abort`: there may be none soon, and until then others' records could not be read."""
        dropped, self._producer = self._producer, None
        if dropped is not None:
            try:
                if abort:
                    dropped.abort_transaction(ABORT_S)
                else:
                    dropped.purge()
            except library().KafkaException:
                pass  # it is dropped anyway

    def close(self) -> None:
        """Ends the connections."""
        self.drop()
        if self._group is not None:
            self._group.close()
            self._group = None

    def _place(self, offset: int, metadata: str | None = None) -> Any:
        # The group has one offset: that of partition 0, whatever partitions the topic has.
        make = library().TopicPartition
        if metadata is None:
            return make(self._topic, 0)
        return make(self._topic, 0, offset, metadata)

    def _try(self, doing: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except library().KafkaException as error:
            raise self._error(error.args[0], doing) from None

    def _error(self, error: Any, doing: str) -> Exception:
        said = self._settings.said(error)
        if error.name() in _FENCED or (error.fatal() and "fenced" in said.lower()):
            return ProducerReplaced(said)
        text = f"Kafka at {self._settings.servers}: the topic {self._topic}: {doing}: {said}"
        # An error that asks for an abort, or is fatal to this producer, ends with a new producer.
        away = is_away(error) or error.fatal() or error.txn_requires_abort()
        final = error.name() in _FINAL
        text += _ADVICE.get(error.name(), "")
        kind: type[HeadraceError] = SinkUnavailable if away and not final else SinkError
        return kind(text)


_TOO_LONG = "INVALID_TRANSACTION_TIMEOUT"
_FINAL = (
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE",
    "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "POLICY_VIOLATION",
    "_INVALID_ARG", _TOO_LONG, "OFFSET_METADATA_TOO_LARGE",
)  # fmt: skip
"""Errors that need a person, whatever the library says of them."""
_ADVICE = {
    "MSG_SIZE_TOO_LARGE": ". Raise max.message.bytes of the topic, and start again",
    "INVALID_RECORD": ". If the topic is compacted, it takes no message without a key: a row has "
    "None as its key. Let the topic be deleted by time meanwhile (cleanup.policy), and start again",
    _TOO_LONG: f". Brokers allow {TIMEOUT} up to their "
    "transaction.max.timeout.ms: raise that, or make epochs smaller",
}
"""What a person may do."""


class _Said(msgspec.Struct, frozen=True):
    """The metadata of the offset: `EpochMark` without the epoch, which is the offset itself."""

    checkpoint: str = ""
    commit: str = ""
    place: str = ""
    generation: int = 0
    producers: int = 1
