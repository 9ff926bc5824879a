"""The queries with `transformWithState` (rows): user code per key, as a user would write it.

Only the columns that a query needs travel to Python. q3 keeps a seller and the auctions that came
before; q8 keeps a window's seller and newcomer until the watermark closes it; q11 keeps the open
session of a bidder. State is in RocksDB with changelog checkpoints, which this interface needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.bench.frame.system import NEXMARK_TWS, Measurement, Task
from headrace.bench.nexmark.answers import CATEGORY, GAP_US, STATES, WINDOW_US
from headrace.bench.nexmark.spark_native import run_query, timed
from headrace.bench.peers.spark_tws import ROCKSDB_SETTINGS

SELLER = StructType([StructField(n, StringType()) for n in ("name", "city", "state")])
IDS = StructType([StructField("id", LongType())])
SESSION = StructType([StructField(n, LongType()) for n in ("start", "last", "count")])
REGISTERED = StructType([StructField("name", StringType()), StructField("sold", LongType())])


class _Processor(StatefulProcessor):
    def close(self) -> None:
        """Nothing to release."""


class Sellers(_Processor):
    """q3: joins auctions with their seller; both sides are kept for ever."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._seller = handle.getValueState("seller", SELLER)
        self._offers = handle.getListState("offers", IDS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Auctions meet their seller, now or later."""
        seller, ids = self._seller.get(), []
        came = None
        for row in rows:
            if row.name is None:
                ids.append(row.id)
            else:
                came = (row.name, row.city, row.state)
        if came is not None:
            self._seller.update(came)
            ids += [each[0] for each in self._offers.get()]
            self._offers.clear()
            seller = came
        if seller is None:
            self._offers.appendList([(each,) for each in ids])
            return
        for each in ids:
            yield Row(name=seller[0], city=seller[1], state=seller[2], id=each)


class Newcomers(_Processor):
    """q8: a person's registration and sales in one window, until the watermark closes it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._handle = handle
        self._seen = handle.getValueState("seen", REGISTERED)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Notes what came; a row leaves when the window closes."""
        stored = self._seen.get()
        name, sold = (None, 0) if stored is None else (stored[0], stored[1])
        for row in rows:
            if row.name is None:
                sold = 1
            else:
                name = row.name
        self._seen.update((name, sold))
        if stored is None:
            self._handle.registerTimer((key[1] + WINDOW_US) // 1_000)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """The window has closed."""
        stored = self._seen.get()
        self._seen.clear()
        if stored is not None and stored[0] is not None and stored[1]:
            yield Row(id=key[0], name=stored[0], window_start=key[1])


class Sessions(_Processor):
    """q11: the open session of a bidder; it ends ten seconds after its last bid."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._handle = handle
        self._open = handle.getValueState("open", SESSION)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Bids come in the order of their times, micro-batch by micro-batch."""
        stored = self._open.get()
        start, last, count = (0, 0, 0) if stored is None else tuple(stored)
        before = last
        for time in sorted(row.date_time for row in rows):
            if count and time - last > GAP_US:
                yield _session(key[0], start, last, count)
                count = 0
            if not count:
                start = time
            last, count = time, count + 1
        self._open.update((start, last, count))
        if stored is not None:
            self._handle.deleteTimer(_timer(before))
        self._handle.registerTimer(_timer(last))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """No bid came in time."""
        stored = self._open.get()
        self._open.clear()
        if stored is not None:
            yield _session(key[0], *stored)


def _timer(last: int) -> int:
    """Milliseconds; one more, as a timer must not fire before the session has ended."""
    return (last + GAP_US) // 1_000 + 1


def _session(bidder: int, start: int, last: int, count: int) -> Row:
    return Row(bidder=bidder, bid_count=count, start_time=start, end_time=last + GAP_US)


def _q3(events: DataFrame) -> DataFrame:
    local = F.upper("state").isin(*STATES) & (F.col("kind") == "person")
    offered = (F.col("category") == CATEGORY) & (F.col("kind") == "auction")
    chosen = events.where(local | offered).select(
        F.when(local, F.col("id")).otherwise(F.col("seller")).alias("seller"),
        F.when(offered, F.col("id")).alias("id"),
        *(F.when(local, F.col(name)).alias(name) for name in ("name", "city", "state")),
    )
    return _by(chosen, "seller").transformWithState(
        statefulProcessor=Sellers(),
        outputStructType="name string, city string, state string, id bigint",
        outputMode="Append",
        timeMode="None",
    )


def _q8(events: DataFrame) -> DataFrame:
    chosen = timed(events.where("kind <> 'bid'")).select(
        F.coalesce("seller", "id").alias("id"),
        (F.col("date_time") - F.col("date_time") % WINDOW_US).alias("window_start"),
        "name",
        "at",
    )
    return _by(chosen, "id", "window_start").transformWithState(
        statefulProcessor=Newcomers(),
        outputStructType="id bigint, name string, window_start bigint",
        outputMode="Append",
        timeMode="EventTime",
    )


def _q11(events: DataFrame) -> DataFrame:
    bids = timed(events.where("kind = 'bid'")).select("bidder", "date_time", "at")
    return _by(bids, "bidder").transformWithState(
        statefulProcessor=Sessions(),
        outputStructType="bidder bigint, bid_count bigint, start_time bigint, end_time bigint",
        outputMode="Append",
        timeMode="EventTime",
    )


def _by(rows: DataFrame, *columns: str) -> Any:
    return rows.groupBy(*columns)


BUILD: dict[str, Callable[[DataFrame], DataFrame]] = {"q3": _q3, "q8": _q8, "q11": _q11}


class TwsNexmark:
    """`transformWithState` with the Row interface."""

    name = NEXMARK_TWS

    def run(self, task: Task) -> Measurement:
        """Run the query over every file, then read its progress and its rows."""
        return run_query(self.name, task, BUILD[task.workload.query], ROCKSDB_SETTINGS)


TWS_NEXMARK = TwsNexmark()
