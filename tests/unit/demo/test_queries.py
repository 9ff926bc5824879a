"""The generated search log: its promises, checked."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from headrace.demo.queries import (
    DAYS,
    FIRST_DAY,
    FRONT_ENDS,
    LATE_RECORDS,
    LATENESS,
    QUERIES,
    SPIKES,
    SearchLog,
    make_log,
    write_log,
)
from headrace.model.values.time import DAY, HOUR, duration


@pytest.fixture(scope="module")
def log() -> SearchLog:
    return make_log(1)


def test_the_same_seed_gives_the_same_log_and_another_seed_another() -> None:
    first, second, other = make_log(7), make_log(7), make_log(8)
    assert first.planted == second.planted
    assert np.array_equal(first.timestamps, second.timestamps)
    assert np.array_equal(first.arrivals, second.arrivals)
    assert first.planted != other.planted


def test_a_log_is_large_enough_to_be_a_stream_and_small_enough_for_a_demo(log: SearchLog) -> None:
    assert 150_000 < len(log) < 250_000
    assert len(set(QUERIES)) == len(QUERIES)


def test_records_come_in_order_of_arrival_and_within_the_lateness(log: SearchLog) -> None:
    on_time = slice(0, len(log) - log.late)
    delays = (log.arrivals - log.timestamps)[on_time]
    assert np.all(np.diff(log.arrivals) >= 0)
    assert delays.min() >= 0
    assert delays.max() < duration(LATENESS)


def test_no_record_is_late_in_its_file_but_the_planted_ones(log: SearchLog, tmp_path: Path) -> None:
    late = 0
    for path in write_log(log, tmp_path):
        watermark = 0
        for line in path.read_text().splitlines():
            timestamp = json.loads(line)["ts"]
            late += timestamp < watermark
            watermark = max(watermark, timestamp - duration(LATENESS))
    assert late == log.late == LATE_RECORDS


def test_late_records_are_from_the_first_day_and_come_last(log: SearchLog) -> None:
    assert np.all(log.timestamps[-log.late :] < FIRST_DAY + DAY)
    assert len(list(log.records(late=False))) == len(log) - log.late


def test_the_files_hold_every_record_once_and_a_query_is_in_one_file(
    log: SearchLog, tmp_path: Path
) -> None:
    paths = write_log(log, tmp_path)
    written = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    files_of_query = Counter(query for file in written for query in {r["query"] for r in file})
    sizes = [len(file) for file in written]
    assert len(paths) == FRONT_ENDS
    assert set(files_of_query.values()) == {1}
    assert max(sizes) < 1.2 * min(sizes)
    everything = Counter(json.dumps(r) for file in written for r in file)
    assert everything == Counter(json.dumps(r) for r in log.records())


@pytest.mark.parametrize("seed", range(1, 6))
def test_what_is_planted_happens_to_different_queries_after_the_day_of_learning(seed: int) -> None:
    planted = make_log(seed).planted
    assert Counter(event.kind for event in planted) == {"spike": SPIKES, "outage": 1, "flurry": 1}
    assert len({event.query for event in planted}) == len(planted)
    for event in planted:
        assert FIRST_DAY + DAY <= event.start < event.end < FIRST_DAY + DAYS * DAY


def test_the_planted_events_are_in_the_records(log: SearchLog) -> None:
    on_time = log.queries[: len(log) - log.late]
    timestamps = log.timestamps[: len(log) - log.late]
    arrivals = log.arrivals[: len(log) - log.late]
    for event in log.planted:
        mine = on_time == QUERIES.index(event.query)
        happened = np.sum(mine & (timestamps >= event.start) & (timestamps < event.end))
        arrived = np.sum(mine & (arrivals >= event.start) & (arrivals < event.end))
        day_before = np.sum(
            mine & (timestamps >= event.start - DAY) & (timestamps < event.end - DAY)
        )
        if event.kind == "outage":
            assert happened == 0 < day_before
        elif event.kind == "spike":
            assert happened > 3 * day_before
        else:
            assert 0.5 * day_before < happened
            assert arrived < 0.1 * happened


def test_the_daily_cycle_is_strong(log: SearchLog) -> None:
    hours = np.bincount((log.timestamps - FIRST_DAY) // HOUR % 24, weights=log.queries == 0)
    assert hours.max() > 2 * hours.min()
