"""Statistics of every day."""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.queries.aggregates.by_rank import (
    bids_by_rank,
    distinct_by_rank,
    rank_columns,
)
from headrace.workloads.nexmark.queries.expressions import day
from headrace.workloads.nexmark.streams import Auction


def q15(auction: Auction) -> Stream[Any]:
    """Per day: bids, bidders and auctions, in all and by rank."""
    bids = auction.bids.select(day=day(), **rank_columns())
    return bids.key_by("day").aggregate(**bids_by_rank(), **distinct_by_rank())
