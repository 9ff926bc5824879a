"""How many bids does each person make in one go?"""

from __future__ import annotations

from typing import Any

from headrace import Stream, session
from headrace.workloads.nexmark.streams import Auction


def q11(auction: Auction) -> Stream[Any]:
    """Sessions of a bidder, ended by ten seconds without a bid. `end_time` is ten seconds after
    the last bid."""
    return (
        auction.bids.select("bidder")
        .key_by("bidder")
        .window(session("10s"))
        .count("bid_count")
        .select("bidder", "bid_count", start_time="window_start", end_time="window_end")
    )
