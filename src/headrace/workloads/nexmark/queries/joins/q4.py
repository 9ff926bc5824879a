"""The average price at which auctions of a category close."""

from __future__ import annotations

from typing import Any

from headrace import Stream, agg
from headrace.workloads.nexmark.queries.joins.winning import winning_bids
from headrace.workloads.nexmark.streams import Auction


def q4(auction: Auction) -> Stream[Any]:
    """Per category, the average of the winning prices so far."""
    won = winning_bids(auction).select("category", "price")
    return won.key_by("category").aggregate(avg=agg.mean("price"))
