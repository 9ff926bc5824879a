"""The policy `ring`: questions between neighbours, tokens that move, slots that come and leave."""

from __future__ import annotations

import msgspec
import numpy as np
from tests.unit.plan.elastic.traces import NAME, Floats, Model, even_ring, zipf

from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.cascade import Bounds, cascade
from headrace.plan.elastic.figures import LoadState
from headrace.plan.elastic.settings import RING, Elasticity, Scale
from headrace.plan.elastic.sketch import Sketch, sketch_of
from headrace.plan.elastic.view import RingView

BOUNDS = Bounds(high=700_000, low=400_000, slots_min=4, slots_max=4)


def sketches(ring: RingView) -> dict[int, Sketch]:
    """Each slot has a thousand hashes, as far apart as they can be."""
    found = {}
    for slot in ring.slots:
        low, last = ring.spans(slot)[0]
        hashes = np.array([low + (last - low) * i // 1000 for i in range(1000)], np.uint64)
        found[slot] = sketch_of(hashes, np.ones(1000, np.int64))
    return found


def test_a_neighbour_with_room_takes_half_of_the_difference() -> None:
    ring = even_ring(4)
    load = {0: 900_000, 1: 100_000, 2: 500_000, 3: 500_000}
    step = cascade(ring, load, load, sketches(ring), (), BOUNDS)
    [move] = step.moves
    low, last = ring.spans(0)[0]
    assert move.to == 1
    assert move.last == last
    moved = (move.last - move.low) / (last - low)
    assert 0.40 <= moved <= 0.47  # 400,000 of 900,000
    assert step.asked == ()


def test_a_neighbour_without_room_asks_its_own_first() -> None:
    ring = even_ring(4)
    load = {0: 900_000, 1: 600_000, 2: 100_000, 3: 500_000}
    first = cascade(ring, load, load, sketches(ring), (), BOUNDS)
    assert first.moves == ()
    assert first.asked == (0, 1)
    second = cascade(ring, load, load, sketches(ring), first.asked, BOUNDS)
    assert second.moves[0].to == 2
    assert second.asked == (0,), "slot 0 asks again when slot 1 has room"
    after = {0: 900_000, 1: 350_000, 2: 350_000, 3: 500_000}
    third = cascade(ring, after, after, sketches(ring), second.asked, BOUNDS)
    assert third.moves[0].to == 1
    assert third.asked == ()


def test_where_nobody_has_room_a_slot_is_placed_midway() -> None:
    ring = even_ring(3)
    load = dict.fromkeys(range(3), 900_000)
    bounds = Bounds(700_000, 400_000, 1, 8)
    asked: tuple[int, ...] = ()
    for expected in ((0, 1), (0, 1, 2)):
        step = cascade(ring, load, load, sketches(ring), asked, bounds)
        asked = step.asked
        assert asked == expected
    step = cascade(ring, load, load, sketches(ring), asked, bounds)
    [move] = step.moves
    assert move.to == 3
    low, last = ring.spans(0)[0]
    assert abs((move.last - move.low) / (last - low) - 0.5) < 0.05
    full = cascade(ring, load, load, sketches(ring), asked, Bounds(700_000, 400_000, 1, 3))
    assert full.moves == ()
    assert full.asked == asked, "it stands, and nothing more is decided"


def test_a_slot_leaves_beside_another_with_little_to_do() -> None:
    ring = even_ring(4)
    load = {0: 500_000, 1: 90_000, 2: 90_000, 3: 500_000}
    bounds = Bounds(700_000, 400_000, 2, 8)
    step = cascade(ring, load, load, {}, (), bounds)
    assert ring.after(step.moves).slots == (0, 2, 3)
    assert not cascade(ring, load, load, {}, (), BOUNDS).moves, "four slots are the least"


def heavy_tail(ring: RingView, slot: int, records: int) -> Sketch:
    """A thousand records over a slot, and a key with many more at the end of its hashes."""
    low, last = ring.spans(slot)[0]
    hashes = [low + (last - low) * i // 1000 for i in range(1000)]
    counts = np.append(np.ones(1000, np.int64), records)
    return sketch_of(np.array([*hashes, last], np.uint64), counts)


def test_a_slot_that_cannot_give_does_not_keep_others_from_giving() -> None:
    ring = even_ring(6)
    load = {0: 1_000_000, 1: 500_000, 2: 300_000, 3: 800_000, 4: 200_000, 5: 300_000}
    known = sketches(ring) | {0: heavy_tail(ring, 0, 2000)}
    step = cascade(ring, load, load, known, (), BOUNDS)
    assert (step.moves[0].to, step.asked) == (4, ()), "slot 3 gives, though slot 0 has more"


def test_a_neighbour_without_room_for_the_last_key_asks_its_own_first() -> None:
    ring = even_ring(4)
    load = {0: 1_000_000, 1: 350_000, 2: 200_000, 3: 500_000}
    known = sketches(ring) | {0: heavy_tail(ring, 0, 2000)}
    first = cascade(ring, load, load, known, (), BOUNDS)
    assert (first.moves, first.asked) == ((), (0, 1)), "666,000 beside 350,000 would help nobody"
    second = cascade(ring, load, load, known, first.asked, BOUNDS)
    assert (second.moves[0].to, second.asked) == (2, (0,))
    after = {0: 1_000_000, 1: 150_000, 2: 400_000, 3: 500_000}
    third = cascade(ring, after, after, known, second.asked, BOUNDS)
    low, last = ring.spans(0)[0]
    assert (third.moves[0].to, third.asked) == (1, ())
    assert third.moves[0].last == last
    assert last - third.moves[0].low < (last - low) // 50, "the heavy key, and little beside it"


def test_a_neighbour_that_is_asked_for_room_fills_its_own_no_further_than_it_has_room() -> None:
    ring = even_ring(4)
    load = {0: 1_000_000, 1: 300_000, 2: 350_000, 3: 500_000}
    known = sketches(ring) | {0: heavy_tail(ring, 0, 2000)}
    [move] = cascade(ring, load, load, known, (0, 1), BOUNDS).moves
    low, last = ring.spans(1)[0]
    assert 0.10 <= (move.last - move.low) / (last - low) <= 0.17  # 50,000 of 300,000


def test_a_key_that_fills_a_slot_alone_is_left_where_it_is() -> None:
    ring = even_ring(4)
    load = {0: 900_000, 1: 100_000, 2: 100_000, 3: 900_000}
    known = {slot: heavy_tail(ring, slot, 1_000_000) for slot in ring.slots}
    step = cascade(ring, load, load, known, (), BOUNDS)
    assert (step.moves, step.asked) == ((), ())
    assert step.reason == "slot 0 has little beside a key that cannot be divided"


def test_a_cascade_that_comes_round_in_vain_stands_until_there_is_room() -> None:
    ring = even_ring(4)
    load = {0: 1_000_000, 1: 350_000, 2: 450_000, 3: 900_000}
    known = sketches(ring) | {0: heavy_tail(ring, 0, 2000)}
    asked = (0, 1, 2, 3)
    step = cascade(ring, load, load, known, asked, BOUNDS)
    assert (step.moves, step.asked) == ((), asked), "no more slots are allowed"
    freed = load | {2: 250_000}
    step = cascade(ring, freed, freed, known, asked, BOUNDS)
    assert (step.moves[0].to, step.asked) == (2, (0,))
    lighter = {0: 350_000, 1: 450_000, 2: 450_000, 3: 900_000}
    step = cascade(ring, lighter, load, known, asked, BOUNDS)
    assert (step.moves[0].to, step.asked) == (0, ()), "slot 3 gives though slot 0 began"


def test_figures_of_few_records_are_no_reason_to_move() -> None:
    settings = Elasticity(policy=RING)
    for records in (80, 800):  # in an epoch, on eight slots that they keep half busy
        words = np.full(2000, records / 2000)
        ring = even_ring(8)
        model = Model(2000, lambda epoch, w=words: w, ring, settings, cost_us=4e6 / records)
        assert len(model.run(300).decisions) <= 6, records


def test_where_nobody_has_room_for_a_heavy_key_it_gets_a_slot_of_its_own() -> None:
    ring = even_ring(3)
    load = {0: 1_000_000, 1: 390_000, 2: 395_000}
    known = sketches(ring) | {0: heavy_tail(ring, 0, 2000)}
    step = cascade(ring, load, load, known, (0, 1, 2), Bounds(700_000, 400_000, 1, 8))
    assert step.moves[0].to == 3
    low, last = ring.spans(0)[0]
    assert last - step.moves[0].low < (last - low) // 50


def test_words_by_zipfs_law_at_half_load_settle_without_more_slots() -> None:
    words = zipf(2000, 1.1, 800)
    for seed in range(4):
        ranked = np.random.default_rng(seed).permutation(words)
        settings = Elasticity(policy=RING)
        model = Model(2000, lambda epoch, w=ranked: w, even_ring(8), settings, cost_us=5000)
        model.run(120)
        busiest = float(np.median([max(each.values()) for each in model.loads[-20:]]))
        assert busiest * 5_000 < 900_000, (seed, model.loads[-1])


def test_a_cascade_ends_when_its_first_slot_is_no_longer_overloaded() -> None:
    ring = even_ring(4)
    load = dict.fromkeys(range(4), 500_000)
    assert cascade(ring, load, load, sketches(ring), (0, 1), BOUNDS).asked == ()


def test_figures_that_are_missing_are_waited_for() -> None:
    ring = even_ring(4)
    load = {0: 900_000, 2: 100_000, 3: 100_000}
    step = cascade(ring, load, load, sketches(ring), (), BOUNDS)
    assert step.moves == ()
    assert step.asked == (0,)


def hot_words() -> Floats:
    """Repeated words: the keys of slot 0 have most of the records, and slot 1 has no room."""
    model = Model(4000, lambda epoch: np.ones(4000), even_ring(6), Elasticity())
    slot = np.searchsorted(model.ring.lows, model.hashes, side="right") - 1
    return np.where(slot == 0, 90.0, np.where(slot == 1, 42.0, 4.0))


def test_skewed_words_cascade_and_settle() -> None:
    words = hot_words()
    settings = Elasticity(policy=RING, scale=Scale(above=0.5, aim=0.3, below=0.1), slots_max=6)
    model = Model(4000, lambda epoch: words, even_ring(6), settings, cost_us=16).run(120)
    reasons = [d.reason for _, decided, *_ in model.log for d in decided.decisions]
    assert any("asks" in reason for reason in reasons), "the cascade is seen"
    assert max(model.loads[-1].values()) < 0.6 * max(model.loads[0].values())
    assert max(model.decisions) <= 100, "it settles"


def test_a_takeover_in_the_middle_of_a_cascade_continues_it() -> None:
    """At every report another driver, with nothing but the ledger, decides the same."""
    words = hot_words()
    settings = Elasticity(policy=RING, scale=Scale(above=0.5, aim=0.3, below=0.1), slots_max=6)
    model = Model(4000, lambda epoch: words, even_ring(6), settings, cost_us=16)
    middles = 0
    for _ in range(80):
        before = model.state
        ring, wanted = model.ring, model.wanted
        model.step()
        figures, decided, ring_after, epoch, wall = model.log[-1]
        stored = msgspec.json.decode(msgspec.json.encode(before), type=LoadState)
        if ring_after is not ring:
            stored, wanted = stored.without(NAME), None
        if figures is None:
            continue
        middles += any(load.asked for load in stored.of.values())
        stored = stored.reported(figures, [NAME])
        names = () if wanted is None else (NAME,)
        again = decide_rings(stored.of, {NAME: ring_after}, names, settings, epoch=epoch, wall=wall)
        assert again == decided
    assert middles >= 2
