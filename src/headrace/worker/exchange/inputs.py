"""The input of a level's task: checked against the plan, turned into marks and arrivals.

Protocol B3: if a label is missing, arrived with two digests, or with fewer or more blobs than it
sent, the epoch is torn. The slots concerned then report this and run no hooks.

A task has several slots (J10). What is the same for all of them is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow.compute as pc

from headrace.model.values.rows import Rows
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import FEEDBACK, WorkOrder
from headrace.plan.parcel import Parcel
from headrace.plan.units import host_mark, labels_of, saw_digest
from headrace.plan.watermarks import FINAL, Histogram, Mark, feedback_input, merge
from headrace.worker.exchange.controls import ControlRow, EndOfUnit, decode_control
from headrace.worker.exchange.envelope import BLOB, CONTROL, Envelope
from headrace.worker.exchange.outbox import files_for, read_outbox
from headrace.worker.runtime import Runtime
from headrace.worker.slot_run import Arrival


class Torn(Exception):
    """The producers' outputs do not fit together; the epoch must run again."""


class Received:
    """The rows that one task of a level received, for all its slots."""

    def __init__(self, topology: Topology, order: WorkOrder, envelopes: Iterable[Envelope]) -> None:
        self._topology = topology
        self._order = order
        self.ends: dict[str, EndOfUnit] = {}
        """Label -> what its unit said at its end."""
        self._sent: dict[int, dict[str, int]] = {}
        """Slot -> label -> how many blobs the label has sent there, as its control row says."""
        self._came: dict[int, dict[str, int]] = {}
        """Slot -> label -> how many blobs have come."""
        self._blobs: dict[int, dict[tuple[str, int], list[Envelope]]] = {}
        """Slot -> (consumer, number of its input) -> blobs."""
        self._torn = ""
        self._saw: dict[str, str] = {}
        self._marks: dict[str, Mark] = {}
        seen: set[tuple[str, int]] = set()
        for envelope in envelopes:
            header = envelope.header
            if header.kind == CONTROL:
                self._note(decode_control(envelope.body))
            elif header.kind == BLOB and (header.label, header.sequence) not in seen:
                seen.add((header.label, header.sequence))
                blobs = self._blobs.setdefault(header.slot, {})
                blobs.setdefault((header.consumer, header.input), []).append(envelope)
                came = self._came.setdefault(header.slot, {})
                came[header.label] = came.get(header.label, 0) + 1

    def _note(self, row: ControlRow) -> None:
        for end in row.ends:
            known = self.ends.setdefault(end.label, end)
            if known.digest != end.digest:
                self._torn = f"{end.label} made two different outputs"
        for number, slot, blobs in row.sent:
            self._sent.setdefault(slot, {})[row.ends[number].label] = blobs

    def check(self, node: Node, slot: int) -> str:
        """Checks that all input of a slot is there; returns the digest of what it saw (J11)."""
        if self._torn:
            raise Torn(self._torn)
        saw = self._saw.get(node.name)
        if saw is None:
            saw = self._saw[node.name] = saw_digest(self._outputs(node))
        self._check_blobs(self._sent.get(slot, {}), self._came.get(slot, {}), slot)
        return saw

    def _check_blobs(self, sent: dict[str, int], came: dict[str, int], slot: int) -> None:
        if sent == came:
            return
        label = next(label for label in {**sent, **came} if sent.get(label) != came.get(label))
        raise Torn(
            f"{label} sent {sent.get(label, 0)} blobs to slot {slot}, {came.get(label, 0)} came"
        )

    def _outputs(self, node: Node) -> Iterator[tuple[str, str]]:
        """(label, digest) of every output that a computation consumes."""
        for host in self._topology.feeders(node):
            for label in labels_of(self._topology, self._order, host):
                end = self.ends.get(label)
                if end is None:
                    raise Torn(f"{label} is in no control row")
                yield label, end.digest

    def free(self, slot: int) -> None:
        """Forgets the blobs of a slot that has run."""
        self._blobs.pop(slot, None)

    def arrivals(self, runtime: Runtime, node: Node, slot: int) -> list[Arrival]:
        """The records of each input, in the order of inputs. Feedback is read from the outbox."""
        order = self._order
        found: list[Arrival] = []
        blobs = self._blobs.get(slot, {})
        schemas = runtime.topology.graph.schemas
        for index, given in enumerate(node.inputs):
            if given.stream in runtime.topology.graph.feedback:
                parcels = _feedback(runtime, order, node, given.stream, slot)
                if parcels:
                    found.append(Arrival(index, given.stream, Parcel.merge(parcels), True))
                continue
            envelopes = sorted(
                blobs.get((node.name, index), ()),
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

    def bytes_of(self, node: Node, slot: int) -> int:
        """How many bytes of records came for a slot of a computation, not counting feedback."""
        blobs = self._blobs.get(slot, {}).items()
        return sum(len(e.body) for (name, _), found in blobs if name == node.name for e in found)

    def input_mark(self, node: Node) -> Mark:
        """in(e) of a computation, as a mark; the same for all its slots."""
        found = self._marks.get(node.name)
        if found is None:
            found = self._marks[node.name] = self._input_mark(node)
        return found

    def _input_mark(self, node: Node) -> Mark:
        """D1, D6, D13."""
        topology, order = self._topology, self._order
        before = order.ins.get(node.name, 0)
        feedback = [i for i in node.inputs if i.stream in topology.graph.feedback]
        if feedback:
            hosts = topology.feeders(node) or topology.waits_only_for_cycle(node)
            files = [f for f in order.outbox.get(node.name, ()) if f.kind == FEEDBACK]
            oldest = min((f.oldest for f in files), default=None)
            value = feedback_input(before, [order.outs.get(h, 0) for h in hosts], oldest)
            return Mark(value, value)
        marks = [self._output_mark(host) for host in topology.feeders(node)]
        mark = merge(marks).at_least(before)
        if node.percentile is None or mark == FINAL:
            return mark
        histogram = Histogram()
        for end in self.ends.values():
            if node.name in end.histograms:
                histogram.merge(end.histograms[node.name])
        for file in order.outbox.get(node.name, ()):
            if file.histogram is not None:  # carried records count too (P8)
                histogram.merge(file.histogram)
        estimate = histogram.quantile(1 - node.percentile)
        value = max(mark.value, estimate or 0)
        return Mark(value, value)

    def _output_mark(self, host: str) -> Mark:
        """out(e) of a host, from the control rows of its tasks."""
        marks = {end.label: end.mark for end in self.ends.values() if end.host == host}
        return host_mark(self._topology, self._order, host, marks)


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
    before = order.ins.get(node.name, 0)
    found: list[Parcel] = []
    for file in files_for(order, node.name, slot):
        if file.stream != stream or file.kind != FEEDBACK:
            continue
        for parcel in read_outbox(runtime.store, order, file, slot):
            rows = parcel.rows
            # Feedback is never late (D6). After the end no record is late, so times stay (D2).
            times = rows.timestamps if before == END else np.maximum(rows.timestamps, before)
            rows = Rows(times, columns=rows.columns, packed=rows.packed, origins=rows.origins)
            found.append(Parcel(parcel.keys, parcel.codes, rows))
    return found
