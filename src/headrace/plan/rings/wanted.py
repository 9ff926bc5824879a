"""A ring that is wanted: what a request, the balancer or the scaler asks of a later plan.

A wanted ring stands in the ledger. It binds no epoch: the next plan that can carries it out, the
commit of that plan clears it, and a void leaves it wanted (J1).
"""

from __future__ import annotations

import msgspec


class Move(msgspec.Struct, frozen=True, array_like=True):
    """The hashes from `low` to `last`, both included, go to slot `to`."""

    low: int
    last: int
    to: int


class Wanted(msgspec.Struct, frozen=True):
    """A wanted ring of one computation: a number of slots, or explicit moves."""

    slots: int = 0
    """How many slots are wanted; 0 if `moves` say what is wanted."""
    moves: tuple[Move, ...] = ()
    expects: int = 0
    """The version of the ring that `moves` were computed from; under another one they lapse."""
    reason: str = ""
    by: str = ""
    """Who wants it: a request, the balancer, the scaler, a recovery."""
