"""What are the ten highest bids of each auction?"""

from __future__ import annotations

from typing import Any

from headrace import Stream, whole
from headrace.workloads.nexmark.events.columns import BID_COLUMNS
from headrace.workloads.nexmark.streams import Auction

HIGHEST = 10


def q19(auction: Auction) -> Stream[Any]:
    """The highest bids, ranked. Of equal prices the earlier bid comes first, then the smaller
    bidder; every bid has a rank of its own."""
    return (
        auction.bids.key_by("auction")
        .window(whole(), emit="changes")
        .top(HIGHEST, by=("price", "-date_time", "-bidder"), numbered=True)
        .select(*BID_COLUMNS.names, rank_number="rank")
    )
