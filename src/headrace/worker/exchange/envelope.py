"""The rows that tasks send each other, and which hop they take next.

A row is `(partition, header, body)`: Spark only ever looks at the partition. Rows
for a later level are passed on unopened; reports travel down to the driver,
which is one level below the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Plan, Report

BLOB, CONTROL, REPORT = "blob", "control", "report"


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The address and content of a row."""

    level: int
    slot: int
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
    """The header in such bytes."""
    return _header_decoder.decode(data)


def encode_report(report: Report) -> bytes:
    """The body of a report's row.

    A report holds nothing that differs between two honest attempts, timings least of all.
    """
    return msgspec.msgpack.encode(report)


def decode_report(data: bytes) -> Report:
    """The report in such a body."""
    return _report_decoder.decode(data)


def partitions(topology: Topology, plan: Plan, level: int) -> int:
    """How many tasks a level has."""
    if level == 0:
        return max(1, len(plan.reads))
    owners = (owner for name in topology.levels[level] for owner in plan.rings[name].owners)
    return 1 + max(owners, default=0)


def address_rows(
    topology: Topology, plan: Plan, level: int, headers: Iterable[tuple[Header, bytes]]
) -> Iterator[Envelope]:
    """Rows that leave a task of `level`, each with the partition of its next hop."""
    following = level + 1
    hops = partitions(topology, plan, following) if following <= topology.depth else 1
    for header, body in headers:
        partition = header.slot if header.level == following else header.slot % hops
        yield Envelope(min(partition, hops - 1), header, body)
