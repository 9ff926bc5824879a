"""Which input an at-most-once pipeline skips after a crash. Pure."""

from __future__ import annotations

import msgspec

from headrace.pipeline.graph.graph import AT_MOST_ONCE, Graph
from headrace.plan.entries import VoidBody
from headrace.plan.epoch import Plan, SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.watermarks import Mark

WHY = "at-most-once: a driver died with this plan open, so its input is skipped"


def skips(graph: Graph) -> bool:
    """Whether a plan that a crash left open must not run again."""
    return graph.guarantee == AT_MOST_ONCE


def skipping(graph: Graph, ledger: Ledger) -> VoidBody | None:
    """The void of an open plan that a new driver must not run; None if it may run the plan.

    Timers and feedback are state and are not skipped: none of them has taken effect.
    """
    plan = ledger.open_plan
    if not skips(graph) or plan is None:
        return None
    skipped = passed_over(plan)
    for stream, splits in skipped.items():
        known = ledger.splits.get(stream, {})
        skipped[stream] = {name: _known(known.get(name), state) for name, state in splits.items()}
    return VoidBody(plan.epoch, WHY, skipped, plan.records)


def passed_over(plan: Plan) -> dict[str, dict[str, SplitState]]:
    """The splits of a plan after its ranges count as read. Marks do not move."""
    found: dict[str, dict[str, SplitState]] = {}
    for read in (read for task in plan.reads for read in task):
        splits = found.setdefault(read.stream, {})
        before = splits.get(read.split)
        end = max(read.range.end, before.position if before else read.range.end)
        finished = read.range.last or (before is not None and before.finished)
        mark = Mark(None, read.mark.newest) if finished else read.mark
        splits[read.split] = SplitState(end, mark, finished, plan.wall)
    return found


def _known(before: SplitState | None, now: SplitState) -> SplitState:
    """A split after a skipped range: what is known of its file is still true."""
    if before is None or not before.seen:
        return now
    seen = dict(before.seen)
    if (own := seen.get("")) is not None:
        # The size of a generator is the number of values read.
        size = now.position if own.size == own.read else own.size
        seen[""] = msgspec.structs.replace(
            own, size=size, digest="", tail="", read=now.position, whole=now.finished
        )
    return msgspec.structs.replace(now, seen=seen)
