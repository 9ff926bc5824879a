"""The ring: every hash has exactly one owner."""

from itertools import pairwise

import numpy as np
import pytest

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.rings.ring import WHOLE, KeyInterval, Ring

EDGES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 64])
def test_an_even_ring_gives_every_hash_to_the_slot_whose_interval_has_it(slots: int) -> None:
    ring = Ring.even(slots)
    bounds = [b for low in ring.lows for b in (low, low - 1) if b >= 0]
    hashes = np.array([*EDGES, *bounds], np.uint64)
    for value, slot in zip(hashes.tolist(), ring.place(hashes).tolist(), strict=True):
        owners = [
            s for s in ring.slots for i in ring.intervals(s) if i.low <= value < i.high
        ]  # fmt: skip
        assert owners == [slot]


def test_intervals_of_all_slots_cover_the_key_space_without_gap_or_overlap() -> None:
    ring = Ring((0, 100, 5000, 2**63), (2, 0, 2, 1))
    found = sorted(i for slot in ring.slots for i in ring.intervals(slot))
    assert found[0].low == 0 and found[-1].high == HASH_SPACE
    assert all(a.high == b.low for a, b in pairwise(found))
    assert ring.intervals(2) == (KeyInterval.between(0, 100), KeyInterval.between(5000, 2**63))
    assert ring.slots == (0, 1, 2)


def test_the_overlap_of_intervals_is_what_they_share() -> None:
    a = KeyInterval.between(10, 20)
    assert a.overlap(KeyInterval.between(15, 30)) == KeyInterval.between(15, 20)
    assert a.overlap(KeyInterval.between(20, 30)) is None
    assert WHOLE.overlap(a) == a == a.overlap(WHOLE)
    assert KeyInterval.between(5, 6).overlap(KeyInterval.between(5, 6)) == KeyInterval(5, 5)
