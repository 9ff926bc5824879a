"""The rows that tasks send to each other, and the next hop of each row.

A row is `(partition, header, body)`. Spark reads only the partition: the number of the task that
gets the row next. Slots are dealt to tasks in the same way at every level (J10). A task passes rows
for a later level on without decoding them. Reports go down to the driver, which is one level below
the last level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Plan, Report

BLOB, CONTROL, REPORT = "blob", "control", "report"


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The address of a row, and the kind of its content."""

    level: int
    slot: int
    """Of a blob: the slot that it is for. Of a control row or report: the number of a task."""
    kind: str
    label: str
    consumer: str = ""
    input: int = 0
    sequence: int = 0


class Envelope(msgspec.Struct, frozen=True):
    """One row between tasks."""

    partition: int
    header: Header
    body: bytes


_header_decoder = msgspec.msgpack.Decoder(Header)
_report_decoder = msgspec.msgpack.Decoder(Report)


def pack_header(header: Header) -> bytes:
    """A header as bytes."""
    return msgspec.msgpack.encode(header)


def unpack_header(data: bytes) -> Header:
    """A header from the bytes of `pack_header`."""
    return _header_decoder.decode(data)


def encode_report(report: Report) -> bytes:
    """The body of a report's row.

    A report must be the same in every correct attempt, so it holds no timings.
    """
    return msgspec.msgpack.encode(report)


def decode_report(data: bytes) -> Report:
    """A report from the body of its row."""
    return _report_decoder.decode(data)


def tasks_at(plan: Plan, level: int) -> int:
    """How many tasks a level has: as many at every level, so that frames are built once (J10)."""
    return max(plan.tasks, len(plan.reads)) if level == 0 else plan.tasks


def address_rows(
    topology: Topology, plan: Plan, level: int, headers: Iterable[tuple[Header, bytes]]
) -> Iterator[Envelope]:
    """Rows that a task of `level` sends, each with the partition of its next hop."""
    hops = plan.tasks if level < topology.depth else 1
    for header, body in headers:
        yield Envelope(header.slot % hops, header, body)
