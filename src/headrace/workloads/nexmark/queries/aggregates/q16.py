"""Statistics of every channel and day."""

from __future__ import annotations

from typing import Any

from headrace import Stream, agg
from headrace.workloads.nexmark.queries.aggregates.by_rank import (
    bids_by_rank,
    distinct_by_rank,
    rank_columns,
)
from headrace.workloads.nexmark.queries.expressions import day, minute
from headrace.workloads.nexmark.streams import Auction


def q16(auction: Auction) -> Stream[Any]:
    """Per channel and day: as query 15, and the latest minute of a bid."""
    bids = auction.bids.select("channel", day=day(), minute=minute(), **rank_columns())
    return bids.key_by("channel", "day").aggregate(
        minute=agg.max("minute"), **bids_by_rank(), **distinct_by_rank()
    )
