"""Control rows: what a task says at its end to every task that it feeds (protocol B2, J11).

A task runs several units of work, each with a label. It sends one control row to each task of each
level that any of them feeds, also to tasks for which it has no records. The row lists the labels
with the digest of all that each has made, and how many blobs each has sent to which slot.

Invariant: two correct attempts of a task send the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Plan
from headrace.plan.watermarks import Histogram, Mark
from headrace.worker.exchange.envelope import CONTROL, Header


class EndOfUnit(msgspec.Struct, frozen=True, array_like=True):
    """A unit of work is done, and this is what it made."""

    label: str
    host: str
    digest: str
    mark: Mark
    histograms: dict[str, Histogram] = {}
    """Consumer with a percentile watermark -> timestamps of all records made for it."""


Sent = tuple[int, int, int]
"""(number of the unit in the row, slot, number of blobs that it sent there)."""


class ControlRow(msgspec.Struct, frozen=True, array_like=True):
    """The last row of a task for one task that it feeds."""

    ends: list[EndOfUnit]
    sent: list[Sent]
    """Only slots of the receiving task, and only those that got a blob."""


class _Encoded(msgspec.Struct, frozen=True, array_like=True):
    """A control row whose first part is the same for all receivers, and encoded once."""

    ends: msgspec.Raw
    sent: list[Sent]


_decoder = msgspec.msgpack.Decoder(ControlRow)


def decode_control(data: bytes) -> ControlRow:
    """A control row from the body of its envelope."""
    return _decoder.decode(data)


class ControlRows:
    """Collects what the units of one task say at their end."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        self._topology = topology
        self._tasks = plan.tasks
        self._ends: dict[int, list[EndOfUnit]] = {}
        """Level -> the units that feed it."""
        self._sent: dict[tuple[int, int], list[Sent]] = {}
        """(level, task) -> blobs for it."""

    def add(self, end: EndOfUnit, blobs: Iterable[Header]) -> None:
        """Adds a unit that is done, and the headers of the blobs that it has sent."""
        counts: dict[tuple[int, int], int] = {}
        for header in blobs:
            place = header.level, header.slot
            counts[place] = counts.get(place, 0) + 1
        numbers: dict[int, int] = {}
        for level in self._topology.fed_levels(end.host):
            ends = self._ends.setdefault(level, [])
            numbers[level] = len(ends)
            ends.append(_for_level(self._topology, end, level))
        for (level, slot), count in sorted(counts.items()):
            sent = self._sent.setdefault((level, slot % self._tasks), [])
            sent.append((numbers[level], slot, count))

    def rows(self) -> Iterator[tuple[Header, bytes]]:
        """The control rows, one for every task of every level that is fed."""
        for level, ends in self._ends.items():
            encoded = msgspec.Raw(msgspec.msgpack.encode(ends))
            for task in range(self._tasks):
                row = _Encoded(encoded, self._sent.get((level, task), []))
                yield Header(level, task, CONTROL, ""), msgspec.msgpack.encode(row)


def _for_level(topology: Topology, end: EndOfUnit, level: int) -> EndOfUnit:
    """What one level must know: the histograms of its own computations only."""
    own = {name: each for name, each in end.histograms.items() if topology.level[name] == level}
    return end if len(own) == len(end.histograms) else msgspec.structs.replace(end, histograms=own)
