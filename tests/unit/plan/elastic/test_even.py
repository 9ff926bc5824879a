"""The policy `even` on synthetic traces: what it promises, and when it keeps quiet."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.unit.plan.elastic.traces import NAME, Floats, Model, even_ring, zipf

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.cold import merge_cold
from headrace.plan.elastic.even import fair_share, spread
from headrace.plan.elastic.figures import LoadFigures, LoadState
from headrace.plan.elastic.load import SlotNote
from headrace.plan.elastic.scale import step_of
from headrace.plan.elastic.settings import OFF, Elasticity
from headrace.plan.elastic.sketch import sketch_of
from headrace.plan.elastic.view import RingView

ZIPF = zipf(10_000, 1.2, 50_000)
RECORDED = Path(__file__).parents[5] / "shared" / "data" / "wikiticker-2015-09-12-sampled.json.gz"


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_zipf_keys_are_within_bounds_after_ten_epochs(noise: float, seed: int) -> None:
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity(), noise=noise, seed=seed)
    model.run(10)
    assert model.ratio(back=10) > 1.1, "it began out of bounds"
    model.run(30)
    assert max(model.ratio(back=back) for back in range(1, 31)) <= 1.0
    assert model.moved < 0.3, "most keys stay where they are"


def test_it_settles_when_load_stays_as_it_is() -> None:
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity(), noise=0.05)
    model.run(60)
    assert model.decisions
    assert max(model.decisions) <= 12


def test_it_stays_within_bounds_while_hot_keys_move() -> None:
    """Every 25 epochs the ranks move on by one: the heaviest key is hardly used any more."""

    def weights(epoch: int) -> Floats:
        return np.roll(ZIPF, -(epoch // 25))

    model = Model(10_000, weights, even_ring(8), Elasticity(), noise=0.05).run(200)
    for epoch in range(1, 201):
        since = epoch % 25 if epoch >= 25 else epoch - 1
        if since >= 2:  # busy time, and the records after it, show the change
            assert model.ratio(back=201 - epoch) <= 1.0, epoch


def test_without_the_balancer_the_bounds_are_broken_for_ever() -> None:
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity(policy=OFF)).run(30)
    assert model.ratio() > 1.1
    assert not model.decisions


def test_a_single_hot_key_gets_a_slot_for_itself() -> None:
    weights = np.full(1000, 15.0)
    weights[7] = 20_000
    model = Model(1000, lambda epoch: weights, even_ring(4), Elasticity()).run(20)
    loads = model.loads[-1]
    busiest = max(loads, key=lambda slot: loads[slot])
    owners = model.ring.owners[
        np.searchsorted(model.ring.lows, model.hashes, side="right").astype(np.int64) - 1
    ]
    assert owners[7] == busiest
    assert loads[busiest] <= 1.1 * model.heaviest[-1]
    assert len(model.decisions) <= 2, "it is isolated, not halved again and again"


def test_many_empty_slots_take_part_of_the_load() -> None:
    weights = np.full(2000, 20.0)
    ring = RingView.of([0, *(HASH_SPACE - 64 + i for i in range(1, 64))], range(64))
    model = Model(2000, lambda epoch: weights, ring, Elasticity(), cost_us=100).run(16)
    loads = model.loads[-1]
    assert max(loads.values()) <= 1.3 * sum(loads.values()) / 64


def test_slots_without_figures_neither_give_nor_take() -> None:
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity())
    model.mute = lambda epoch, slot: slot in (2, 5)
    before = {slot: model.ring.spans(slot) for slot in (2, 5)}
    model.run(20)
    assert model.decisions
    assert {slot: model.ring.spans(slot) for slot in (2, 5)} == before


@pytest.mark.parametrize("kind", ["roll", "jump"])
@pytest.mark.parametrize("first", [30, 31])
def test_hot_keys_that_move_are_answered_after_two_epochs(kind: str, first: int) -> None:
    """In whichever epoch of a report's period they move; and nothing else is decided."""
    order = np.random.default_rng(3).permutation(10_000)
    after = np.roll(ZIPF, -1) if kind == "roll" else ZIPF[order]

    model = Model(
        10_000, lambda e: ZIPF if e < first else after, even_ring(8), Elasticity(), noise=0.1
    ).run(60)
    ratios = [model.ratio(back=61 - epoch) for epoch in range(1, 61)]
    late = [epoch for epoch, ratio in enumerate(ratios, 1) if ratio > 1]
    assert late == [1, 2, first, first + 1]
    assert len([d for _, d, *_ in model.log if d.decisions]) <= 4


