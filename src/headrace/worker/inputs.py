"""What a level's task received: checked against the plan, turned into marks and arrivals.

Protocol B3: a label that is missing, or came with two digests, tears the epoch;
the task then reports that instead of running.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow.compute as pc

from headrace.log import paths
from headrace.model.rows import Rows
from headrace.model.time import END
from headrace.pipeline.graph import Node
from headrace.pipeline.topology import Topology
from headrace.plan.epoch import Control, Plan, TaskPlan
from headrace.plan.parcel import Parcel, ipc_batch
from headrace.plan.watermarks import FINAL, UNBOUNDED, Histogram, Mark, feedback_input, merge
from headrace.state.segment import verify
from headrace.worker.arrivals import Arrival
from headrace.worker.envelope import BLOB, CONTROL, Envelope
from headrace.worker.runtime import Runtime

_control_decoder = msgspec.msgpack.Decoder(Control)


class Torn(Exception):
    """The producers' outputs do not fit together; the epoch must run again."""


def slot_label(computation: str, slot: int) -> str:
    """The label of a computation's slot."""
    return f"{computation}/{slot}"


def labels_of(topology: Topology, plan: Plan, host: str) -> list[str]:
    """The labels of all units of work of a host in this epoch."""
    if host in topology.graph.injectors:
        return [r.label for task in plan.reads for r in task if r.stream == host]
    return [slot_label(host, slot) for slot in plan.rings[host].slots]


class Received:
    """The rows that reached one task."""

    def __init__(self, envelopes: Iterable[Envelope]) -> None:
        self.controls: dict[str, Control] = {}
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
        """Every label is here, once, with all its blobs; gives the digests seen."""
        saw: dict[str, str] = {}
        for label in labels:
            control = self.controls.get(label)
            if control is None:
                raise Torn(f"nothing was heard of {label}")
            if self._counts.get(label, 0) != control.blobs:
                raise Torn(f"{label} sent {control.blobs} blobs, {self._counts.get(label, 0)} came")
            saw[label] = control.digest
        return saw

    def arrivals(self, runtime: Runtime, task: TaskPlan, node: Node, slot: int) -> list[Arrival]:
        """The records of each input, in the order of inputs; feedback comes from the outbox."""
        found: list[Arrival] = []
        schemas = runtime.topology.graph.schemas
        for index, given in enumerate(node.inputs):
            if given.stream in runtime.topology.graph.feedback:
                parcels = _feedback(runtime, task, node, given.stream, slot)
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

    def input_mark(self, topology: Topology, task: TaskPlan, node: Node) -> Mark:
        """in(e) of a computation, as a mark (D1, D6, D13)."""
        before = task.ins.get(node.name, 0)
        feedback = [i for i in node.inputs if i.stream in topology.graph.feedback]
        if feedback:
            hosts = topology.feeders(node) or topology.waits_only_for_cycle(node)
            oldest = min((f.oldest for f in task.outbox.get(node.name, ())), default=None)
            value = feedback_input(before, [task.outs.get(h, 0) for h in hosts], oldest)
            return Mark(value, value)
        marks = [self.host_mark(topology, task, host) for host in topology.feeders(node)]
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

    def host_mark(self, topology: Topology, task: TaskPlan, host: str) -> Mark:
        """out(e) of a host, from what its tasks sent."""
        marks = {c.label: c.mark for c in self.controls.values() if c.host == host}
        return host_mark(topology, task, host, marks)


def _by_origin(parcel: Parcel) -> Parcel:
    """The records in the order of where they come from: each split's in its own (B6)."""
    if parcel.rows.origins is None:
        return parcel  # they were combined, and have no order
    order = pc.sort_indices(parcel.rows.origins).to_numpy()
    return Parcel(parcel.keys, parcel.codes[order], parcel.rows.take(order), parcel.key_column)


def host_mark(topology: Topology, task: TaskPlan, host: str, marks: dict[str, Mark]) -> Mark:
    """out(e) of a host from its tasks' marks: max(out(e-1), min over all that bounds it)."""
    committed = task.outs.get(host, 0)
    if host not in topology.graph.injectors:
        return merge(marks.values()).at_least(committed)
    injector = task.plan.injectors[host]
    if injector.final:
        return FINAL
    splits = dict(injector.marks)
    reads = [r for tasks in task.plan.reads for r in tasks if r.stream == host]
    for read in reads:
        if read.label in marks:
            splits[read.split] = _advance(splits.get(read.split), marks[read.label])
    for read in reads:
        if read.range.last:  # whichever of its parts came last: the whole split has ended
            splits[read.split] = Mark(None, splits.get(read.split, UNBOUNDED).reached)
    return merge([*splits.values(), Mark(None, injector.reached)]).at_least(committed)


def _advance(before: Mark | None, after: Mark) -> Mark:
    """A split's mark after one of its parts: parts of one split only push it forward."""
    reached = max(after.reached, before.reached if before else 0)
    bounds = [m.bound for m in (before, after) if m is not None and m.bound is not None]
    return Mark(max(bounds, default=None), reached)


def _feedback(runtime: Runtime, task: TaskPlan, node: Node, stream: str, slot: int) -> list[Parcel]:
    """Feedback records for this slot, as the previous epoch left them in the outbox."""
    ring = task.plan.rings[node.name]
    before = task.ins.get(node.name, 0)
    found: list[Parcel] = []
    for file in sorted(task.outbox.get(node.name, ()), key=lambda f: f.label):
        if file.stream != stream:
            continue
        name = f"{paths.OUTBOX}/{file.name}"
        data = runtime.store.read(name)
        verify(name, data)
        for blob in ipc_batch(data).column(0).to_pylist():
            parcel = Parcel.read(blob)
            mine = np.flatnonzero((ring.place(parcel.hashes()) == slot)[parcel.codes])
            if len(mine):
                rows = parcel.rows.take(mine)
                # Feedback is never late (D6). After the end nothing is, so times can stay (D2).
                times = rows.timestamps if before == END else np.maximum(rows.timestamps, before)
                rows = Rows(times, columns=rows.columns, packed=rows.packed, origins=rows.origins)
                found.append(Parcel(parcel.keys, parcel.codes[mine], rows))
    return found
