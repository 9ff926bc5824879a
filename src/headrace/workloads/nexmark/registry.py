"""Which queries there are, and the pipeline that asks one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace import Pipeline, Stream
from headrace.errors import HeadraceError
from headrace.model.sink import Sink
from headrace.workloads.nexmark.events.columns import AUCTION_COLUMNS, BID_COLUMNS
from headrace.workloads.nexmark.queries.aggregates.q15 import q15
from headrace.workloads.nexmark.queries.aggregates.q16 import q16
from headrace.workloads.nexmark.queries.aggregates.q17 import q17
from headrace.workloads.nexmark.queries.aggregates.q18 import q18
from headrace.workloads.nexmark.queries.aggregates.q19 import q19
from headrace.workloads.nexmark.queries.joins.q3 import q3
from headrace.workloads.nexmark.queries.joins.q4 import q4
from headrace.workloads.nexmark.queries.joins.q6 import q6
from headrace.workloads.nexmark.queries.joins.q9 import q9
from headrace.workloads.nexmark.queries.joins.q13 import q13
from headrace.workloads.nexmark.queries.joins.q20 import q20
from headrace.workloads.nexmark.queries.stateless.q0 import q0
from headrace.workloads.nexmark.queries.stateless.q1 import q1
from headrace.workloads.nexmark.queries.stateless.q2 import q2
from headrace.workloads.nexmark.queries.stateless.q10 import q10
from headrace.workloads.nexmark.queries.stateless.q14 import q14
from headrace.workloads.nexmark.queries.stateless.q21 import q21
from headrace.workloads.nexmark.queries.stateless.q22 import q22
from headrace.workloads.nexmark.queries.windows.q5 import q5
from headrace.workloads.nexmark.queries.windows.q7 import q7
from headrace.workloads.nexmark.queries.windows.q8 import q8
from headrace.workloads.nexmark.queries.windows.q11 import q11
from headrace.workloads.nexmark.queries.windows.q12 import q12
from headrace.workloads.nexmark.streams import Auction

Build = Callable[[Auction], Stream[Any]]


@dataclass(frozen=True)
class NexmarkQuery:
    """One question: how it is asked, and what its rows mean."""

    name: str
    build: Build
    about: str
    columns: tuple[str, ...]
    """The columns of its rows."""
    key: tuple[str, ...] = ()
    """If a newer row replaces an older one: the columns by which it does."""
    partition_by: tuple[str, ...] = ()
    """The columns by which files are partitioned."""

    def __call__(self, auction: Auction, sink: Sink | None = None) -> Stream[Any]:
        """Adds the query to the pipeline of its input; the result is the stream `name`."""
        rows = self.build(auction).named(self.name)
        return rows if sink is None else rows.write(sink)


def query(name: str) -> NexmarkQuery:
    """A query by name; raises HeadraceError with the names of all."""
    if name not in QUERIES:
        known = "\n".join(f"  {known}: {one.about}" for known, one in QUERIES.items())
        raise HeadraceError(f"nexmark: there is no query {name!r}. Queries:\n{known}")
    return QUERIES[name]


def pipeline(name: str, ask: Callable[[Pipeline], Auction], sink: Sink | None = None) -> Pipeline:
    """The pipeline of a query. `ask` adds the sources: `lambda p: Auction.of_sources(p, ...)`."""
    asked = query(name)
    made = Pipeline(f"nexmark-{name}")
    asked(ask(made), sink)
    return made


_BID, _AUCTION = tuple(BID_COLUMNS.names), tuple(AUCTION_COLUMNS.names)
_PLAIN_BID = ("auction", "bidder", "price", "date_time", "extra")
_SESSION = ("bidder", "bid_count", "start_time", "end_time")


def _ranked(what: str) -> tuple[str, ...]:
    return (f"total_{what}", f"rank1_{what}", f"rank2_{what}", f"rank3_{what}")


_STATISTICS = (*_ranked("bids"), *_ranked("bidders"), *_ranked("auctions"))
_PRICES = ("min_price", "max_price", "avg_price", "sum_price")
_BOTH = tuple(
    f"{side}_{name}" if name in ("date_time", "extra") else name
    for side, names in (("bid", _BID), ("auction", _AUCTION))
    for name in names
)

_ALL = (
    NexmarkQuery("q0", q0, "every bid as it is", _PLAIN_BID),
    NexmarkQuery("q1", q1, "bids with the price in euros", _PLAIN_BID[:-1]),
    NexmarkQuery("q2", q2, "bids on auctions whose id is a multiple of 123", ("auction", "price")),
    NexmarkQuery(
        "q3", q3, "sellers of category 10 in three states", ("name", "city", "state", "id")
    ),
    NexmarkQuery(
        "q4", q4, "average winning price per category", ("category", "avg"), ("category",)
    ),
    NexmarkQuery("q5", q5, "busiest auctions of ten seconds", ("auction", "num", "window_start")),
    NexmarkQuery("q6", q6, "average price of a seller's last ten", ("seller", "avg"), ("seller",)),
    NexmarkQuery(
        "q7", q7, "highest bids of ten seconds", ("auction", "price", "bidder", "date_time")
    ),
    NexmarkQuery(
        "q8", q8, "people who registered and sold at once", ("id", "name", "window_start")
    ),
    NexmarkQuery(
        "q9",
        q9,
        "the winning bid of each auction",
        (*_AUCTION, "auction", "bidder", "price", "bid_date_time"),
    ),
    NexmarkQuery(
        "q10",
        q10,
        "bids in files by day and minute",
        (*_PLAIN_BID, "day", "minute"),
        partition_by=("day", "minute"),
    ),
    NexmarkQuery("q11", q11, "sessions of bidders", _SESSION),
    NexmarkQuery("q12", q12, "bids per bidder and ten seconds of processing time", _SESSION),
    NexmarkQuery("q13", q13, "bids joined with a bounded table", (*_PLAIN_BID[:-1], "value")),
    NexmarkQuery(
        "q14",
        q14,
        "expensive bids and the time of day",
        ("auction", "bidder", "price", "bidTimeType", "date_time", "c_counts"),
    ),
    NexmarkQuery("q15", q15, "statistics of each day", ("day", *_STATISTICS), ("day",)),
    NexmarkQuery(
        "q16",
        q16,
        "statistics of each channel and day",
        ("channel", "day", "minute", *_STATISTICS),
        ("channel", "day"),
    ),
    NexmarkQuery(
        "q17",
        q17,
        "statistics of each auction and day",
        ("auction", "day", *_ranked("bids"), *_PRICES),
        ("auction", "day"),
    ),
    NexmarkQuery("q18", q18, "the last bid per bidder and auction", _BID, ("bidder", "auction")),
    NexmarkQuery(
        "q19",
        q19,
        "the ten highest bids of each auction",
        (*_BID, "rank_number"),
        ("auction", "rank_number"),
    ),
    NexmarkQuery("q20", q20, "bids joined with auctions of category 10", _BOTH),
    NexmarkQuery(
        "q21",
        q21,
        "bids with the id of their channel",
        ("auction", "bidder", "price", "channel", "channel_id"),
    ),
    NexmarkQuery(
        "q22",
        q22,
        "bids with three directories of their url",
        ("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3"),
    ),
)
QUERIES = {one.name: one for one in _ALL}
