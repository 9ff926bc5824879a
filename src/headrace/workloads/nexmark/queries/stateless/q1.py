"""What are bids worth in euros?"""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import in_euros
from headrace.workloads.nexmark.streams import Auction


def q1(auction: Auction) -> Stream[Any]:
    """Bids with the price in euros."""
    made: Stream[Any] = auction.bids.select(
        auction="auction", bidder="bidder", price=in_euros(), date_time="date_time"
    )
    return made
