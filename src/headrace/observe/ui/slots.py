"""The slots of a computation by their load, and the ring as arcs: what the page draws."""

from __future__ import annotations

import msgspec
import numpy as np

from headrace.log.rings import resolve
from headrace.model.values.keys import HASH_SPACE
from headrace.plan.elastic.figures import ComputationLoad
from headrace.plan.elastic.scale import figure_of
from headrace.plan.ledger import Ledger
from headrace.plan.rings.ring import Ring
from headrace.store.store import Store

ARCS_MAX = 512
"""How many intervals of a ring are drawn; more are shown by samples."""


class SlotHeat(msgspec.Struct, frozen=True, array_like=True):
    """One slot."""

    slot: int
    busy: float | None
    """The part of the time in which it was busy, in the last report; None if it is not known."""
    share: float
    """Its part of the key space."""
    bytes: int
    segments: int
    carried: int = 0
    limit: int | None = None


class RingHeat(msgspec.Struct, frozen=True):
    """The ring of a computation."""

    version: int
    intervals: int
    slots: tuple[SlotHeat, ...]
    arcs: tuple[tuple[float, int], ...]
    """(where it begins, as a part of the key space; slot), in order."""
    reports: int
    """How many reports of load there were since the ring changed."""


def heat_of(store: Store, ledger: Ledger, name: str) -> RingHeat:
    """The slots of a computation, as the last commit left them."""
    ref = ledger.rings[name]
    ring = resolve(store, ref)
    load = ledger.load.of.get(name, ComputationLoad())
    shares = _shares(ring)
    found = []
    for slot, manifest in sorted(ledger.slots[name].items()):
        step, limit = load.busy.get(slot), ledger.limits.get(f"{name}/{slot}")
        found.append(
            SlotHeat(
                slot,
                None if step is None else round(figure_of(step) / 1e6, 4),
                shares.get(slot, 0.0),
                sum({e.segment: e.bytes for e in manifest.entries}.values()),
                len(manifest.entries),
                load.carried.get(slot, 0),
                None if limit is None else limit.records,
            )
        )
    return RingHeat(ref.version, len(ring), tuple(found), _arcs(ring), load.reports)


def _shares(ring: Ring) -> dict[int, float]:
    lengths = (ring.lasts - ring.lows).astype(np.float64) / HASH_SPACE
    sums = np.bincount(ring.owners, weights=lengths)
    return {slot: round(float(sums[slot]), 6) for slot in ring.slots}


def _arcs(ring: Ring) -> tuple[tuple[float, int], ...]:
    if len(ring) <= ARCS_MAX:
        starts = ring.lows.astype(np.float64) / HASH_SPACE
        pairs = zip(starts.tolist(), ring.owners.tolist(), strict=True)
        return tuple((round(at, 6), slot) for at, slot in pairs)
    hashes = np.array([HASH_SPACE * n // ARCS_MAX for n in range(ARCS_MAX)], np.uint64)
    owners = ring.place(hashes).tolist()
    return tuple((round(n / ARCS_MAX, 6), slot) for n, slot in enumerate(owners))
