"""Which channel does a bid come from? Four are known by name, others carry an id in their url."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from headrace import Stream
from headrace.workloads.nexmark.queries.expressions import matched
from headrace.workloads.nexmark.streams import Auction

ID_OF = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
ID_IN_URL = "[?&]channel_id=(?P<found>[^&]*)"


def q21(auction: Auction) -> Stream[Any]:
    """Bids with the id of their channel; bids without one are dropped."""
    id_, name = matched("url", ID_IN_URL), pc.utf8_lower(pc.field("channel"))
    for known, its in ID_OF.items():
        # The channel may be null, which equals nothing.
        id_ = pc.if_else(pc.coalesce(name == known, pc.scalar(False)), pc.scalar(its), id_)
    found = auction.bids.select("auction", "bidder", "price", "channel", channel_id=id_)
    return found.filter(pc.field("channel_id").is_valid())
