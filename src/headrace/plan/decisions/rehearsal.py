"""Epochs in which nothing happens, run by a standby over the state as the leader left it. Pure.

Spark plans and compiles what it will need, Python workers start and unpickle the pipeline, and
slots are opened: what a driver that takes over would otherwise do before its first epoch. No
records, no feedback, watermarks that stay where they are and a wall clock at zero: so no hook
runs, nothing is made, and nothing is written.
"""

from __future__ import annotations

from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import InjectorPlan, Plan, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.ring import Ring
from headrace.plan.watermarks import Mark

_STILL = Mark(BEGINNING, BEGINNING)


def rehearsal(
    topology: Topology,
    ledger: Ledger,
    checkpoint: str,
    rings: dict[str, Ring],
    *,
    readers: int,
    short: bool,
) -> WorkOrder | None:
    """An empty epoch after the last one that is known; None where the pipeline has ended."""
    if any(mark == END for mark in ledger.ins.values()):
        return None
    plan = Plan(
        epoch=ledger.epoch + 1,
        wall=0,
        seed=0,
        fingerprint="",
        reads=[[] for _ in range(readers)],
        injectors={
            name: InjectorPlan({"": _STILL}, BEGINNING) for name in topology.graph.injectors
        },
        rings=rings,
        short=short,
    )
    # Without the committed output watermarks no input watermark can rise, in loops either.
    return WorkOrder(plan, checkpoint, ledger.ins, {}, ledger.bases(rings), {})
