"""Every bid as it is: what it costs to pass records through."""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.streams import Auction


def q0(auction: Auction) -> Stream[Any]:
    """Bids, unchanged."""
    return auction.bids.select("auction", "bidder", "price", "date_time", "extra")
