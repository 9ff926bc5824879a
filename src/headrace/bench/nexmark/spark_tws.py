"""The queries with `transformWithState`, in both forms: user code per key, as users write it.

Only the columns that a query needs travel to Python. q3 keeps a seller and the auctions that came
before; q8 keeps a window's seller and newcomer until the watermark closes it; q11 keeps the open
session of a bidder. State is in RocksDB with changelog checkpoints, which this interface needs.
What is done with state is the same in both forms (`SellerState`, ...); here are the processors
that get rows, in `spark_tws_pandas` those that get data frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
Seller = tuple[str, str, str]
Session = tuple[int, int, int]
"""Its first time, its last time, its bids."""


class _Processor(StatefulProcessor):
    def close(self) -> None:
        """Nothing to release."""


class SellerState(_Processor):
    """q3: auctions and their seller; both sides are kept for ever."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._seller = handle.getValueState("seller", SELLER)
        self._offers = handle.getListState("offers", IDS)

    def meet(self, came: Seller | None, ids: list[int]) -> tuple[Seller, list[int]] | None:
        """Auctions meet their seller, now or later: the seller, and the auctions of new rows."""
        seller = self._seller.get()
        if came is not None:
            self._seller.update(came)
            ids += [each[0] for each in self._offers.get()]
            self._offers.clear()
            seller = came
        if seller is None:
            self._offers.appendList([(each,) for each in ids])
            return None
        return (seller[0], seller[1], seller[2]), ids


class NewcomerState(_Processor):
    """q8: a person's registration and sales in one window, until the watermark closes it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._handle = handle
        self._seen = handle.getValueState("seen", REGISTERED)

    def note(self, key: Any, came: str | None, sold: bool) -> None:
        """Notes what came; a row leaves when the window closes."""
        stored = self._seen.get()
        name, had = (None, 0) if stored is None else (stored[0], stored[1])
        self._seen.update((name if came is None else came, 1 if sold else had))
        if stored is None:
            self._handle.registerTimer((key[1] + WINDOW_US) // 1_000)

    def closed(self) -> str | None:
        """The window has closed: who registered and sold."""
        stored = self._seen.get()
        self._seen.clear()
        return stored[0] if stored is not None and stored[1] else None


class SessionState(_Processor):
    """q11: the open session of a bidder; it ends ten seconds after its last bid."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._handle = handle
        self._open = handle.getValueState("open", SESSION)

    def go_on(self, sessions: Iterable[Session]) -> list[Session]:
        """The sessions of a micro-batch follow the open one, or continue it; those that ended."""
        stored, ended = self._open.get(), []
        current = stored
        for session in sessions:
            if current is None:
                current = session
            elif session[0] - current[1] > GAP_US:
                ended.append(_plain(current))
                current = session
            else:
                current = (current[0], session[1], current[2] + session[2])
        if current is not None:
            self._open.update(tuple(current))
            if stored is not None:
                self._handle.deleteTimer(_timer(stored[1]))
            self._handle.registerTimer(_timer(current[1]))
        return ended

    def expired(self) -> list[Session]:
        """No bid came in time."""
        stored = self._open.get()
        self._open.clear()
        return [] if stored is None else [_plain(stored)]


def _plain(session: Iterable[int]) -> Session:
    start, last, count = session
    return start, last, count


def _timer(last: int) -> int:
    """Milliseconds; one more, as a timer must not fire before the session has ended."""
    return (last + GAP_US) // 1_000 + 1


class Sellers(SellerState):
    """q3, from rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Auctions meet their seller."""
        came: Seller | None = None
        ids = []
        for row in rows:
            if row.name is None:
                ids.append(row.id)
            else:
                came = (row.name, row.city, row.state)
        met = self.meet(came, ids)
        if met is not None:
            (name, city, state), ids = met
            for each in ids:
                yield Row(name=name, city=city, state=state, id=each)


class Newcomers(NewcomerState):
    """q8, from rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Notes what came."""
        came, sold = None, False
        for row in rows:
            if row.name is None:
                sold = True
            else:
                came = row.name
        self.note(key, came, sold)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """The window has closed."""
        name = self.closed()
        if name is not None:
            yield Row(id=key[0], name=name, window_start=key[1])


class Sessions(SessionState):
    """q11, from rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Bids come in the order of their times, micro-batch by micro-batch."""
        found: list[Session] = []
        for time in sorted(row.date_time for row in rows):
            if found and time - found[-1][1] <= GAP_US:
                start, _, count = found[-1]
                found[-1] = (start, time, count + 1)
            else:
                found.append((time, time, 1))
        return _session_rows(key[0], self.go_on(found))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """No bid came in time."""
        return _session_rows(key[0], self.expired())


def _session_rows(bidder: int, ended: Iterable[Session]) -> Iterator[Row]:
    for start, last, count in ended:
        yield Row(bidder=bidder, bid_count=count, start_time=start, end_time=last + GAP_US)


@dataclass(frozen=True)
class KeyedEvents:
    """What a query asks of a processor: rows grouped by a key, its output, and its clock."""

    grouped: Any
    output: str
    clock: str


def _q3(events: DataFrame) -> KeyedEvents:
    local = F.upper("state").isin(*STATES) & (F.col("kind") == "person")
    offered = (F.col("category") == CATEGORY) & (F.col("kind") == "auction")
    chosen = events.where(local | offered).select(
        F.when(local, F.col("id")).otherwise(F.col("seller")).alias("seller"),
        F.when(offered, F.col("id")).alias("id"),
        *(F.when(local, F.col(name)).alias(name) for name in ("name", "city", "state")),
    )
    output = "name string, city string, state string, id bigint"
    return KeyedEvents(chosen.groupBy("seller"), output, "None")


def _q8(events: DataFrame) -> KeyedEvents:
    chosen = timed(events.where("kind <> 'bid'")).select(
        F.coalesce("seller", "id").alias("id"),
        (F.col("date_time") - F.col("date_time") % WINDOW_US).alias("window_start"),
        "name",
    )
    output = "id bigint, name string, window_start bigint"
    return KeyedEvents(chosen.groupBy("id", "window_start"), output, "EventTime")


def _q11(events: DataFrame) -> KeyedEvents:
    bids = timed(events.where("kind = 'bid'")).select("bidder", "date_time")
    output = "bidder bigint, bid_count bigint, start_time bigint, end_time bigint"
    return KeyedEvents(bids.groupBy("bidder"), output, "EventTime")


ASK: dict[str, Callable[[DataFrame], KeyedEvents]] = {"q3": _q3, "q8": _q8, "q11": _q11}


def rows_by_rows(query: str, events: DataFrame) -> DataFrame:
    """The rows of a query, by processors that get rows."""
    asked = ASK[query](events)
    processors: Mapping[str, Callable[[], StatefulProcessor]] = {
        "q3": Sellers,
        "q8": Newcomers,
        "q11": Sessions,
    }
    found: DataFrame = asked.grouped.transformWithState(
        statefulProcessor=processors[query](),
        outputStructType=asked.output,
        outputMode="Append",
        timeMode=asked.clock,
    )
    return found


@dataclass(frozen=True)
class TwsNexmark:
    """`transformWithState`, in one of its forms."""

    name: str
    rows: Callable[[str, DataFrame], DataFrame]

    def run(self, task: Task) -> Measurement:
        """Run the query over every file, then read its progress and its rows."""
        query = task.workload.query
        return run_query(self.name, task, lambda events: self.rows(query, events), ROCKSDB_SETTINGS)


TWS_NEXMARK = TwsNexmark(NEXMARK_TWS, rows_by_rows)
