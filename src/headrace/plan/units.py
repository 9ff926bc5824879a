"""Units of work: the labels that a plan gives them, and the sum of their marks.

A unit is one range of a source, or one slot of a computation. Each has one label in an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import xxhash

from headrace.limits import Limits
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import WorkOrder
from headrace.plan.watermarks import FINAL, UNBOUNDED, Mark, merge

TORN = "Torn"
"""The error that a unit reports if its inputs do not fit together (B3)."""


def slot_label(computation: str, slot: int) -> str:
    """The label of a computation's slot."""
    return f"{computation}/{slot}"


def labels_of(topology: Topology, order: WorkOrder, host: str) -> list[str]:
    """The labels of all units of work of a host in this epoch."""
    if host in topology.graph.injectors:
        return [r.label for task in order.plan.reads for r in task if r.stream == host]
    return [slot_label(host, slot) for slot in slots_of(order, host)]


def runs(order: WorkOrder, label: str) -> bool:
    """Whether a unit of work runs: all do, except in a repair (M5)."""
    return order.repairs is None or label in order.repairs


def slots_of(order: WorkOrder, computation: str) -> list[int]:
    """The slots of a computation in this epoch, in order."""
    return sorted(order.bases[computation])


def slots_of_task(order: WorkOrder, computation: str, task: int) -> list[int]:
    """The slots of a computation that are dealt to one task, in order (J10)."""
    tasks = order.plan.tasks
    return sorted(slot for slot in order.bases[computation] if slot % tasks == task)


def saw_digest(outputs: Iterable[tuple[str, str]]) -> str:
    """What a consumer saw, as one digest over (label, digest) of each output (J11)."""
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(sorted(outputs)))


def ride_bytes(order: WorkOrder, limits: Limits) -> int:
    """How many bytes of one unit's output may ride in the commit (M1).

    It depends on the work order alone, so that every attempt decides alike.
    """
    units = sum(map(len, order.plan.reads)) + sum(map(len, order.bases.values()))
    return min(limits.ride_bytes_max, limits.ride_total_max // max(units, 1))


def host_mark(topology: Topology, order: WorkOrder, host: str, marks: dict[str, Mark]) -> Mark:
    """out(e) of a host from its tasks' marks: max(out(e-1), min over all that bounds it)."""
    committed = order.outs.get(host, 0)
    if host not in topology.graph.injectors:
        return merge(marks.values()).at_least(committed)
    injector = order.plan.injectors[host]
    if injector.final:
        return FINAL
    splits = dict(injector.marks)
    reads = [r for tasks in order.plan.reads for r in tasks if r.stream == host]
    for read in reads:
        if read.label in marks:
            splits[read.split] = _advance(splits.get(read.split), marks[read.label])
    for read in reads:
        if read.range.last:  # whichever part was last: the whole split has ended
            splits[read.split] = Mark(None, splits.get(read.split, UNBOUNDED).newest)
    return merge([*splits.values(), Mark(None, injector.newest)]).at_least(committed)


def _advance(before: Mark | None, after: Mark) -> Mark:
    """A split's mark after one of its parts: parts of one split only move it forward."""
    newest = max(after.newest, before.newest if before else 0)
    bounds = [m.bound for m in (before, after) if m is not None and m.bound is not None]
    return Mark(max(bounds, default=None), newest)
