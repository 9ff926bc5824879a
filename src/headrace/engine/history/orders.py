"""The work order of a plan: of the open one, or of a past epoch."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.epoch import Plan, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.rings.changes import RingChange


def work_order_of(
    ledger: Ledger,
    plan: Plan,
    changes: Mapping[str, RingChange],
    checkpoint: str,
    answers: dict[str, bytes] | None = None,
) -> WorkOrder:
    """What every task must know: the plan, and the state that it starts from.

    `checkpoint` is the id of the checkpoint; `changes` are those that the plan makes to rings;
    `answers` are those that a past epoch got from external systems.
    """
    return WorkOrder(
        plan=plan,
        checkpoint=checkpoint,
        ins=ledger.ins,
        outs=ledger.outs,
        rings=ledger.refs(plan, changes),
        bases=ledger.bases(plan, changes),
        came={name: change.came for name, change in changes.items()},
        outbox=ledger.outbox,
        answers=answers,
        held_from=ledger.interval.durable(ledger.epoch) + 1,
    )
