"""Bids with what a bounded table says about their auction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import remainder
from headrace.workloads.nexmark.streams import Auction

KEYS = 10_000


def side_table() -> pa.Table:
    """The side input: a value for each remainder."""
    return pa.table({"key": range(KEYS), "value": [f"value-{key}" for key in range(KEYS)]})


def q13(auction: Auction) -> Stream[Any]:
    """Bids joined with the side input. Bids without a match are dropped."""
    side = side_table() if auction.side_input is None else auction.side_input
    return (
        auction.bids.select(
            "auction", "bidder", "price", "date_time", key=remainder("auction", KEYS)
        )
        .lookup(side, on="key", how="inner")
        .select("auction", "bidder", "price", "date_time", "value")
    )
