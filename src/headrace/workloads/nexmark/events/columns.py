"""The columns of events. Times are integer microseconds since 1970 UTC.

A stream of events has the columns of all three kinds; those of the other kinds are null. Which
columns a record must have is in `REQUIRED`: a text that is missing is null.
"""

from __future__ import annotations

import pyarrow as pa

PERSON, AUCTION, BID = "person", "auction", "bid"
KINDS = (PERSON, AUCTION, BID)

_INT, _TEXT = pa.int64(), pa.string()

PERSON_COLUMNS = pa.schema(
    [
        ("id", _INT),
        ("name", _TEXT),
        ("email_address", _TEXT),
        ("credit_card", _TEXT),
        ("city", _TEXT),
        ("state", _TEXT),
        ("date_time", _INT),
        ("extra", _TEXT),
    ]
)
AUCTION_COLUMNS = pa.schema(
    [
        ("id", _INT),
        ("item_name", _TEXT),
        ("description", _TEXT),
        ("initial_bid", _INT),
        ("reserve", _INT),
        ("date_time", _INT),
        ("expires", _INT),
        ("seller", _INT),
        ("category", _INT),
        ("extra", _TEXT),
    ]
)
BID_COLUMNS = pa.schema(
    [
        ("auction", _INT),
        ("bidder", _INT),
        ("price", _INT),
        ("channel", _TEXT),
        ("url", _TEXT),
        ("date_time", _INT),
        ("extra", _TEXT),
    ]
)
COLUMNS_OF = {PERSON: PERSON_COLUMNS, AUCTION: AUCTION_COLUMNS, BID: BID_COLUMNS}
TIMES = ("date_time", "expires")

REQUIRED = {
    kind: tuple(field.name for field in columns if field.type == _INT)
    for kind, columns in COLUMNS_OF.items()
}

EVENT_COLUMNS = pa.schema(
    [
        pa.field("kind", _TEXT, nullable=False),
        pa.field("date_time", _INT, nullable=False),
        *{
            field.name: field
            for columns in COLUMNS_OF.values()
            for field in columns
            if field.name != "date_time"
        }.values(),
    ]
)
