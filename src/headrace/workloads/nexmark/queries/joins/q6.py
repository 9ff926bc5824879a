"""The average price at which a seller's last ten auctions closed."""

from __future__ import annotations

from typing import Any

from headrace import Computation, Context, Record, Stream, state
from headrace.workloads.nexmark.queries.joins.winning import winning_bids
from headrace.workloads.nexmark.streams import Auction

LAST = 10


class LastClosed(Computation):
    """One seller. Auctions without a bid have no winning price, and do not count."""

    closed: list[tuple[int, int, int]] = state(factory=list)
    """(expires, id, price) of the last ones. The id decides between auctions of one instant."""

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """An auction has closed."""
        won = record.value
        self.closed = sorted([*self.closed, (won["expires"], won["id"], won["price"])])[-LAST:]
        total = sum(price for _, _, price in self.closed)
        ctx.produce({"seller": ctx.key, "avg": total / len(self.closed)})


def q6(auction: Auction) -> Stream[Any]:
    """Per seller, the average of the last ten winning prices."""
    won = winning_bids(auction).select("seller", "expires", "id", "price")
    averages = won.key_by("seller").compute(LastClosed, outputs="averages")
    return averages.select("seller", "avg")
