"""Who won each auction?"""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.queries.joins.winning import AUCTION_NAMES, winning_bids
from headrace.workloads.nexmark.streams import Auction


def q9(auction: Auction) -> Stream[Any]:
    """Each auction with its winning bid, when it has closed."""
    bid = ("auction", "bidder", "price", "bid_date_time")
    return winning_bids(auction).select(*AUCTION_NAMES, *bid)
