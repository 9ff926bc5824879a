"""Timed cells by index, and the pieces of them that a new owner has prefetched (J7)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headrace.model.values.keys import hash_key
from headrace.plan.rings.chains import epochs_of, last_chain, last_epoch
from headrace.plan.rings.classes import Came, SegmentSlice, SlotBase
from headrace.plan.rings.ring import SlotRecords
from headrace.state.segment import HOLD, TIMER, WAITING
from headrace.state.times.orders import INDEXES
from headrace.state.view import CellId, SlotView


def index_name(kind: int, field: str) -> str:
    """The name of the index to which a timed cell belongs."""
    return field if kind == TIMER else {HOLD: "hold", WAITING: "waiting"}[kind]


Cells = dict[str, dict[CellId, tuple[int, int]]]
"""Index -> its cells."""


class PrefetchedPiece:
    """Cells that a new owner has prefetched, as of an epoch of the old one (J7)."""

    __slots__ = ("cells", "chain", "epoch", "records", "slot", "where")

    def __init__(
        self, where: tuple[str, str, str], slot: int, base: SlotBase, records: SlotRecords
    ) -> None:
        self.where, self.slot, self.records = where, slot, records
        self.epoch, self.chain = last_epoch(base.chains), last_chain(base.chains)
        self.cells: Cells | None = None
        """None if they are too many for memory: then the piece only has the segments open."""

    def serves(self, came: Came, entries: Iterable[SegmentSlice], records: SlotRecords) -> bool:
        """Whether it may be used for a class that came, with these intervals.

        It must be of the ownership that the class came from, and no deletion since may have been
        dropped: catching up could not see it.
        """
        return (
            self.cells is not None
            and came.slot == self.slot
            and self.chain in epochs_of(came.chains)
            and came.since <= self.epoch
            and not any(e.bottom and e.of == came.id and e.last_epoch > self.epoch for e in entries)
            and covers(self.records, records)
        )

    def is_of(self, base: SlotBase, records: SlotRecords) -> bool:
        """Whether it has these intervals of a slot that is at `base` now, and can be caught up."""
        return (
            self.chain in epochs_of(base.chains)
            and not any(e.bottom and e.last_epoch > self.epoch for e in base.entries)
            and covers(self.records, records)
        )


def built_cells(view: SlotView) -> Cells:
    """The live timed cells of a view."""
    cells: Cells = {name: {} for name in INDEXES}
    seen: set[tuple[int, CellId]] = set()
    for kind, cell, timed in view.timed():
        if (kind, cell) in seen:
            continue
        seen.add((kind, cell))
        if timed is not None:
            cells[index_name(kind, cell[1])][cell] = timed
    return cells


def cell_changes(newer: SlotView) -> dict[str, dict[CellId, tuple[int, int] | None]]:
    """The timed cells that newer entries set or remove, by index."""
    changes: dict[str, dict[CellId, tuple[int, int] | None]] = {n: {} for n in INDEXES}
    for kind, cell, timed in newer.timed():
        changes[index_name(kind, cell[1])].setdefault(cell, timed)
    return changes


def keys_outside(keys: list[bytes], records: SlotRecords) -> list[bytes]:
    """The keys whose hashes lie outside of these intervals."""
    hashes = np.fromiter(map(hash_key, keys), np.uint64, len(keys))
    return [keys[i] for i in np.flatnonzero(~records.have(hashes)).tolist()]


def cells_inside(cells: Cells, records: SlotRecords) -> Cells:
    """The cells of all keys inside these intervals."""
    found: Cells = {}
    for name, of_name in cells.items():
        outside = set(keys_outside(list({cell[0] for cell in of_name}), records))
        found[name] = {cell: timed for cell, timed in of_name.items() if cell[0] not in outside}
    return found


def covers(outer: SlotRecords, inner: SlotRecords) -> bool:
    """Whether intervals contain all of others. Neighbours of one slot may be one interval there."""
    if not len(inner.lows):
        return True
    if not len(outer.lows):
        return False
    begins = np.concatenate(([True], outer.lows[1:] - np.uint64(1) != outer.lasts[:-1]))
    lows, lasts = outer.lows[begins], outer.lasts[np.append(begins[1:], True)]
    at = np.searchsorted(lows, inner.lows, side="right") - 1
    return bool(((at >= 0) & (inner.lasts <= lasts[np.maximum(at, 0)])).all())
