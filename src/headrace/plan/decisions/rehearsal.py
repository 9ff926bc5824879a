"""Empty epochs that a standby runs over the state of the last commit, to warm up. Pure.

Spark plans and compiles what it will need, Python workers start and unpickle the pipeline, and
slots are opened: a driver that takes over would otherwise do that before its first epoch. A
rehearsal has no records and no feedback, its watermarks stay where they are, and its wall clock is
zero. So no hook runs, no output is made, and nothing is written.
"""

from __future__ import annotations

from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import InjectorPlan, Plan, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.rings.ring import Ring
from headrace.plan.watermarks import Mark

_STILL = Mark(BEGINNING, BEGINNING)


def rehearsal(
    topology: Topology,
    ledger: Ledger,
    checkpoint: str,
    rings: dict[str, Ring],
    *,
    tasks: int,
    short: bool,
) -> WorkOrder | None:
    """An empty epoch after the last known one; None if the pipeline has ended."""
    if any(mark == END for mark in ledger.ins.values()):
        return None
    plan = Plan(
        epoch=ledger.epoch + 1,
        wall=0,
        seed=0,
        fingerprint="",
        reads=[[] for _ in range(tasks)],
        injectors={
            name: InjectorPlan({"": _STILL}, BEGINNING) for name in topology.graph.injectors
        },
        rings=rings,
        short=short,
        tasks=tasks,
    )
    # Without the committed output watermarks no input watermark can rise, not even in loops.
    return WorkOrder(plan, checkpoint, ledger.ins, {}, ledger.bases(rings), {})
