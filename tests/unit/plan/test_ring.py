"""The ring: every hash has exactly one owner; what a ring change does to it."""

import random
from itertools import pairwise

import numpy as np
import pytest

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.rings.refs import RingRef, RingStep, decode_ring, encode_ring
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move

EDGES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]


def spans(ring: Ring, slot: int) -> list[tuple[int, int]]:
    """(low, last) of the intervals of a slot."""
    found = ring.records(slot)
    return list(zip(found.lows.tolist(), found.lasts.tolist(), strict=True))


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 64])
def test_an_even_ring_gives_every_hash_to_the_slot_whose_interval_has_it(slots: int) -> None:
    ring = Ring.even(slots)
    bounds = [b for low in ring.lows.tolist() for b in (low, low - 1) if b >= 0]
    hashes = np.array([*EDGES, *bounds], np.uint64)
    for value, slot in zip(hashes.tolist(), ring.place(hashes).tolist(), strict=True):
        owners = [s for s in ring.slots for low, last in spans(ring, s) if low <= value <= last]
        assert owners == [slot]
        assert ring.records(slot).have(np.array([value], np.uint64)).tolist() == [True]


def test_intervals_of_all_slots_cover_the_key_space_without_gap_or_overlap() -> None:
    ring = Ring((0, 100, 5000, 2**63), (2, 0, 2, 1), (2, 0, 2, 1))
    found = sorted(span for slot in ring.slots for span in spans(ring, slot))
    assert found[0][0] == 0 and found[-1][1] == HASH_SPACE - 1
    assert all(last + 1 == low for (_, last), (low, _) in pairwise(found))
    assert spans(ring, 2) == [(0, 99), (5000, 2**63 - 1)]
    assert ring.slots == (0, 1, 2) and spans(ring, 7) == []
    outside = np.array([100, 4999, 2**63], np.uint64)
    assert ring.records(2).have(outside).tolist() == [False] * 3


def test_a_step_moves_what_it_names_and_joins_equal_neighbours() -> None:
    ring = Ring.even(2)
    step = RingStep((Move(0, 9, 1), Move(20, 29, 1), Move(2**63, HASH_SPACE - 1, 0)),
                    ((1, 0, 2), (0, 1, 3)))  # fmt: skip
    after = step.apply(ring)
    assert spans(after, 1) == [(0, 9), (20, 29)]
    assert spans(after, 0) == [(10, 19), (30, 2**63 - 1), (2**63, HASH_SPACE - 1)]
    assert after.records(0).classes.tolist() == [0, 0, 3]
    back = RingStep((Move(0, 9, 0), Move(20, 29, 0)), ((0, 2, 0),)).apply(after)
    assert spans(back, 0) == [(0, 2**63 - 1), (2**63, HASH_SPACE - 1)]


def test_a_ring_survives_its_object() -> None:
    dice = random.Random(1)
    lows = [0, *sorted(dice.getrandbits(64) for _ in range(99))]
    owners = [dice.randrange(9) for _ in lows]
    ring = Ring(lows, owners, [owner * 7 for owner in owners])
    assert decode_ring(encode_ring(ring)) == ring
    with pytest.raises(ValueError, match="format 9"):
        decode_ring(b"\x94\x09" + b"\xc4\x00" * 3)


def test_a_reference_names_versions_and_content() -> None:
    first = RingRef.even(2)
    step = RingStep((Move(0, 9, 1),), ((1, 0, 2),))
    other = RingStep((Move(0, 8, 1),), ((1, 0, 2),))
    second = first.then(step)
    assert (first.version, second.version, second.next_class, second.moves) == (1, 2, 3, 1)
    assert second.digest != first.then(other).digest, "a voided ring has another digest"
    third = second.then(other, "rings/x")
    assert (third.base, third.steps, third.version) == ("rings/x", (), 3)
