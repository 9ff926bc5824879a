"""An upper bound on each input watermark of an epoch. Pure.

The timers of a plan may call external systems. If the plan is voided, its successor may not fire
the same timers: an idle split becomes active, or less is read. So the ledger must know up to which
time timers may have fired (`Ledger.next_determinants`). Only the tasks compute the watermarks
themselves, so the plan records an upper bound for the case that it is voided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import InjectorPlan, ReadTask, WatermarkBound
from headrace.plan.ledger import Ledger


def watermark_bounds(
    topology: Topology,
    ledger: Ledger,
    injectors: Mapping[str, InjectorPlan],
    reads: Sequence[Sequence[ReadTask]],
) -> dict[str, WatermarkBound]:
    """For every keyed computation, an upper bound of its input watermark."""
    read = {(each.stream, each.split) for task in reads for each in task}
    caps: dict[str, int | None] = {}
    """Host -> the time that its output watermark cannot pass."""
    origins: dict[str, tuple[str, ...]] = {}
    for name, injector in injectors.items():
        held = [
            mark.bound
            for split, mark in injector.marks.items()
            if mark.bound is not None and (name, split) not in read
        ]
        known = ledger.outs.get(name, BEGINNING)
        caps[name] = max(min(held), known) if held and not injector.final else None
        origins[name] = (name,)
    found: dict[str, WatermarkBound] = {}
    for name in (name for level in topology.levels[1:] for name in level):
        node = topology.keyed[name]
        hosts = topology.feeders(node)
        origins[name] = tuple(dict.fromkeys(o for host in hosts for o in origins[host]))
        if any(given.stream in topology.graph.feedback for given in node.inputs):
            before = hosts or topology.waits_only_for_cycle(node)  # one epoch behind (D6)
            cap = min((ledger.outs.get(host, BEGINNING) for host in before), default=END)
            origins[name] = origins[name] or tuple(injectors)
        elif node.percentile is not None or not all(origins[host] for host in hosts):
            cap, origins[name] = None, ()
        else:
            cap = min((c for host in hosts if (c := caps[host]) is not None), default=None)
        if cap is None:
            floor = max((_farthest(injectors[o]) for o in origins[name]), default=BEGINNING)
            found[name] = WatermarkBound(None, origins[name], floor)
            caps[name] = None
        else:
            found[name] = WatermarkBound(cap)
            known = max(ledger.ins.get(name, BEGINNING), ledger.outs.get(name, BEGINNING))
            caps[name] = max(cap, known)
    return found


def _farthest(injector: InjectorPlan) -> int:
    marks = injector.marks.values()
    return max([injector.newest, *(max(mark.value, mark.newest) for mark in marks)])
