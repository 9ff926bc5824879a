"""Who registered and opened an auction within the same ten seconds?"""

from __future__ import annotations

from typing import Any

from headrace import Stream, same_window, tumbling
from headrace.workloads.nexmark.streams import Auction


def q8(auction: Auction) -> Stream[Any]:
    """New people who sell at once. Each comes once per window, however much they sell."""
    window = tumbling("10s")
    people = auction.people.key_by("id", "name").window(window).count("times")
    sellers = auction.auctions.key_by("seller").window(window).count("auctions")
    return (
        people.key_by("id")
        .join(
            sellers.key_by("seller"),
            window=same_window(),
            select={"id": "left.id", "name": "left.name"},
        )
        .select("id", "name", "window_start")
    )
