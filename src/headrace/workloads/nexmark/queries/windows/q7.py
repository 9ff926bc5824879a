"""The highest bids of every ten seconds."""

from __future__ import annotations

from typing import Any

from headrace import Stream, tumbling
from headrace.workloads.nexmark.streams import Auction


def q7(auction: Auction) -> Stream[Any]:
    """The bids with the highest price of their window: all that share it."""
    return (
        auction.bids.select("auction", "price", "bidder", "date_time")
        .key_by()
        .window(tumbling("10s"))
        .top(1, by="price", ties=True)
        .select("auction", "price", "bidder", "date_time")
    )