def slightly_uneven() -> Model:
    """The first of eight slots has 1.25 times its share."""
    weights = np.full(10_000, 5.0)
    model = Model(10_000, lambda epoch: weights, even_ring(8), Elasticity())
    weights[model.hashes < HASH_SPACE // 8] *= 1.29
    return model


def test_where_load_is_slightly_uneven_two_reports_are_needed() -> None:
    model = slightly_uneven().run(3)
    assert not model.decisions
    model.run(1)
    assert model.decisions == [4]


def test_where_load_is_very_uneven_one_report_and_the_records_after_it_are_enough() -> None:
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity()).run(2)
    assert model.decisions == [2]
    assert "in a report and the records after it" in model.log[-1][1].decisions[0].reason


def test_records_alone_move_nothing_but_ask_for_an_early_report() -> None:
    """Records of one slot are cheap: it is not busy, however many it has."""
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity())
    heard = model.meter.heard

    def alike(notes: list[SlotNote]) -> None:
        heard([msgspec.structs.replace(note, wall_us=300_000) for note in notes])

    model.meter.heard = alike  # type: ignore[method-assign, assignment]
    model.run(21)
    assert not any(decided.wanted for _, decided, *_ in model.log)
    reports = [epoch for figures, _, _, epoch, _ in model.log if figures is not None]
    assert reports == list(range(2, 22)), "each regular report asks for one more, and no early one"


def test_few_records_that_lie_unevenly_by_chance_ask_for_nothing() -> None:
    weights = np.full(10_000, 0.01)
    model = Model(10_000, lambda epoch: weights, even_ring(8), Elasticity(), cost_us=1.0)
    model.meter.heard = lambda notes, heard=model.meter.heard: heard(  # type: ignore[method-assign]
        [msgspec.structs.replace(note, wall_us=300_000) for note in notes]
    )
    model.run(40)
    assert not model.decisions


def test_an_idle_pipeline_moves_nothing() -> None:
    model = Model(10_000, lambda epoch: ZIPF / 1000, even_ring(8), Elasticity()).run(20)
    assert not model.decisions


def test_a_slot_that_is_slow_for_another_reason_is_left_alone_more_and_more() -> None:
    """Slot 3 is busy whatever it has: a slow disk, or a neighbour on its machine."""
    weights = np.full(10_000, 5.0)
    model = Model(10_000, lambda epoch: weights, even_ring(8), Elasticity())
    heard = model.meter.heard

    def slow(notes: list[SlotNote]) -> None:
        heard([
            msgspec.structs.replace(n, wall_us=600_000) if n.label == f"{NAME}/3" else n
            for n in notes
        ])  # fmt: skip

    model.meter.heard = slow  # type: ignore[method-assign, assignment]
    model.run(300)
    decided = model.decisions
    assert len(decided) <= 9
    assert decided[-1] - decided[-2] > 4 * (decided[1] - decided[0])


@pytest.mark.parametrize("at", [8, 9])
def test_one_hot_epoch_alone_moves_nothing(at: int) -> None:
    spike = zipf(10_000, 1.2, 50_000)
    calm = np.full(10_000, 5.0)
    model = Model(
        10_000, lambda epoch: spike if epoch == at else calm, even_ring(8), Elasticity()
    ).run(20)
    assert not any(decided.wanted for _, decided, *_ in model.log)


