"""The input of a level's task: checked against the plan, turned into marks and arrivals.

Protocol B3: if a label is missing, or arrived with two digests, the epoch is torn. The task then
reports this and runs no hooks.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow.compute as pc

from headrace.log import paths
from headrace.log.content import map_named, verify
from headrace.model.values.arrow import ipc_batch
from headrace.model.values.rows import Rows
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import EndOfInput, WorkOrder
from headrace.plan.parcel import Parcel
from headrace.plan.units import host_mark
from headrace.plan.watermarks import FINAL, Histogram, Mark, feedback_input, merge
from headrace.worker.exchange.envelope import BLOB, CONTROL, Envelope
from headrace.worker.runtime import Runtime
from headrace.worker.slot_run import Arrival

_control_decoder = msgspec.msgpack.Decoder(EndOfInput)


class Torn(Exception):
    """The producers' outputs do not fit together; the epoch must run again."""


class Received:
    """The rows that one task of a level received."""

    def __init__(self, envelopes: Iterable[Envelope]) -> None:
        self.controls: dict[str, EndOfInput] = {}
        self._blobs: dict[tuple[str, int], tuple[Envelope, ...]] = {}
        self._seen: set[tuple[str, int]] = set()
        self._counts: dict[str, int] = {}
        for envelope in envelopes:
            header = envelope.header
            if header.kind == CONTROL:
                control = _control_decoder.decode(envelope.body)
                known = self.controls.setdefault(header.label, control)
                if known.digest != control.digest:
                    raise Torn(f"{header.label} made two different outputs")
            elif header.kind == BLOB and (header.label, header.sequence) not in self._seen:
                self._seen.add((header.label, header.sequence))
                place = (header.consumer, header.input)
                self._blobs[place] = (*self._blobs.get(place, ()), envelope)
                self._counts[header.label] = self._counts.get(header.label, 0) + 1

    def check(self, labels: Iterable[str]) -> dict[str, str]:
        """Checks that every label arrived with all its blobs; returns the digests by label."""
        saw: dict[str, str] = {}
        for label in labels:
            control = self.controls.get(label)
            if control is None:
                raise Torn(f"{label} sent no control row")
            if self._counts.get(label, 0) != control.blobs:
                raise Torn(f"{label} sent {control.blobs} blobs, {self._counts.get(label, 0)} came")
            saw[label] = control.digest
        return saw

    def arrivals(self, runtime: Runtime, order: WorkOrder, node: Node, slot: int) -> list[Arrival]:
        """The records of each input, in the order of inputs. Feedback is read from the outbox."""
        found: list[Arrival] = []
        schemas = runtime.topology.graph.schemas
        for index, given in enumerate(node.inputs):
            if given.stream in runtime.topology.graph.feedback:
                parcels = _feedback(runtime, order, node, given.stream, slot)
                if parcels:
                    found.append(Arrival(index, given.stream, Parcel.merge(parcels), True))
                continue
            envelopes = sorted(
                self._blobs.get((node.name, index), ()),
                key=lambda e: (e.header.label, e.header.sequence),
            )
            if envelopes:
                parcel = Parcel.merge([Parcel.read(e.body) for e in envelopes])
                labels = {e.header.label for e in envelopes}
                if given.stream in runtime.topology.merged and len(labels) > 1:
                    parcel = _by_origin(parcel)
                found.append(Arrival(index, given.stream, parcel))
        for arrival in found:
            arrival.parcel.rows.schema = schemas.get(arrival.stream)
        return found

    def input_mark(self, topology: Topology, order: WorkOrder, node: Node) -> Mark:
        """in(e) of a computation, as a mark (D1, D6, D13)."""
        before = order.ins.get(node.name, 0)
        feedback = [i for i in node.inputs if i.stream in topology.graph.feedback]
        if feedback:
            hosts = topology.feeders(node) or topology.waits_only_for_cycle(node)
            oldest = min((f.oldest for f in order.outbox.get(node.name, ())), default=None)
            value = feedback_input(before, [order.outs.get(h, 0) for h in hosts], oldest)
            return Mark(value, value)
        marks = [self._output_mark(topology, order, host) for host in topology.feeders(node)]
        mark = merge(marks).at_least(before)
        if node.percentile is None or mark == FINAL:
            return mark
        histogram = Histogram()
        for control in self.controls.values():
            if node.name in control.histograms:
                histogram.merge(control.histograms[node.name])
        estimate = histogram.quantile(1 - node.percentile)
        value = max(mark.value, estimate or 0)
        return Mark(value, value)

    def _output_mark(self, topology: Topology, order: WorkOrder, host: str) -> Mark:
        """out(e) of a host, from the control rows of its tasks."""
        marks = {c.label: c.mark for c in self.controls.values() if c.host == host}
        return host_mark(topology, order, host, marks)


def _by_origin(parcel: Parcel) -> Parcel:
    """The records sorted by origin. Records of one split keep their order (B6)."""
    if parcel.rows.origins is None:
        return parcel  # combined rows have no order
    order = pc.sort_indices(parcel.rows.origins).to_numpy()
    return Parcel(parcel.keys, parcel.codes[order], parcel.rows.take(order), parcel.key_column)


def _feedback(
    runtime: Runtime, order: WorkOrder, node: Node, stream: str, slot: int
) -> list[Parcel]:
    """The feedback records for this slot that the previous epoch put into the outbox."""
    ring = order.plan.rings[node.name]
    before = order.ins.get(node.name, 0)
    found: list[Parcel] = []
    for file in sorted(order.outbox.get(node.name, ()), key=lambda f: f.label):
        if file.stream != stream:
            continue
        name = f"{paths.OUTBOX}/{file.name}"
        data = map_named(runtime.store, name, file.at)
        verify(name, data)
        for blob in ipc_batch(data).column(0).to_pylist():
            parcel = Parcel.read(blob)
            mine = np.flatnonzero((ring.place(parcel.hashes()) == slot)[parcel.codes])
            if len(mine):
                rows = parcel.rows.take(mine)
                # Feedback is never late (D6). After the end no record is late, so times stay (D2).
                times = rows.timestamps if before == END else np.maximum(rows.timestamps, before)
                rows = Rows(times, columns=rows.columns, packed=rows.packed, origins=rows.origins)
                found.append(Parcel(parcel.keys, parcel.codes[mine], rows))
    return found
