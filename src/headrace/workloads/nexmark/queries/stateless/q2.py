"""Bids on some auctions: those whose id is a multiple of 123."""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import remainder
from headrace.workloads.nexmark.streams import Auction


def q2(auction: Auction) -> Stream[Any]:
    """The prices of bids on the chosen auctions."""
    return auction.bids.filter(remainder("auction", 123) == 0).select("auction", "price")
