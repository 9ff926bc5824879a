"""The limit of a slot that is overloaded, as the ledger keeps it; see `decisions/stragglers`."""

from __future__ import annotations

import msgspec


class SlotLimit(msgspec.Struct, frozen=True, array_like=True):
    """How many records a slot processes in an epoch, and for how long that was enough."""

    records: int
    calm: int = 0
    """Commits in a row in which its whole input was below the limit."""
