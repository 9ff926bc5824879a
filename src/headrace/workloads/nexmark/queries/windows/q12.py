"""How many bids does each person make in ten seconds of processing time?

The answer depends on when records are processed, so it differs from run to run; a replay of an
epoch repeats its times.
"""

from __future__ import annotations

from typing import Any

from headrace import Stream, tumbling
from headrace.workloads.nexmark.streams import Auction


def q12(auction: Auction) -> Stream[Any]:
    """Bids of a bidder per window of the wall clock."""
    return (
        auction.bids.select("bidder")
        .key_by("bidder")
        .window(tumbling("10s"), by="processing")
        .count("bid_count")
        .select("bidder", "bid_count", start_time="window_start", end_time="window_end")
    )
