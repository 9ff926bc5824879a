"""`headrace bench interval`: what it counts, and how it tells epochs apart."""

from pathlib import Path

from headrace.bench.interval import (
    counted_run,
    format_interval,
    percentile,
    right_tallies,
    split_epochs,
)


def test_a_longer_interval_saves_syncs_and_gives_the_same_state(tmp_path: Path):
    shape = {"records": 400, "keys": 400, "epochs": 8, "slots": 1}
    each, one = counted_run(tmp_path / "1", every=1, **shape)
    fourth, other = counted_run(tmp_path / "4", every=4, **shape)
    assert one == other == right_tallies(3_200, 400) and len(one) == 400
    assert right_tallies(5, 3) == {0: 2, 1: 2, 2: 1} and right_tallies(1, 3) == {0: 1}
    # Each epoch: the delta and its directory are synced; with an interval only every fourth time.
    assert each["syncs_per_epoch"] - fourth["syncs_per_epoch"] >= 1.4
    assert each["synced_bytes_per_epoch"] > 30_000
    assert fourth["synced_bytes_per_epoch"] < each["synced_bytes_per_epoch"] / 2
    assert fourth["written_bytes_per_epoch"] > each["synced_bytes_per_epoch"] / 2


def test_epochs_that_overlap_a_fragment_are_told_apart():
    epochs = [(0.0, 1.0, 1.0), (1.0, 2.0, 1.1), (2.0, 3.0, 1.2), (3.0, 4.0, 1.3)]
    found = split_epochs(epochs, [(1.5, 2.5), (9.0, 9.5)])
    assert found == {"during": [1.1, 1.2], "without": [1.0, 1.3]}
    assert split_epochs([], [(0.0, 1.0)]) == {"during": [], "without": []}


def test_a_percentile_of_nothing_is_nothing():
    assert percentile([], 0.95) is None
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([float(i) for i in range(100)], 0.95) == 95.0


def test_a_missed_bar_is_shown():
    bar = {"name": "p95", "bar": "at most 1.25", "measured": 1.5, "reached": False}
    kinds = {"during": {"number": 1, "p50_ms": 1.0, "p95_ms": 1.5}}
    shown = format_interval({"systems": {}, "epochs": kinds, "results_equal": True, "bars": [bar]})
    assert "MISSED  p95: 1.5 (at most 1.25)" in shown
