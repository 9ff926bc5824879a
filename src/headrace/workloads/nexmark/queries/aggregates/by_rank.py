"""How many bids, bidders and auctions there are, in all and by the rank of the price."""

from __future__ import annotations

from typing import Any

from headrace import agg
from headrace.workloads.nexmark.queries.expressions import RANKS, of_rank


def rank_columns() -> dict[str, Any]:
    """The columns that the aggregates need: bidder and auction, once for each rank."""
    return {"bidder": "bidder", "auction": "auction", **of_rank("bidder"), **of_rank("auction")}


def bids_by_rank() -> dict[str, agg.Aggregate]:
    """Numbers of bids."""
    # Every bid of a rank has a bidder in the column of that rank.
    return {
        "total_bids": agg.count(),
        **{f"{rank}_bids": agg.count(f"{rank}_bidder") for rank in RANKS},
    }


def distinct_by_rank() -> dict[str, agg.Aggregate]:
    """Numbers of different bidders, then of different auctions."""
    made: dict[str, agg.Aggregate] = {}
    for column in ("bidder", "auction"):
        made[f"total_{column}s"] = agg.distinct(column)
        made |= {f"{rank}_{column}s": agg.distinct(f"{rank}_{column}") for rank in RANKS}
    return made
