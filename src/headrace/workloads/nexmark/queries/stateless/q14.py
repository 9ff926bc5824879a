"""Expensive bids, the time of day at which they are made, and a count inside a text."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import hour, in_euros
from headrace.workloads.nexmark.streams import Auction

CHEAPEST, DEAREST = 1_000_000, 50_000_000


def q14(auction: Auction) -> Stream[Any]:
    """Bids between two prices, both excluded."""
    at, euros = hour(), in_euros()
    kind = pc.if_else(
        (at >= 8) & (at <= 18),
        pc.scalar("dayTime"),
        pc.if_else((at <= 6) | (at >= 20), pc.scalar("nightTime"), pc.scalar("otherTime")),
    )
    counted = pc.count_substring(pc.field("extra"), options=pc.MatchSubstringOptions("c"))
    chosen = auction.bids.filter((euros > CHEAPEST) & (euros < DEAREST))
    made: Stream[Any] = chosen.select(
        auction="auction",
        bidder="bidder",
        price=euros,
        bidTimeType=kind,
        date_time="date_time",
        c_counts=counted,
    )
    return made
