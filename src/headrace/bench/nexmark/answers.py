"""Input files of Nexmark events, and the right rows, computed without any streaming system.

Rows are compared as `key, count`: a text that names the row, and a number. Rows that a watermark
closes are compared up to a time that every system must have passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.workloads.nexmark.events.generator import Generator

QUERIES = ("q3", "q8", "q11")
COUNTS_SCHEMA = pa.schema([("key", pa.string()), ("count", pa.int64())])
WINDOW_US = GAP_US = 10_000_000
CATEGORY = 10
STATES = ("OR", "ID", "CA")
ROW_GROUP_EVENTS = 125_000
NEEDED = {
    "q3": ("kind", "id", "name", "city", "state", "category", "seller"),
    "q8": ("kind", "id", "name", "seller", "date_time"),
    "q11": ("kind", "bidder", "date_time"),
}
"""The columns that decide the rows of a query."""


def write_events(path: Path, first: int, end: int, seed: int) -> None:
    """Events from number `first` to before `end`, as a Parquet file."""
    events = pa.Table.from_batches([Generator(seed=seed).events(first, end)])
    pq.write_table(events, path, row_group_size=ROW_GROUP_EVENTS)


def judged_until(events: int, seed: int) -> int:
    """Rows that close by this time are compared: systems have read so many events, and more."""
    return int(Generator(seed=seed).time_of(events)) // 1_000 * 1_000


def rows_as_counts(query: str, rows: pa.Table, until: int) -> pa.Table:
    """Rows of a query as `key, count`, without those that close after `until`."""

    def text(*columns: str) -> Any:
        parts = [pc.cast(rows[column], pa.string()) for column in columns]
        return pc.binary_join_element_wise(*parts, "|")

    ones = pa.array(np.ones(len(rows), np.int64))
    if query == "q3":
        names, counts, kept = text("name", "city", "state", "id"), ones, None
    elif query == "q8":
        names, counts = text("id", "name", "window_start"), ones
        kept = pc.less_equal(pc.add(rows["window_start"], WINDOW_US), until)
    else:
        names, counts = text("bidder", "start_time", "end_time"), rows["bid_count"]
        kept = pc.less_equal(rows["end_time"], until)
    table = pa.table([names, pc.cast(counts, pa.int64())], schema=COUNTS_SCHEMA)
    return table if kept is None else table.filter(kept)


def until(query: str, rows: pa.Table, time: int) -> pa.Table:
    """Rows as `key, count`, without those that close after `time`; their names say when."""
    if query == "q3":
        return rows
    last = pc.list_element(pc.split_pattern(rows["key"], "|"), 2)
    closes = pc.add(pc.cast(last, pa.int64()), WINDOW_US if query == "q8" else 0)
    return rows.filter(pc.less_equal(closes, time))


def expected_rows(query: str, ranges: Iterable[tuple[int, int]], seed: int) -> pa.Table:
    """The right rows over all events of these ranges."""
    generator = Generator(seed=seed)
    parts = [pa.Table.from_batches([generator.events(a, b)]) for a, b in ranges]
    return right_rows(query, pa.concat_tables(parts))


def right_rows(query: str, events: pa.Table) -> pa.Table:
    """The right rows over these events, of which only the columns of `NEEDED` are looked at."""
    people = events.filter(pc.equal(events["kind"], "person"))
    auctions = events.filter(pc.equal(events["kind"], "auction"))
    if query == "q3":
        local = pc.is_in(pc.utf8_upper(people["state"]), pa.array(STATES))
        sellers = people.filter(local).select(["id", "name", "city", "state"])
        offers = auctions.filter(pc.equal(auctions["category"], CATEGORY)).select(["id", "seller"])
        sellers = sellers.rename_columns(["seller", "name", "city", "state"])
        return offers.join(sellers, "seller", join_type="inner")
    if query == "q8":
        new = _in_windows(people).select(["id", "name", "window_start"])
        sold = _in_windows(auctions).select(["seller", "window_start"])
        sold = sold.group_by(["seller", "window_start"]).aggregate([])
        return new.join(sold, ["id", "window_start"], ["seller", "window_start"], join_type="inner")
    return _sessions(events.filter(pc.equal(events["kind"], "bid")))


def _in_windows(events: pa.Table) -> pa.Table:
    times = events["date_time"].to_numpy()
    return events.append_column("window_start", pa.array(times // WINDOW_US * WINDOW_US))


def _sessions(bids: pa.Table) -> pa.Table:
    bidders, times = bids["bidder"].to_numpy(), bids["date_time"].to_numpy()
    order = np.lexsort((times, bidders))
    bidders, times = bidders[order], times[order]
    same = (np.diff(bidders) == 0) & (np.diff(times) <= GAP_US)
    begins = np.flatnonzero(np.concatenate([[True], ~same]))
    ends = np.concatenate([begins[1:], [len(times)]])
    return pa.table(
        {
            "bidder": bidders[begins],
            "bid_count": ends - begins,
            "start_time": times[begins],
            "end_time": times[ends - 1] + GAP_US,
        }
    )
