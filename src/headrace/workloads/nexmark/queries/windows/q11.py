"""How many bids does each person make in one go?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow.compute as pc

from headrace import Stream, session
from headrace.workloads.nexmark.streams import Auction


def q11(auction: Auction) -> Stream[Any]:
    """Sessions of a bidder, ended by more than ten seconds without a bid. `end_time` is ten seconds
    after the last bid: a bid at that very time belongs to the session, as in Spark and Flink."""
    return (
        auction.bids.select("bidder")
        .key_by("bidder")
        .window(session(timedelta(seconds=10, microseconds=1)))
        .count("bid_count")
        .select(
            "bidder", "bid_count", start_time="window_start", end_time=pc.field("window_end") - 1
        )
    )
