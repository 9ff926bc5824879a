"""`Accounts`: what each vehicle has paid so far, keyed by vehicle.

A request is answered when the watermark has passed its second, with all charges up to and including
that second. Until then it waits; where the source completes seconds, none does.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import SECOND, Computation, Map, state
from headrace.model.context import TableContext
from headrace.workloads.linear_road.answers import BALANCE, answer_table
from headrace.workloads.linear_road.road import Ints

ACCOUNT = np.dtype([("balance", "<i8"), ("charged", "<i8")])
"""What was charged, and the second of the last charge."""
_NEW = np.zeros(1, ACCOUNT).tobytes()


class Accounts(Computation):
    """The account of one vehicle."""

    reads_values = False
    account: bytes = state(b"")
    waiting: Map[tuple[int, int], int] = state()
    """(second, qid) of requests that wait for the watermark -> how many more wait that are the
    same."""

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Adds charges, and answers the requests whose second is complete."""
        empty = np.zeros(0, np.int64)
        charged: list[Ints] = [empty, empty, empty]
        asked: list[Ints] = [empty, empty, empty]
        for given in ctx.inputs():
            columns: Any = given.rows.columns
            owner = given.key_index.astype(np.int64)
            if given.stream == "charges":
                charged = [owner, _ints(columns["time"]), _ints(columns["toll"])]
            else:
                asked = [owner, _ints(columns["time"]), _ints(columns["qid"])]
        self._settle(charged, asked, ctx)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Answers requests that have waited, of vehicles without new records."""
        empty = [np.zeros(0, np.int64)] * 3
        self._settle(empty, empty, ctx)

    def _settle(self, charged: list[Ints], asked: list[Ints], ctx: TableContext) -> None:
        before = ctx.read()["account"].to_pylist()
        accounts = np.frombuffer(b"".join(a or _NEW for a in before), ACCOUNT).copy()
        asked = self._with_waiting(asked, ctx)
        order = np.lexsort((charged[1], charged[0]))
        owner, time, toll = (column[order] for column in charged)
        starts = np.searchsorted(owner, np.arange(len(accounts) + 1))
        sums = np.concatenate([[0], np.cumsum(toll)])
        if len(asked[0]):
            self._answer(asked, (time, starts, sums), accounts, ctx)
        has = starts[1:] > starts[:-1]
        accounts["balance"] += sums[starts[1:]] - sums[starts[:-1]]
        accounts["charged"][has] = np.maximum(
            accounts["charged"][has], time[starts[1:][has] - 1] if len(time) else 0
        )
        raw, size = accounts.tobytes(), ACCOUNT.itemsize
        ctx.write(
            account=[
                raw[i * size : (i + 1) * size] if changed else old
                for i, (old, changed) in enumerate(zip(before, has.tolist(), strict=True))
            ]
        )

    def _with_waiting(self, asked: list[Ints], ctx: TableContext) -> list[Ints]:
        """The requests to answer now. The others wait, or go on waiting."""
        complete = ctx.watermark_after // SECOND
        entries = ctx.entries("waiting")
        kept = [tuple(entry.values()) for entry in entries["entry"].to_pylist()]
        owner, more = _ints(entries["key_index"]), entries["value"].to_pylist()
        ready = np.array([second < complete for second, _ in kept], np.bool_)
        gone = np.flatnonzero(ready).tolist()
        ctx.put_entries(
            "waiting",
            owner[gone].tolist(),
            [kept[row] for row in gone],
            [None] * len(gone),
        )
        early = asked[1] >= complete
        columns = (column[early].tolist() for column in asked)
        begin = Counter((key, (second, qid)) for key, second, qid in zip(*columns, strict=True))
        waiting = zip(zip(owner.tolist(), kept, strict=True), more, strict=True)
        begin.update({request: 1 + others for request, others in waiting if request in begin})
        ctx.put_entries(
            "waiting",
            [key for key, _ in begin],
            [request for _, request in begin],
            [times - 1 for times in begin.values()],
        )
        # A key wakes for the first of its requests; the others are looked at then.
        first: dict[int, int] = {}
        still = [(int(owner[row]), kept[row][0]) for row in np.flatnonzero(~ready).tolist()]
        for key, second in [*still, *((key, second) for key, (second, _) in begin)]:
            first[key] = min(second, first.get(key, second))
        if first:
            at = [(second + 1) * SECOND for second in first.values()]
            hold = [second * SECOND for second in first.values()]
            ctx.set_timers(list(first), at, hold=hold)
        waited = [[owner[row], *kept[row]] for row in gone for _ in range(1 + more[row])]
        now = [column[~early] for column in asked]
        if not waited:
            return now
        return [
            np.concatenate([column, np.array(others, np.int64)])
            for column, others in zip(now, zip(*waited, strict=True), strict=True)
        ]

    def _answer(
        self, asked: list[Ints], charges: tuple[Ints, ...], accounts: Any, ctx: TableContext
    ) -> None:
        """The balance with the charges up to the second of each request."""
        who, when, qid = asked
        time, starts, sums = charges
        # How many charges of its own vehicle a request has seen.
        seen = np.array(
            [
                int(np.searchsorted(time[starts[key] : starts[key + 1]], second, "right"))
                for key, second in zip(who.tolist(), when.tolist(), strict=True)
            ],
            np.int64,
        )
        until = starts[who] + seen
        balance = accounts["balance"][who] + sums[until] - sums[starts[who]]
        last = np.where(seen > 0, time[np.maximum(until - 1, 0)] if len(time) else 0, 0)
        result_time = np.maximum(accounts["charged"][who], last)
        vids = np.array(ctx.keys(), np.int64)[who]
        table = answer_table(
            BALANCE, time=when, vid=vids, qid=qid, result_time=result_time, balance=balance
        )
        ctx.produce_table(table, timestamp=when * SECOND, ties="content")


def _ints(column: Any) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
