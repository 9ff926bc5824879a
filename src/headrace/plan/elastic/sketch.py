"""The sketch of a slot: how its records of one epoch lie over its hashes.

It has at most 64 bins with about equally many records each, and beside them the eight heaviest
hashes. So it is finest where the load is, and a single hot key is seen as such. Bins begin at real
hashes and not at parts of an interval: a sketch can be read under any ring.

A sketch is a function of the epoch's input alone. Two correct attempts make the same one.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

BINS_MAX = 64
HEAVY_MAX = 8

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]


class Sketch(msgspec.Struct, frozen=True, array_like=True):
    """Bins over hashes, and the heaviest hashes, which no bin counts."""

    lows: bytes = b""
    """The first hash of each bin, eight bytes each, rising; a bin ends where the next begins."""
    records: tuple[int, ...] = ()
    """The records of each bin."""
    heavy: tuple[tuple[int, int], ...] = ()
    """(hash, records) of the heaviest hashes, the heaviest first."""

    @property
    def starts(self) -> Hashes:
        """The first hash of each bin."""
        return np.frombuffer(self.lows, ">u8").astype(np.uint64)

    @property
    def bins(self) -> list[tuple[int, int]]:
        """(first hash, records) of each bin."""
        return list(zip(self.starts.tolist(), self.records, strict=True))

    @property
    def total(self) -> int:
        """All records of the slot."""
        return sum(self.records) + sum(records for _, records in self.heavy)


def sketch_of(hashes: Hashes, counts: Counts) -> Sketch:
    """The sketch of some hashes, each with a number of records; a hash may occur more than once."""
    if not len(hashes):
        return Sketch()
    distinct, inverse = np.unique(hashes, return_inverse=True)
    records = np.zeros(len(distinct), np.int64)
    np.add.at(records, inverse, counts)
    heaviest = np.lexsort((distinct, -records))[:HEAVY_MAX]
    heavy = tuple((int(distinct[i]), int(records[i])) for i in heaviest if records[i] > 0)
    rest = records.copy()
    rest[heaviest] = 0
    total = int(rest.sum())
    if total == 0:
        return Sketch(heavy=heavy)
    before = np.cumsum(rest) - rest
    bins = before * BINS_MAX // total
    bins[rest == 0] = -1  # a hash without records of its own begins no bin
    own = np.flatnonzero(bins >= 0)
    firsts = own[np.flatnonzero(np.diff(bins[own], prepend=-1))]
    sums = np.add.reduceat(rest, firsts)
    return Sketch(distinct[firsts].astype(">u8").tobytes(), tuple(sums.tolist()), heavy)
