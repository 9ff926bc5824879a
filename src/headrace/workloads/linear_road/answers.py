"""The answers as rows of one stream: all types have the same columns, with nulls where unused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

TOLL, ALERT, BALANCE, EXPENDITURE = 0, 1, 2, 3
"""The types of answers."""

ANSWER = pa.schema(
    [("type", pa.int8())]
    + [
        (name, pa.int64())
        for name in (
            *("time", "vid", "qid", "xway", "dir", "seg"),
            *("lav", "toll", "result_time", "balance"),
        )
    ]
)
"""- toll: vid, time, lav, toll (and where: xway, dir, seg)
- alert: time, xway, seg, dir, vid
- balance: time, result_time, qid, balance (and vid)
- expenditure: time, qid, toll (and vid)

`emit` is no column: an answer is emitted when its epoch appears at the sink.
"""


def answer_table(kind: int, **columns: Any) -> pa.Table:
    """Answers of one type."""
    count = len(columns["time"])
    given = {"type": np.full(count, kind, np.int8), **columns}
    return pa.table(
        [
            pa.array(given[f.name], f.type) if f.name in given else pa.nulls(count, f.type)
            for f in ANSWER
        ],
        schema=ANSWER,
    )
