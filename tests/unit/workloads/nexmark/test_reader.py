"""Files of others: times as text or numbers, further columns, and records that are no events."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import HeadraceError, Pipeline
from headrace.testing import Harness
from headrace.workloads.nexmark.events.columns import EVENT_COLUMNS
from headrace.workloads.nexmark.events.reader import event_files, read_foreign

BID = {"kind": "bid", "auction": 1, "bidder": 2, "price": 3, "date_time": 1_436_918_400_000_000}


def reading(dead: str | None = None) -> Harness:
    p = Pipeline("events")
    read_foreign(p, event_files("events.jsonl"), dead=dead)
    return Harness(p)


def read(*values: Any) -> list[dict[str, Any]]:
    with reading() as h:
        h.send("read", *values)
        h.end()
        return h.read("events")


@pytest.mark.parametrize(
    "text",
    ["2015-07-15T00:00:00Z", "2015-07-15 00:00:00", "2015-07-15T02:00:00+02:00", "2015-07-15"],
)
def test_times_are_microseconds_whatever_they_were(text: str) -> None:
    [row] = read({**BID, "date_time": text})
    assert row["date_time"] == BID["date_time"]


def test_every_event_has_all_columns_and_no_others() -> None:
    rows = read(
        BID,
        {"kind": "person", "id": 7, "name": "Ada", "date_time": 1, "more": {"deep": [1]}},
        {"kind": "auction", "id": 8, "initial_bid": 1, "reserve": 2, "date_time": 2,
         "expires": "1970-01-01T00:00:01Z", "seller": 7, "category": 10},
    )  # fmt: skip
    assert [tuple(row) for row in rows] == [tuple(EVENT_COLUMNS.names)] * 3
    assert [row["kind"] for row in rows] == ["bid", "person", "auction"]
    assert (rows[0]["extra"], rows[1]["name"], rows[2]["expires"]) == (None, "Ada", 1_000_000)


WRONG = [
    ({**BID, "kind": "sale"}, "the kind of an event is one of person, auction, bid, not 'sale'"),
    ({"date_time": 1}, "the kind of an event is one of person, auction, bid, not None"),
    ({**BID, "price": None}, "the bid has no 'price'"),
    ({**BID, "price": "3"}, "'price' of the bid is '3', not a whole number"),
    ({**BID, "price": True}, "'price' of the bid is True, not a whole number"),
    ({**BID, "price": 2**63}, "'price' of the bid does not fit into 64 bits"),
    ({**BID, "channel": 5}, "'channel' of the bid is 5, not text"),
    (
        {"kind": "auction", "id": 1, "initial_bid": 1, "reserve": 1, "seller": 1, "category": 1,
         "date_time": 1, "expires": "soon"},
        "'expires' of the auction: the timestamp 'soon' is not ISO 8601",
    ),
]  # fmt: skip


@pytest.mark.parametrize("value, reason", WRONG)
def test_what_is_no_event_stops_the_pipeline_and_is_named(value: Any, reason: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        read(BID, value)
    assert reason in str(raised.value)


def test_dead_letters_leave_the_other_events_alone() -> None:
    with reading(dead="dead") as h:
        h.send("read", BID, *(value for value, _ in WRONG), {**BID, "price": 4})
        h.end()
        assert [row["price"] for row in h.read("events")] == [3, 4]
        assert len(h.read("dead")) == len(WRONG)
