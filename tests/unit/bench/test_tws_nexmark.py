"""Nexmark with `transformWithState`: both forms do the same with state and timers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.bench.fake_spark_state import FakeTransform

from headrace.bench.nexmark.answers import GAP_US, WINDOW_US
from headrace.bench.nexmark.spark_tws import Newcomers, Sellers, Sessions
from headrace.bench.nexmark.spark_tws_pandas import NewcomerFrames, SellerFrames, SessionFrames

FORMS = [False, True]
MS = 1_000


def seller(name: str) -> dict[str, Any]:
    return {"id": None, "name": name, "city": "Boise", "state": "ID"}


def offer(number: int) -> dict[str, Any]:
    return {"id": number, "name": None, "city": None, "state": None}


@pytest.mark.parametrize("frames", FORMS)
def test_auctions_meet_their_seller_whoever_comes_first(frames: bool):
    transform = FakeTransform(SellerFrames() if frames else Sellers(), frames=frames)
    assert transform.batch({(7,): [offer(1), offer(2)], (8,): [seller("Eve")]}, 0) == []
    rows = transform.batch({(7,): [offer(3), seller("Ada")], (8,): [offer(9)]}, 0)
    assert {(row["name"], row["state"], row["id"]) for row in rows} == {
        ("Ada", "ID", 1),
        ("Ada", "ID", 2),
        ("Ada", "ID", 3),
        ("Eve", "ID", 9),
    }
    assert len(rows) == 4
    assert [row["id"] for row in transform.batch({(7,): [offer(4)]}, 0)] == [4]


@pytest.mark.parametrize("frames", FORMS)
def test_who_registered_and_sold_in_a_window_comes_out_when_it_closes(frames: bool):
    transform = FakeTransform(NewcomerFrames() if frames else Newcomers(), frames=frames)
    both, only = (1, 0), (2, 0)
    assert transform.batch({both: [{"name": "Ada"}], only: [{"name": "Eve"}]}, 0) == []
    assert transform.batch({both: [{"name": None}], (3, 0): [{"name": None}]}, 1) == []
    rows = transform.batch({}, WINDOW_US // MS)
    assert rows == [{"id": 1, "name": "Ada", "window_start": 0}]
    assert not transform.timers
    assert not transform.states["seen"].values


@pytest.mark.parametrize("frames", FORMS)
def test_a_session_ends_after_its_gap_by_the_next_bid_or_by_the_timer(frames: bool):
    transform = FakeTransform(SessionFrames() if frames else Sessions(), frames=frames)

    def bids(*times: int) -> dict[Any, list[dict[str, Any]]]:
        return {(5,): [{"date_time": time} for time in times]}

    far = 10 * GAP_US
    assert transform.batch(bids(GAP_US, 0), 0) == []
    ended = transform.batch(bids(2 * GAP_US, far), GAP_US // MS)
    first = {"bidder": 5, "bid_count": 3, "start_time": 0, "end_time": 3 * GAP_US}
    assert ended == [first]
    assert transform.batch(bids(far + GAP_US + 1, far + 1), far // MS - 1) == []
    last = far + GAP_US + 1
    assert transform.batch({}, (last + GAP_US) // MS) == []
    [row] = transform.batch({}, (last + GAP_US) // MS + 1)
    assert (row["bid_count"], row["start_time"], row["end_time"]) == (3, far, last + GAP_US)
    assert not transform.timers
    assert not transform.states["open"].values
