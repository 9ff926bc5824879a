"""What a commit says of load and of rings, applied to a ledger that has the commit (K3, K4)."""

from __future__ import annotations

from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.figures import LoadFigures
from headrace.plan.ledger import Ledger


def fold_report(ledger: Ledger, load: LoadFigures | None, decided: Decided | None) -> None:
    """Applies a report, and then what was decided from the ledger that has it."""
    if load is not None:
        ledger.load = ledger.load.reported(load, ledger.rings)
    if decided is not None:
        ledger.load = ledger.load.decided(decided)
        ledger.wanted = {**ledger.wanted, **decided.wanted}
        ledger.tasks = decided.tasks or ledger.tasks
