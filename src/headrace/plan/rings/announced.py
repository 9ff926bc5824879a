"""Announced rings: new owners hear of a wanted ring some epochs before it takes effect (J7).

A plan may announce the moves of a later plan. That binds nobody: the tasks of new owners build
pieces of what they will get, and say when they have them. The ring changes when all have said so,
or after a few epochs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import xxhash

from headrace.limits import Limits
from headrace.plan.elastic.load import SlotNote
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.rings.ring import Ring, SlotRecords
from headrace.plan.rings.wanted import Move

Moves = Sequence[Move]


class Announced(msgspec.Struct, frozen=True, array_like=True):
    """An announced ring of one computation."""

    since: int
    """The first epoch whose plan announced these moves."""
    digest: str
    """Of the moves."""


def moves_digest(moves: Moves) -> str:
    """A digest of moves."""
    return xxhash.xxh3_64_hexdigest(msgspec.msgpack.encode(list(moves)))


def announced_after(
    known: Mapping[str, Announced], announced: Mapping[str, Moves], epoch: int
) -> dict[str, Announced]:
    """What is announced after the commit of a plan."""
    found: dict[str, Announced] = {}
    for name, moves in announced.items():
        digest = moves_digest(moves)
        before = known.get(name)
        same = before is not None and before.digest == digest
        found[name] = before if before is not None and same else Announced(epoch, digest)
    return found


def is_due(
    moves: Moves,
    ring: Ring,
    slots: Mapping[int, SlotLedger],
    known: Announced | None,
    ready: Container[int],
    epoch: int,
    limits: Limits,
) -> bool:
    """Whether a ring changes now, in the plan of `epoch`, or is announced first.

    - `known`: what commits have announced of this computation.
    - `ready`: the slots that have said that they have their pieces.

    Where little moves, a prefetch would only delay the change: the size of what moves is taken for
    its share of the hashes of its slots.
    """
    parts = list(leaving(ring, moves))
    size = sum(
        sum(entry.bytes for entry in slots[slot].entries)
        * _width(records)
        / _width(ring.records(slot))
        for _, slot, records in parts
    )
    if size < limits.prefetch_bytes_min or not limits.prefetch_epochs_max:
        return True
    if known is None or known.digest != moves_digest(moves):
        return False
    waited = epoch - known.since
    return waited >= limits.prefetch_epochs_max or all(to in ready for to, _, _ in parts)


def _width(records: SlotRecords) -> float:
    """How much of the space of hashes some intervals have."""
    return float((records.lasts - records.lows).astype(np.float64).sum()) + len(records.lows)


def pieces_in(notes: Iterable[SlotNote], epoch: int) -> dict[str, set[int]]:
    """Computation -> slots that have noted in this epoch that they have their pieces."""
    found: dict[str, set[int]] = {}
    for note in notes:
        name, _, slot = note.label.rpartition("/")
        if note.pieces and note.epoch == epoch and slot.isdigit():
            found.setdefault(name, set()).add(int(slot))
    return found


def leaving(ring: Ring, moves: Moves) -> Iterator[tuple[int, int, SlotRecords]]:
    """(new slot, old slot, intervals) of everything that moves, in order."""
    whole, goes = ring.cut(moves)
    lasts = whole.lasts
    moved = np.flatnonzero(goes != whole.owners)
    pairs = np.unique(np.stack((goes[moved], whole.owners[moved])), axis=1).T.tolist()
    for to, slot in pairs:
        at = moved[(goes[moved] == to) & (whole.owners[moved] == slot)]
        yield to, slot, SlotRecords(whole.lows[at], lasts[at], whole.classes[at])
