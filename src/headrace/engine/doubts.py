"""What is probably a mistake, though it works: told once, as a question."""

from __future__ import annotations

from headrace.model.time import LATEST
from headrace.pipeline.graph import Graph
from headrace.pipeline.topology import Topology
from headrace.plan.ledger import Ledger

_THIS_CENTURY = {"s": (900_000_000, 4_200_000_000), "ms": (900_000_000_000, 4_200_000_000_000)}
"""Unit -> its numbers from about 1998 to 2103. As microseconds they lie in early 1970."""


def state_left_behind(topology: Topology, ledger: Ledger) -> list[str]:
    """State of computations that this pipeline does not have: renamed ones, perhaps."""
    return [
        f"the checkpoint has state of {name!r}, which no computation of this pipeline takes: "
        f"aliases=({name!r},)?"
        for name, slots in sorted(ledger.slots.items())
        if name not in topology.keyed and any(slot.entries for slot in slots.values())
    ]


def units_in_doubt(graph: Graph, ledger: Ledger) -> list[str]:
    """Sources without `unit=` whose newest time would be one of this century in another unit."""
    told = []
    for stream, injector in graph.injectors.items():
        timing = injector.source.timing
        if timing.timestamp is None or timing.unit_us != 1.0:
            continue
        marks = [state.mark.reached for state in ledger.splits.get(stream, {}).values()]
        marks += [ledger.finished[stream].reached] if stream in ledger.finished else []
        newest = max((mark for mark in marks if mark < LATEST), default=0) + timing.lateness_us
        for unit, (low, high) in _THIS_CENTURY.items():
            if low <= newest < high:
                told.append(
                    f"the timestamps of {stream!r} are all in early 1970: is unit= right? "
                    f'(unit="{unit}")'
                )
    return told
