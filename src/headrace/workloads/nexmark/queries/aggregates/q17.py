"""Statistics of every auction and day."""

from __future__ import annotations

from typing import Any

from headrace import Stream, agg
from headrace.workloads.nexmark.queries.aggregates.by_rank import bids_by_rank
from headrace.workloads.nexmark.queries.expressions import day, of_rank
from headrace.workloads.nexmark.streams import Auction


def q17(auction: Auction) -> Stream[Any]:
    """Per auction and day: bids in all and by rank, and their prices."""
    bids = auction.bids.select("auction", "price", day=day(), **of_rank("bidder"))
    return bids.key_by("auction", "day").aggregate(
        **bids_by_rank(),
        min_price=agg.min("price"),
        max_price=agg.max("price"),
        avg_price=agg.mean("price"),
        sum_price=agg.sum("price"),
    )
