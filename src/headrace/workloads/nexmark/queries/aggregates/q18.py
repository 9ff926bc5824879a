"""What did each bidder last bid on each auction?"""

from __future__ import annotations

from typing import Any

from headrace import Stream, whole
from headrace.workloads.nexmark.events.columns import BID_COLUMNS
from headrace.workloads.nexmark.streams import Auction


def q18(auction: Auction) -> Stream[Any]:
    """The last bid per bidder and auction; of bids at the same time, that of the smaller extra."""
    return (
        auction.bids.key_by("bidder", "auction")
        .window(whole(), emit="changes")
        .top(1, by=("date_time", "-extra"))
        .select(*BID_COLUMNS.names)
    )
