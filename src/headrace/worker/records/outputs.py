"""Collects the productions of record and timer hooks by output port, for the emitter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.causal.lineage import identity_part, keyless_origin, origin_part
from headrace.model.values.codec import NESTED_MAX, packed
from headrace.model.values.rows import Rows
from headrace.model.values.schema import Schema
from headrace.model.values.time import oldest_on_time
from headrace.pipeline.graph.graph import Node
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.slot_run import SlotRun


class StreamOutput:
    """Productions to one stream, as columns."""

    __slots__ = ("cells", "check", "origins", "timestamps")

    def __init__(self, schema: Schema | None = None) -> None:
        self.check = None if schema is None else schema.check
        self.cells: list[bytes] = []
        self.timestamps: list[int] = []
        self.origins: list[bytes] = []

    def rows(self, with_origins: bool) -> Rows:
        """The productions as rows."""
        origins = pa.array(self.origins, pa.binary()) if with_origins else None
        return Rows(
            np.array(self.timestamps, np.int64),
            packed=pa.array(self.cells, pa.binary()),
            origins=origins,
        )


class Outputs:
    """The output ports of a computation."""

    def __init__(self, node: Node, behind: int, *, traced: bool = False) -> None:
        """`traced`: origins that are added carry identities."""
        self._node = node
        self._traced = traced
        self._ports = {p: StreamOutput(node.schemas.get(s)) for p, s in node.outputs.items()}
        self._single = next(iter(self._ports.values())) if len(self._ports) == 1 else None
        self._behind = behind
        self.behind = 0

    def add(self, value: Any, to: str | None, timestamp: int, origin: bytes) -> None:
        """Adds one production."""
        output = self._single if to is None else self._ports.get(to)
        if output is None:
            output = self._find(to)
        cell = packed(value, what="the produced value", depth=NESTED_MAX)
        if output.check is not None:
            output.check(cell)
        output.cells.append(cell)
        output.timestamps.append(timestamp)
        output.origins.append(origin)
        if timestamp < self._behind:
            self.behind += 1

    def _find(self, to: str | None) -> StreamOutput:
        streams = list(self._node.outputs.values())
        if to is not None and to in streams:
            return self._ports[list(self._node.outputs)[streams.index(to)]]
        if not self._ports:
            raise ValueError(f"{self._node.name!r} produces, but has no outputs=")
        names = ", ".join(repr(p or s) for p, s in self._node.outputs.items())
        asked = "produce() needs to=" if to is None else f"there is no output {to!r}"
        raise ValueError(f"{self._node.name!r}: {asked}; outputs are {names}")

    def savepoint(self) -> list[int]:
        """The current position of all ports, for `rewind` and `since`."""
        return [len(output.cells) for output in self._ports.values()]

    def since(self, savepoint: list[int]) -> list[tuple[str, bytes, int]]:
        """(stream, encoded value, timestamp) of each production since `savepoint`."""
        streams = self._node.outputs.values()
        return [
            (stream, output.cells[at], output.timestamps[at])
            for stream, output, start in zip(streams, self._ports.values(), savepoint, strict=True)
            for at in range(start, len(output.cells))
        ]

    def rewind(self, savepoint: list[int]) -> None:
        """Removes all productions since `savepoint`."""
        for output, length in zip(self._ports.values(), savepoint, strict=True):
            del output.cells[length:], output.timestamps[length:], output.origins[length:]

    def number(self, savepoint: list[int], cause: bytes, index: int) -> None:
        """Adds origins, before identities, to a keyless hook's productions since the savepoint."""
        for output, start in zip(self._ports.values(), savepoint, strict=True):
            for at in range(start, len(output.origins)):
                identity = identity_part(output.origins[at]) if self._traced else b""
                output.origins[at] = keyless_origin(cause, index, at - start) + identity

    def add_all(self, other: Outputs) -> None:
        """Adds all productions that another object collected for the same ports."""
        for port, output in other._ports.items():
            mine = self._ports[port]
            mine.cells += output.cells
            mine.timestamps += output.timestamps
            mine.origins += output.origins
        self.behind += other.behind

    def emit(self, emitter: Emitter) -> None:
        """Passes all productions to the emitter."""
        needing = emitter.runtime.topology.needs_origin
        for port, stream in self._node.outputs.items():
            output = self._ports[port]
            if self._traced and stream not in emitter.runtime.topology.needs_identity:
                output.origins = [origin_part(cell) for cell in output.origins]
            if output.cells:
                emitter.emit(stream, output.rows(stream in needing))
        emitter.counters.behind += self.behind


def names_outputs(emitter: Emitter, node: Node) -> bool:
    """Whether some consumer needs the causes of a computation's productions."""
    return not emitter.runtime.topology.needs_identity.isdisjoint(node.outputs.values())


def outputs_of(run: SlotRun) -> Outputs:
    """The object that collects the productions of a slot's hooks."""
    behind = oldest_on_time(run.order.outs.get(run.node.name, 0))
    return Outputs(run.node, behind, traced=names_outputs(run.emitter, run.node))
