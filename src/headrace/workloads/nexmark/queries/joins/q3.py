"""Who sells in category 10 from Oregon, Idaho or California?

Both sides are kept for ever: an auction may come long after its seller, or a little before.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace import Stream
from headrace.workloads.nexmark.streams import Auction

CATEGORY = 10
STATES = pa.array(["OR", "ID", "CA"])


def q3(auction: Auction) -> Stream[Any]:
    """Auctions of category 10 with their seller, in three states."""
    offers = auction.auctions.filter(pc.field("category") == CATEGORY).select("id", "seller")
    local = auction.people.filter(pc.utf8_upper(pc.field("state")).isin(STATES))
    sellers = local.select("name", "city", "state", seller="id")
    return offers.key_by("seller").join(
        sellers.key_by("seller"),
        select={
            "name": "right.name",
            "city": "right.city",
            "state": "right.state",
            "id": "left.id",
        },
    )
