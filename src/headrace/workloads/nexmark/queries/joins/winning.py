"""The winning bid of each auction, as soon as the auction has closed.

A bid counts if it was made from the auction's `date_time` to its `expires`, both included. The
highest price wins; among equal prices the earliest bid; then the smaller bidder.

Bids may come before their auction: they wait. An auction closes when the watermark has passed
`expires`; what is then left of its state is that time, so that later bids do not wait in vain.
"""

from __future__ import annotations

from typing import Any

from headrace import Computation, Context, Record, Stream, Timer, state
from headrace.workloads.nexmark.events.columns import AUCTION_COLUMNS
from headrace.workloads.nexmark.streams import Auction

LAST = 2**63 - 2
"""An auction that expires later closes when the input ends."""
BID_COLUMNS = ("auction", "bidder", "price", "date_time")

Bid = tuple[int, int, int]
"""(-price, date_time, bidder): the smallest wins."""


class WinningBids(Computation):
    """One auction."""

    offer: dict[str, Any] = state(factory=dict)
    """The auction's columns, while it is open."""
    expires: int | None = state(None)
    """Known from the auction's event on, and kept for ever."""
    best: Bid | None = state(None)
    early: list[Bid] = state(factory=list)
    """Bids that came before their auction."""

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Takes an auction or a bid."""
        if record.stream == "auctions":
            self._open(record.value, ctx)
            return
        value = record.value
        bid = (-value["price"], value["date_time"], value["bidder"])
        if self.expires is None:
            self.early.append(bid)
        elif self.offer:
            self._take(bid)
        elif bid[1] <= self.expires:
            ctx.count("bids on closed auctions")  # late: the auction's row has left

    def _open(self, offer: dict[str, Any], ctx: Context) -> None:
        if self.expires is not None:
            ctx.count("auctions opened twice")
            return
        self.offer, self.expires = dict(offer), offer["expires"]
        for bid in self.early:
            self._take(bid)
        self.early = []
        ctx.set_timer(at=min(offer["expires"], LAST) + 1)

    def _take(self, bid: Bid) -> None:
        opened, closed = self.offer["date_time"], self.offer["expires"]
        if opened <= bid[1] <= closed and (self.best is None or bid < self.best):
            self.best = bid

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The auction has closed: no bid on it can come any more."""
        if self.best is not None:
            price, at, bidder = self.best
            won = {"auction": ctx.key, "bidder": bidder, "price": -price, "bid_date_time": at}
            ctx.produce({**self.offer, **won})
        self.offer, self.best = {}, None


def winning_bids(auction: Auction) -> Stream[Any]:
    """The columns of each auction that had a bid, then those of its winning bid."""
    bids: Stream[Any] = auction.bids.select(*BID_COLUMNS)
    return auction.pipeline.compute(
        WinningBids,
        inputs={auction.auctions: "id", bids: "auction"},
        outputs="winning bids",
    )


AUCTION_NAMES = tuple(AUCTION_COLUMNS.names)
