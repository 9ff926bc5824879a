"""The events on which queries are compared with the oracle: generated ones, and awkward ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace import DAY, HOUR, SECOND
from headrace.workloads.nexmark.events.generator import START_US, Generator

# Parts of the events begin just before an hour at which a query changes its mind, or a day.
BEGIN_AT = (0, 7 * HOUR - 3 * SECOND, 19 * HOUR - 2 * SECOND, 2 * DAY - 4 * SECOND)


def generated(count: int, rate: float) -> Iterator[dict[str, Any]]:
    """`count` events in order of their times, which leap from part to part."""
    bounds = [count * part // len(BEGIN_AT) for part in range(len(BEGIN_AT) + 1)]
    for (first, end), at in zip(pairwise(bounds), BEGIN_AT, strict=True):
        start = START_US + at - int(first / rate * SECOND)
        yield from Generator(seed=3, rate=rate, start_us=start).rows(first, end)


def iso(micros: int) -> str:
    """A time of the last part of these events, as text without a zone."""
    return f"2015-08-01T12:00:{micros // SECOND:02}.{micros % SECOND:06}"


def awkward() -> list[dict[str, Any]]:
    """Ties, ends of intervals, missing and further columns, times as text; in order of time."""
    second = SECOND
    person = {"kind": "person", "name": "Ada", "city": "Bend", "extra": None}
    offer = {"kind": "auction", "initial_bid": 1, "reserve": 2, "seller": 9_000_001, "category": 10}
    bid = {"kind": "bid", "channel": "GOOGLE", "url": "https://h/a/b/c/x.htm?query=1", "extra": "c"}

    def at(micros: int, event: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any]]:
        return micros, {**event, "date_time": iso(micros), **more}

    auction = {**offer, "item_name": "pot", "nothing": {"known": [1, 2]}}
    early = {"auction": 9_000_100, "bidder": 9_000_001}
    events = [
        at(0, person, id=9_000_001, state="or"),
        at(0, person, id=9_000_002, state="Id", unknown=True),
        # Bids before their auction, at its first and last instant, and outside of it.
        at(0, bid, **early, price=900),
        at(1 * second, bid, **early, price=500),
        at(1 * second, auction, id=9_000_100, expires=iso(3 * second)),
        at(1 * second, bid, **early, price=500, channel=None),
        at(3 * second, bid, **{**early, "bidder": 9_000_003}, price=700, extra="b"),
        at(3 * second, bid, **{**early, "bidder": 9_000_002}, price=700, extra="bb"),
        at(3 * second + 1, bid, **early, price=999, extra="late"),
        # A session ends after ten seconds without a bid, not before.
        at(13 * second, bid, **early, price=10_000, extra=""),
        at(23 * second, bid, **early, price=999_999, url="https://h?channel_id=", channel="x"),
        at(33 * second - 1, bid, **early, price=1_000_000, url="none", channel="x"),
        at(33 * second - 1, bid, **early, price=1_000_000, url=None, channel="x"),
        # Two auctions of one seller close together; one has no bid.
        at(40 * second, auction, id=9_000_201, expires=iso(41 * second)),
        at(40 * second, auction, id=9_000_202, expires=iso(41 * second), category=11),
        at(40 * second, auction, id=9_000_203, expires=iso(41 * second)),
        at(41 * second, bid, auction=9_000_202, bidder=9_000_002, price=1_101_322),
        at(41 * second, bid, auction=9_000_203, bidder=9_000_002, price=55_066_079),
        at(41 * second, bid, auction=9_000_203, bidder=9_000_002, price=55_066_079),
        at(41 * second, bid, auction=9_000_033, bidder=9_000_002, price=1),  # 123 * 73,171
        at(42 * second, person, id=9_000_004, state="CA", name="Early seller"),
        at(42 * second, auction, id=9_000_300, seller=9_000_005, expires=iso(43 * second)),
        # Of bids at one time, one has no extra.
        at(44 * second, bid, auction=9_000_400, bidder=9_000_002, price=2, extra=None),
        at(44 * second, bid, auction=9_000_400, bidder=9_000_002, price=3, extra="d"),
        at(55 * second, person, id=9_000_005, state="CA", name="Late seller"),
    ]
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


def write_events(file: Path, events: list[dict[str, Any]]) -> None:
    """As JSON lines."""
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
