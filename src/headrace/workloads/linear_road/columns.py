"""The columns of the input, and its fixed numbers. A number that a line does not use is -1."""

from __future__ import annotations

import pyarrow as pa

REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME = 0, 2, 3, 4
"""The types of input lines: a position report, and requests. Travel times are not answered."""
SEGMENTS = 100
SEGMENT_FEET = 5_280

INPUT = pa.schema(
    [
        ("type", pa.int8()),
        ("time", pa.int32()),
        ("vid", pa.int64()),
        ("speed", pa.int16()),
        ("xway", pa.int16()),
        ("lane", pa.int8()),
        ("dir", pa.int8()),
        ("seg", pa.int8()),
        ("pos", pa.int32()),
        ("qid", pa.int64()),
        ("day", pa.int16()),
    ]
)
"""One line of input. `time` is in seconds; requests have no position."""

LINE = (
    *("type", "time", "vid", "speed", "xway", "lane", "dir", "seg", "pos", "qid"),
    *("s_init", "s_end", "dow", "tod", "day"),
)
"""The fifteen integers of a line in a text file."""
