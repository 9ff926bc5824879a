"""Which auctions have the most bids in the last ten seconds, every two seconds?"""

from __future__ import annotations

from typing import Any

from headrace import Stream, hopping, same_window
from headrace.workloads.nexmark.streams import Auction


def q5(auction: Auction) -> Stream[Any]:
    """The busiest auctions of each window: all that share the first place."""
    return (
        auction.bids.select("auction")
        .key_by("auction")
        .window(hopping("10s", every="2s"))
        .count("num")
        .key_by()
        .window(same_window())
        .top(1, by="num", ties=True)
        .select("auction", "num", "window_start")
    )
