"""Up to which epoch the state is durable. Pure."""

from __future__ import annotations

from headrace.plan.ledger import Ledger


def durable_epoch(ledger: Ledger) -> int:
    """The last epoch whose state outlives a power loss, with all before it."""
    return ledger.interval.durable(ledger.epoch)
