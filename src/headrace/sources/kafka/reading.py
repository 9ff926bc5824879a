"""Reads a range of offsets of one partition, on an executor.

Consumers are kept by the process: to connect costs more than to read a small range. They belong to
no group and store no offsets: the log says what was read.

A reader of committed records sees gaps in offsets: the end of a transaction has an offset, and so
has every record of one that was aborted. So a range is not read to its end by counting: it ends
with the record before its end, with a record after it, or where the partition ends.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from headrace.errors import SourceError, SourceUnavailable
from headrace.kafka_client import ClientSettings, is_away, library

QUIET_S = 20.0
"""So long a partition may send nothing before its broker counts as away."""
BATCH = 10_000
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
        self.at: tuple[str, int, int] | None = None


_idle: dict[tuple[int, ClientSettings], list[_Reader]] = {}
_lock = threading.Lock()


def read_range(
    settings: ClientSettings, topic: str, partition: int, start: int, end: int
) -> list[Any]:
    """The messages of a range, in order. NoSuchOffset if the partition does not have them."""
    place = (os.getpid(), settings)
    with _lock:
        idle = _idle.setdefault(place, [])
        fitting = next((r for r in idle if r.at == (topic, partition, start)), None)
        reader = fitting or (idle[-1] if idle else None)
        if reader is not None:
            idle.remove(reader)
    if reader is None:
        reader = _Reader(settings)
    found = _read(reader, settings, topic, partition, start, end)
    with _lock:  # not after an error: then it is closed, when nothing refers to it
        _idle[place].append(reader)
    return found


def _read(
    reader: _Reader, settings: ClientSettings, topic: str, partition: int, start: int, end: int
) -> list[Any]:
    kafka, consumer = library(), reader.consumer
    if reader.at != (topic, partition, start):
        consumer.assign([kafka.TopicPartition(topic, partition, start)])
    reader.at = None
    found: list[Any] = []
    next_offset, said = start, "nothing"
    until = time.monotonic() + QUIET_S
    while next_offset < end:
        # No more than fit: a call returns when it has them, or when its time is over.
        for message in consumer.consume(min(BATCH, end - next_offset), _POLL_S):
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
            until = time.monotonic() + QUIET_S
        elif time.monotonic() > until:
            what = f"no records from offset {next_offset} to {end} for {QUIET_S:.0f} s; it says "
            raise SourceUnavailable(_refusal(settings, topic, partition, what + said))
    reader.at = (topic, partition, end)
    return found


def _refusal(settings: ClientSettings, topic: str, partition: int, what: str) -> str:
    return f"Kafka at {settings.servers}: {topic}/{partition}: {what}"
