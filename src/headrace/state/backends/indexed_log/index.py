"""The index of an indexed log: of each cell, where its newest version lies.

It is a few sorted tables, the newest last, like the levels of a merge tree: what a batch appends
is a small table, and tables are merged as they grow. The oldest one may be a file that is mapped
into memory, so opening it does not depend on its size. A newer table hides what an older one has.

Rows are found by the hash of a key. Which cell a row is, the record itself says; whoever reads it
compares its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from headrace.state.backends.indexed_log.records import Array, IndexRows

Positions = np.ndarray[Any, np.dtype[np.int64]]

_WALK_MAX = 16
"""Up to so many cells of one hash are looked at in turn; more are searched."""


class LogIndex:
    """Sorted tables of rows, and the names that their numbers stand for."""

    def __init__(self) -> None:
        self.tables: list[IndexRows] = []
        self.computations: list[str] = []
        self.files: list[str] = []

    @property
    def rows(self) -> int:
        """How many rows its tables have; hidden ones count too."""
        return sum(table.number for table in self.tables)

    def number_of(self, names: list[str], name: str) -> int:
        """The number of a computation or a file; a new one is added."""
        try:
            return names.index(name)
        except ValueError:
            names.append(name)
            return len(names) - 1

    def add(self, parts: Sequence[IndexRows]) -> None:
        """Adds tables, the newest last; they hide what is there."""
        self.tables += [part for part in parts if part.number]
        while len(self.tables) > 1 and 2 * self.tables[-1].number >= self.tables[-2].number:
            newer = self.tables.pop()
            self.tables[-1] = merged(self.tables[-1], newer)

    def compact(self, floor: int) -> None:
        """Makes one table of all, without tombstones up to the floor."""
        while len(self.tables) > 1:
            newer = self.tables.pop()
            self.tables[-1] = merged(self.tables[-1], newer)
        if self.tables:
            whole = self.tables[0]
            gone = (whole.dead == 1) & (whole.stamp <= np.uint64(floor))
            self.tables = [whole.take(~gone)] if gone.any() else [whole]

    def stamps(self, hashes: Array, places: Array) -> tuple[Array, Array]:
        """Of each cell: whether it is there, and its stamp."""
        there = np.zeros(len(hashes), np.bool_)
        stamps = np.zeros(len(hashes), np.uint64)
        for table in reversed(self.tables):
            rows = positions(table, hashes, places)
            new = (rows >= 0) & ~there
            stamps[new] = table.stamp[rows[new]]
            there |= new
        return there, stamps

    def cell(self, hash_of_key: int, place: int) -> tuple[IndexRows, int] | None:
        """The table and the row of one cell."""
        asked = np.array([hash_of_key], np.uint64), np.array([place], np.uint64)
        for table in reversed(self.tables):
            row = int(positions(table, *asked)[0])
            if row >= 0:
                return table, row
        return None

    def of_keys(
        self, hashes: Array, computation: int, kind: int | None
    ) -> Iterator[tuple[Array, IndexRows]]:
        """(number of the hash, row) of all cells of some keys, newest table first.

        An older version of a cell that a newer table has may follow.
        """
        for table in reversed(self.tables):
            lows = np.searchsorted(table.hash, hashes, "left")
            counts = np.searchsorted(table.hash, hashes, "right") - lows
            total = int(counts.sum())
            if not total:
                continue
            owners = np.repeat(np.arange(len(hashes)), counts)
            starts = np.repeat(lows - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
            rows = starts + np.arange(total)
            chosen = table.computation[rows] == computation
            if kind is not None:
                chosen &= table.kind[rows] == kind
            if chosen.any():
                yield owners[chosen], table.take(rows[chosen])


def merged(older: IndexRows, newer: IndexRows) -> IndexRows:
    """Two tables as one; of a cell that both have, the newer version."""
    kept = older.take(positions(newer, older.hash, older.place) < 0)
    both = IndexRows.joined([kept, newer])
    return both.take(np.lexsort((both.place, both.hash)))


def in_order(rows: IndexRows) -> IndexRows:
    """Sorted by hash and place."""
    return rows.take(np.lexsort((rows.place, rows.hash)))


def parts_of(rows: IndexRows, size: int) -> Iterator[IndexRows]:
    """The rows one after another, in parts whose records have about so many bytes together."""
    numbers = np.cumsum(rows.size, dtype=np.int64) // size
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), rows.number]
    for first, end in pairwise(bounds if rows.number else ()):
        yield rows.take(slice(first, end))


def positions(
    table: IndexRows, hashes: Array, places: Array
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The row of each cell in a table, or -1."""
    found = np.full(len(hashes), -1, np.int64)
    if not table.number or not len(hashes):
        return found
    lows = np.searchsorted(table.hash, hashes, "left")
    highs = np.searchsorted(table.hash, hashes, "right")
    longest = int((highs - lows).max())
    for step in range(min(longest, _WALK_MAX)):
        at = lows + step
        inside = np.flatnonzero(at < highs)
        same = inside[table.place[at[inside]] == places[inside]]
        found[same] = at[same]
    if longest > _WALK_MAX:
        for i in np.flatnonzero((highs - lows > _WALK_MAX) & (found < 0)).tolist():
            low, high = int(lows[i]), int(highs[i])
            at_one = low + int(np.searchsorted(table.place[low:high], places[i]))
            if at_one < high and table.place[at_one] == places[i]:
                found[i] = at_one
    return found
