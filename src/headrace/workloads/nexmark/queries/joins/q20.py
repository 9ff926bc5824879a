"""Bids with all that is known about their auction, in category 10. Both sides are kept for ever."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from headrace import Stream
from headrace.workloads.nexmark.events.columns import AUCTION_COLUMNS, BID_COLUMNS
from headrace.workloads.nexmark.streams import Auction

CATEGORY = 10
ON_BOTH_SIDES = ("date_time", "extra")


def q20(auction: Auction) -> Stream[Any]:
    """Bids joined with auctions of one category."""
    chosen = auction.auctions.filter(pc.field("category") == CATEGORY)
    return auction.bids.key_by("auction").join(
        chosen.key_by("id"),
        select={
            **{_name("bid", column): f"left.{column}" for column in BID_COLUMNS.names},
            **{_name("auction", column): f"right.{column}" for column in AUCTION_COLUMNS.names},
        },
    )


def _name(side: str, column: str) -> str:
    return f"{side}_{column}" if column in ON_BOTH_SIDES else column
