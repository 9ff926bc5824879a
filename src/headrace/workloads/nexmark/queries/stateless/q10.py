"""Every bid, written to files partitioned by day and minute."""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import day, minute
from headrace.workloads.nexmark.streams import Auction


def q10(auction: Auction) -> Stream[Any]:
    """Bids with their day and minute; the sink partitions by these."""
    return auction.bids.select(
        "auction", "bidder", "price", "date_time", "extra", day=day(), minute=minute()
    )
