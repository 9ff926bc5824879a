"""What did each bidder last bid on each auction?"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace import Stream, whole
from headrace.workloads.nexmark.events.columns import BID_COLUMNS
from headrace.workloads.nexmark.streams import Auction


def q18(auction: Auction) -> Stream[Any]:
    """The last bid per bidder and auction; of bids at the same time, that of the smaller extra.
    A bid without an extra comes after those that have one, as nulls do in SQL."""
    told = pc.field("extra").is_valid().cast(pa.int64())
    return (
        auction.bids.select(*BID_COLUMNS.names, told=told)
        .key_by("bidder", "auction")
        .window(whole(), emit="changes")
        .top(1, by=("date_time", "told", "-extra"))
        .select(*BID_COLUMNS.names)
    )