def test_a_hot_slot_that_nothing_makes_lighter_is_not_judged_by_a_small_promise() -> None:
    """Beside a heavy key there is little to give: decisions there do not slow down later ones."""

    def weights(epoch: int) -> Floats:
        return np.roll(ZIPF, epoch // 20)

    model = Model(10_000, weights, even_ring(8), Elasticity(), noise=0.05).run(100)
    assert model.state.of[NAME].futile == 0


def test_a_wanted_ring_that_is_not_committed_is_not_decided_again() -> None:
    model = Model(10_000, lambda epoch: ZIPF, even_ring(8), Elasticity()).run(2)
    assert model.wanted is not None
    again = decide_rings(
        model.state.of, {NAME: model.ring}, {NAME}, model.settings, epoch=6, wall=model.wall
    )
    assert not again
    free = decide_rings(
        model.state.of, {NAME: model.ring}, (), model.settings, epoch=6, wall=model.wall
    )
    assert free.wanted


def test_two_drivers_that_fold_one_log_decide_alike_at_every_commit() -> None:
    def weights(epoch: int) -> Floats:
        return np.roll(ZIPF, -(epoch // 5))

    model = Model(10_000, weights, even_ring(8), Elasticity(), noise=0.1).run(60)
    state = LoadState()
    ring = even_ring(8)
    open_since = 0
    for figures, decided, ring_after, epoch, wall in model.log:
        if ring_after is not ring:
            state, open_since = state.without(NAME), 0
        ring = ring_after
        if figures is None:
            continue
        state = state.reported(figures, [NAME])
        wanted = (NAME,) if open_since else ()
        again = decide_rings(
            state.of, {NAME: ring}, wanted, model.settings,
            epoch=epoch, wall=wall, early=state.early,
        )  # fmt: skip
        assert again == decided
        state = state.decided(again)
        open_since = epoch if again.wanted else open_since
    assert state == model.state


def test_cold_intervals_merge_when_there_are_many() -> None:
    """Keys get hot one after the other: each is split off, and joined again when it is cold."""

    def weights(epoch: int) -> Floats:
        return np.roll(ZIPF, -17 * (epoch // 8))

    settings = Elasticity(intervals_per_slot=6)
    model = Model(10_000, weights, even_ring(8), settings).run(120)
    assert max(len(ring) for _, _, ring, *_ in model.log) <= 2 * 6 * 8
    without = Model(10_000, weights, even_ring(8), Elasticity(intervals_per_slot=10_000)).run(120)
    assert len(without.ring) > 2 * 6 * 8


def test_merging_moves_cold_intervals_only_and_leaves_no_slot_without_any() -> None:
    lows = [HASH_SPACE * i // 32 for i in range(32)]
    ring = RingView.of(lows, [i % 2 for i in range(32)])
    hashes = np.array([lows[0] + 5, lows[1] + 5], np.uint64)
    sketches = {s: sketch_of(hashes[s : s + 1], np.array([1000], np.int64)) for s in (0, 1)}
    moves = merge_cold(ring, {0: 1000, 1: 1000}, sketches, 1000, 4, 100)
    after = ring.after(moves)
    assert len(after) < len(ring)
    assert after.slots == (0, 1)
    assert all(not (m.low <= int(h) <= m.last) for m in moves for h in hashes)


def test_the_fair_share_sets_aside_keys_that_exceed_it() -> None:
    assert fair_share([100, 100, 100, 100], []) == 100
    assert fair_share([1000, 0, 0, 0], [700]) == 100
    assert fair_share([1000], [700]) == 1000


def test_a_spread_without_sketches_moves_nothing_but_what_leaves() -> None:
    ring = even_ring(4)
    load = {0: 1000, 1: 0, 2: 0, 3: 0}
    assert spread(ring, load, {}, ring.slots, 100).moves == ()
    moves = spread(ring, load, {}, (1, 2, 3), 100).moves
    assert ring.after(moves).slots == (1, 2, 3)


def test_figures_that_moved_little_are_not_written_again() -> None:
    state = LoadState().reported(LoadFigures({NAME: {0: step_of(1000), 1: step_of(9)}}), [NAME])
    model = Model(100, lambda epoch: np.full(100, 50.0), even_ring(4), Elasticity()).run(20)
    told = [f.busy.get(NAME, {}) for f, *_ in model.log if f is not None]
    assert len(told[0]) == 4
    assert sum(map(len, told[1:])) <= 4
    assert state.of[NAME].averages()[0] > 900


@pytest.mark.skipif(not RECORDED.exists(), reason="recorded edits of Wikipedia are not here")
def test_recorded_edits_by_channel_are_balanced() -> None:
    """39,244 edits of one day, keyed by channel: one channel has a third of them."""
    with gzip.open(RECORDED, "rt") as lines:
        channels = [json.loads(line)["channel"] for line in lines]
    names = sorted(set(channels))
    size = len(channels) // 40
    counts = [Counter(channels[i * size : (i + 1) * size]) for i in range(40)]
    weights = [np.array([c[name] for name in names], float) * 10 for c in counts]
    model = Model(len(names), lambda epoch: weights[epoch - 1], even_ring(4), Elasticity()).run(40)
    late = [model.ratio(back=back) for back in range(1, 25)]
    assert sorted(late)[12] <= 1.0
