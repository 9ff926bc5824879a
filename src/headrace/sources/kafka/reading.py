"""Reads a range of offsets of one partition, on an executor.

Consumers are kept by the process: to connect costs more than to read a small range, and to change
the partition costs as much as to read thousands of records. So a process has a consumer for each of
the partitions that it reads, up to `READERS_MAX`. They belong to no group and store no offsets: the
log says what was read.

A reader of committed records sees gaps in offsets: the end of a transaction has an offset, and so
has every record of one that was aborted. So a range is not read to its end by counting: it ends
with the record before its end, with a record after it, or where the partition ends.

Nothing is heard of the records of an aborted transaction while they are skipped, and there may be
gigabytes of them. So a broker that is silent, but answers when it is asked, is not away.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from headrace.errors import SourceError, SourceUnavailable
from headrace.kafka_client import ANSWER_S, ClientSettings, is_away, library

QUIET_S = 20.0
"""So long a partition may send nothing before its broker counts as away."""
SKIPPING_S = 900.0
"""So long it may, while the broker answers other questions."""
BATCH = 10_000
READERS_MAX = 8
"""So many consumers a process keeps for the same brokers."""
_POLL_S = 0.02

# With the defaults of the library, every change of partition would cost up to a second.
_CONSUMER = {
    "group.id": "headrace-unused",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
}
_SPEED = {
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1 << 20,
    "fetch.wait.max.ms": 5,
    "fetch.queue.backoff.ms": 2,
    "fetch.error.backoff.ms": 5,
}
_NO_SUCH = (
    "_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION",
    "_UNKNOWN_TOPIC",
)  # fmt: skip
OWN_OPTIONS = tuple(_CONSUMER)
"""What the source sets itself."""


class NoSuchOffset(Exception):
    """A partition does not have the records that a plan names."""


class _Reader:
    """A consumer, and the place at which it can go on without being told."""

    def __init__(self, settings: ClientSettings) -> None:
        self.consumer = settings.client("Consumer", **{**_CONSUMER, **_SPEED})
        self.place: tuple[str, int] | None = None
        """The partition that it read last."""
        self.at: int | None = None
        """The offset with which it goes on, if nothing went wrong."""


_idle: dict[tuple[int, ClientSettings], list[_Reader]] = {}
_lock = threading.Lock()


def read_range(
    settings: ClientSettings, topic: str, partition: int, start: int, end: int
) -> list[Any]:
    """The messages of a range, in order. NoSuchOffset if the partition does not have them."""
    process = (os.getpid(), settings)
    with _lock:
        reader = _chosen(_idle.setdefault(process, []), (topic, partition), start)
    if reader is None:
        reader = _Reader(settings)
    found = _read(reader, settings, topic, partition, start, end)
    with _lock:  # not after an error: then it is closed, when nothing refers to it
        _idle[process].append(reader)
        del _idle[process][:-READERS_MAX]
    return found


def _chosen(idle: list[_Reader], place: tuple[str, int], start: int) -> _Reader | None:
    """Takes the reader that has least to do before it can read; None if a new one is better."""
    fitting = [r for r in idle if r.place == place]
    reader = next((r for r in fitting if r.at == start), fitting[-1] if fitting else None)
    if reader is None and len(idle) >= READERS_MAX:
        reader = idle[0]  # it has waited longest
    if reader is not None:
        idle.remove(reader)
    return reader


def _read(
    reader: _Reader, settings: ClientSettings, topic: str, partition: int, start: int, end: int
) -> list[Any]:
    kafka, consumer = library(), reader.consumer
    if reader.place != (topic, partition) or reader.at != start:
        consumer.assign([kafka.TopicPartition(topic, partition, start)])
    reader.place, reader.at = (topic, partition), None
    found: list[Any] = []
    next_offset, said = start, "nothing"
    heard = time.monotonic()
    until = heard + QUIET_S
    while next_offset < end:
        # No more than fit: a call returns when it has them, or when its time is over.
        came = consumer.consume(min(BATCH, end - next_offset), _POLL_S)
        if came and came[-1].offset() < end and not any(map(kafka.Message.error, came)):
            found += came  # as nearly always
            came = []
        for message in came:
            error = message.error()
            if error is None:
                if message.offset() >= end:
                    return found
                found.append(message)
                continue
            name = error.name()
            if name == "_PARTITION_EOF":
                if message.offset() >= end:
                    return found
                # A new leader may not know its end yet; it may also be that records are lost.
                said = f"that the partition ends at offset {message.offset()}"
            elif name in _NO_SUCH:
                raise NoSuchOffset(settings.said(error))
            elif is_away(error):
                said = settings.said(error)
            else:
                raise SourceError(_refusal(settings, topic, partition, settings.said(error)))
        if found and found[-1].offset() >= next_offset:
            next_offset = found[-1].offset() + 1
            heard = time.monotonic()
            until = heard + QUIET_S
        elif (now := time.monotonic()) > until:
            is_silent = said == "nothing" and now < heard + SKIPPING_S
            if is_silent and _answers(consumer, kafka.TopicPartition(topic, partition)):
                until = time.monotonic() + QUIET_S
                continue
            what = f"no records from offset {next_offset} to {end} for {QUIET_S:.0f} s; it says "
            raise SourceUnavailable(_refusal(settings, topic, partition, what + said))
    reader.at = end
    return found


def _answers(consumer: Any, place: Any) -> bool:
    """Whether the broker of a partition answers."""
    try:
        return consumer.get_watermark_offsets(place, timeout=ANSWER_S) is not None
    except library().KafkaException:
        return False


def _refusal(settings: ClientSettings, topic: str, partition: int, what: str) -> str:
    return f"Kafka at {settings.servers}: {topic}/{partition}: {what}"
