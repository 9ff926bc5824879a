"""The first three directories of a bid's url."""

from __future__ import annotations

from typing import Any

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import matched
from headrace.workloads.nexmark.streams import Auction


def q22(auction: Auction) -> Stream[Any]:
    """Bids with dir1, dir2 and dir3; null where the url has fewer."""
    # Behind `https://host/`, that is three parts that end with a slash.
    parts = {
        f"dir{n}": matched("url", f"^(?:[^/]*/){{{n + 2}}}(?P<found>[^/]*)") for n in (1, 2, 3)
    }
    return auction.bids.select("auction", "bidder", "price", "channel", **parts)
