"""Empty epochs that a standby runs over the state of the last commit, to warm up. Pure.

Spark plans and compiles what it will need, Python workers start and unpickle the pipeline, and
slots are opened: a driver that takes over would otherwise do that before its first epoch. A
rehearsal has no records and no feedback, its watermarks stay where they are, and its wall clock is
zero. So no hook runs, no output is made, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import InjectorPlan, Plan, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.rings.refs import EVEN
from headrace.plan.watermarks import Mark

REHEARSALS_MIN, REHEARSALS_MAX = 6, 40
"""How many rehearsals a candidate makes before it asks to take over."""
REHEARSING_S_MAX = 20.0
"""A slow machine is not rehearsed on for longer."""
COMPARED = 3
"""The best of so many rehearsals is compared with the best of those before."""
GAIN = 0.9
"""While rehearsals still become this much faster, the JVM is compiling what they use."""

_STILL = Mark(BEGINNING, BEGINNING)


def is_warm(seconds: Sequence[float]) -> bool:
    """Whether another rehearsal would gain little, after rehearsals that took so long."""
    if len(seconds) >= REHEARSALS_MAX:
        return True
    if len(seconds) >= COMPARED and sum(seconds) >= REHEARSING_S_MAX:
        return True
    if len(seconds) < REHEARSALS_MIN:
        return False
    return min(seconds[-COMPARED:]) > GAIN * min(seconds[:-COMPARED])


def rehearsal(
    topology: Topology,
    ledger: Ledger,
    checkpoint: str,
    slots: Mapping[str, int],
    *,
    tasks: int,
    short: bool,
) -> WorkOrder | None:
    """An empty epoch after the last known one; None if the pipeline has ended.

    `slots` says how many slots a computation without a ring would have.
    """
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
        rings={name: 0 for name in topology.keyed},
        ring_bases={
            name: f"{EVEN}{slots[name]}" for name in topology.keyed if name not in ledger.rings
        },
        short=short,
        tasks=tasks,
    )
    # Without the committed output watermarks no input watermark can rise, not even in loops.
    bases, rings = ledger.bases(plan, {}), ledger.refs(plan, {})
    return WorkOrder(plan, checkpoint, ledger.ins, {}, bases, {}, rings)
