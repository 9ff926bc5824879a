"""The queries with `transformWithStateInPandas`: the records of a key are data frames.

What is done with state is that of `spark_tws`. Most keys have a few rows in a micro-batch, so their
columns are read as lists; the bids of a bidder may be many, and are cut into sessions as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.bench.frame.system import NEXMARK_TWS_PANDAS
from headrace.bench.nexmark.answers import GAP_US
from headrace.bench.nexmark.spark_tws import (
    ASK,
    NewcomerState,
    Seller,
    SellerState,
    Session,
    SessionState,
    TwsNexmark,
)


class SellerFrames(SellerState):
    """q3, from data frames."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Auctions meet their seller."""
        came: Seller | None = None
        ids: list[int] = []
        for frame in rows:
            columns = (frame[column].tolist() for column in ("id", "name", "city", "state"))
            for id_, name, city, state in zip(*columns):
                if name is None:
                    ids.append(int(id_))
                else:
                    came = (name, city, state)
        met = self.meet(came, ids)
        if met is not None and met[1]:
            (name, city, state), ids = met
            yield pd.DataFrame({"name": name, "city": city, "state": state, "id": ids})


class NewcomerFrames(NewcomerState):
    """q8, from data frames."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Notes what came."""
        came, sold = None, False
        for frame in rows:
            for name in frame["name"].tolist():
                if name is None:
                    sold = True
                else:
                    came = name
        self.note(key, came, sold)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """The window has closed."""
        name = self.closed()
        if name is not None:
            yield pd.DataFrame({"id": [key[0]], "name": [name], "window_start": [key[1]]})


class SessionFrames(SessionState):
    """q11, from data frames."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Bids come in the order of their times, micro-batch by micro-batch."""
        times = np.sort(np.concatenate([frame["date_time"].to_numpy() for frame in rows]))
        begins = np.flatnonzero(np.diff(times, prepend=times[0] - GAP_US - 1) > GAP_US)
        ends = np.append(begins[1:], len(times))
        found = zip(times[begins].tolist(), times[ends - 1].tolist(), (ends - begins).tolist())
        return _session_frames(key[0], self.go_on(found))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """No bid came in time."""
        return _session_frames(key[0], self.expired())


def _session_frames(bidder: int, ended: list[Session]) -> Iterator[pd.DataFrame]:
    if ended:
        starts, lasts, counts = zip(*ended)
        yield pd.DataFrame(
            {
                "bidder": bidder,
                "bid_count": counts,
                "start_time": starts,
                "end_time": [last + GAP_US for last in lasts],
            }
        )


def rows_by_frames(query: str, events: DataFrame) -> DataFrame:
    """The rows of a query, by processors that get data frames."""
    asked = ASK[query](events)
    processors: Mapping[str, Callable[[], StatefulProcessor]] = {
        "q3": SellerFrames,
        "q8": NewcomerFrames,
        "q11": SessionFrames,
    }
    found: DataFrame = asked.grouped.transformWithStateInPandas(
        statefulProcessor=processors[query](),
        outputStructType=asked.output,
        outputMode="Append",
        timeMode=asked.clock,
    )
    return found


TWS_PANDAS_NEXMARK = TwsNexmark(NEXMARK_TWS_PANDAS, rows_by_frames)
