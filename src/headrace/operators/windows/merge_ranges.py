"""Merges overlapping windows, given as ranges of rows that are sorted by key and time.

A record is in many windows. Merging the rows of each window one by one would take time and memory
quadratic in the number of a hot key's records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.columns.groups import Groups, Ints
from headrace.operators.windows import partials
from headrace.operators.windows.partials import Partials

Failures = dict[int, Exception]
"""Key -> the reason why its rows could not be merged."""


def merge_runs(
    aggregates: Sequence[Aggregate],
    rows: Partials,
    first: Ints,
    lengths: Ints,
    failures: Failures,
) -> Partials:
    """Merges overlapping ranges of rows, each given by its `first` row and its length.

    Row by row, the cost would be quadratic in a hot key's records. So blocks of 2, 4, 8 ... rows
    are each merged once, from two halves, and a range is merged from one block for each bit of its
    length. If a block cannot be merged, the reason is stored in `failures` under its key.
    """

    def failed(merged: Partials, row: int, error: Exception) -> None:
        failures.setdefault(int(merged.key[row]), error)

    levels = int(lengths.max(initial=1)).bit_length()
    at, pieces = first.copy(), []
    for level in range(levels - 1, -1, -1):
        runs = np.flatnonzero(lengths >> level & 1)
        pieces.append((level, runs, at[runs]))
        at[runs] += 1 << level
    needed = [np.zeros(0, np.int64)] * levels
    for level, _, starts in pieces:
        above = needed[level + 1] if level + 1 < levels else starts[:0]
        needed[level] = np.unique(np.concatenate([starts, above, above + (1 << level)]))
    found, owners = rows.take(np.zeros(0, np.int64)), [np.zeros(0, np.int64)]
    blocks, starts_of = rows.take(needed[0]), needed[0]
    for level in range(levels):
        if level:
            half = 1 << (level - 1)
            left = np.searchsorted(starts_of, needed[level])
            right = np.searchsorted(starts_of, needed[level] + half)
            count = len(needed[level])
            both = blocks.take(np.concatenate([left, right]))
            pairs = Groups(np.tile(np.arange(count), 2), count)
            blocks, starts_of = (
                partials.merge(aggregates, both, pairs, failed),
                needed[level],
            )
        _, runs, starts = pieces[levels - 1 - level]
        found = found.followed_by(blocks.take(np.searchsorted(starts_of, starts)))
        owners.append(runs)
    return partials.merge(aggregates, found, Groups(np.concatenate(owners), len(first)), failed)


def rows_up_to(keys: Ints, times: Ints, whose: Ints, until: Ints) -> Ints:
    """For each (key, time), the number of rows up to it. Rows are sorted by key and time."""
    asked = np.repeat([False, True], [len(keys), len(whose)])
    order = np.lexsort((asked, np.concatenate([times, until]), np.concatenate([keys, whose])))
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(~asked[order])
    return found[len(keys) :]
