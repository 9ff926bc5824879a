"""The answers of Nexmark in SQL, by DuckDB over the same file. It shares no code with the queries.

Rows are compared as sets with repetitions. Floats are compared to twelve digits: averages are
rounded once here and there, and not in the same place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

_TIME = """CASE WHEN json_type({0}) = 'VARCHAR'
    THEN epoch_us(CAST(({0} ->> '$') AS TIMESTAMP))
    ELSE CAST({0} AS BIGINT) END"""

_KINDS = {
    "person": {"id": "BIGINT", "name": "", "city": "", "state": "", "date_time": "TIME"},
    "auction": {
        "id": "BIGINT",
        "item_name": "",
        "description": "",
        "initial_bid": "BIGINT",
        "reserve": "BIGINT",
        "date_time": "TIME",
        "expires": "TIME",
        "seller": "BIGINT",
        "category": "BIGINT",
        "extra": "",
    },
    "bid": {
        "auction": "BIGINT",
        "bidder": "BIGINT",
        "price": "BIGINT",
        "channel": "",
        "url": "",
        "date_time": "TIME",
        "extra": "",
    },
}

_WON = """
    SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    QUALIFY row_number() OVER (
        PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) = 1
"""
_STATISTICS = """
    count(*), count(*) FILTER (price < 10000),
    count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
    count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000),
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000),
    count(DISTINCT bidder) FILTER (price >= 1000000),
    count(DISTINCT auction), count(DISTINCT auction) FILTER (price < 10000),
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000),
    count(DISTINCT auction) FILTER (price >= 1000000)
"""
_DAY, _MINUTE = (
    f"strftime(make_timestamp(date_time), '{shape}')" for shape in ("%Y-%m-%d", "%H:%M")
)
_HOUR = "extract(hour FROM make_timestamp(date_time))"

SQL = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, price * 0.908::DOUBLE, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND upper(p.state) IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, avg(price) FROM ({_WON}) GROUP BY category",
    "q5": """
        WITH counts AS (
            SELECT auction, count(*) AS num, date_time // 2000000 * 2000000 - n * 2000000 AS ws
            FROM bid, range(5) AS r(n) GROUP BY auction, ws)
        SELECT auction, num, ws FROM counts QUALIFY num = max(num) OVER (PARTITION BY ws)""",
    "q6": f"""
        SELECT seller, avg(price) FROM (
            SELECT * FROM ({_WON})
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10)
        GROUP BY seller""",
    "q7": """SELECT auction, price, bidder, date_time FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY date_time // 10000000)""",
    "q8": """
        SELECT DISTINCT p.id, p.name, p.date_time // 10000000 * 10000000
        FROM person p JOIN auction a
        ON p.id = a.seller AND p.date_time // 10000000 = a.date_time // 10000000""",
    "q9": _WON,
    "q10": f"SELECT auction, bidder, price, date_time, extra, {_DAY}, {_MINUTE} FROM bid",
    "q11": """
        WITH marked AS (
            SELECT bidder, date_time, CAST(coalesce(date_time - lag(date_time) OVER w > 10000000,
                true) AS INT) AS begins
            FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY date_time)),
        numbered AS (
            SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session
            FROM marked)
        SELECT bidder, count(*), min(date_time), max(date_time) + 10000000
        FROM numbered GROUP BY bidder, session""",
    "q13": """SELECT auction, bidder, price, date_time, 'value-' || (auction % 10000) FROM bid""",
    "q14": f"""
        SELECT auction, bidder, price * 0.908::DOUBLE,
            CASE WHEN {_HOUR} >= 8 AND {_HOUR} <= 18 THEN 'dayTime'
                 WHEN {_HOUR} <= 6 OR {_HOUR} >= 20 THEN 'nightTime' ELSE 'otherTime' END,
            date_time, length(extra) - length(replace(extra, 'c', ''))
        FROM bid WHERE price * 0.908::DOUBLE > 1000000 AND price * 0.908::DOUBLE < 50000000""",
    "q15": f"SELECT {_DAY} AS day, {_STATISTICS} FROM bid GROUP BY day",
    "q16": f"""SELECT channel, {_DAY} AS day, max({_MINUTE}), {_STATISTICS}
        FROM bid GROUP BY channel, day""",
    "q17": f"""
        SELECT auction, {_DAY} AS day, count(*), count(*) FILTER (price < 10000),
            count(*) FILTER (price >= 10000 AND price < 1000000),
            count(*) FILTER (price >= 1000000), min(price), max(price), avg(price), sum(price)
        FROM bid GROUP BY auction, day""",
    "q18": """SELECT * FROM bid QUALIFY row_number() OVER (
        PARTITION BY bidder, auction ORDER BY date_time DESC, extra) = 1""",
    "q19": """
        SELECT *, row_number() OVER (
            PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS n
        FROM bid QUALIFY n <= 10""",
    "q20": """
        SELECT b.*, a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time,
            a.expires, a.seller, a.category, a.extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                    ELSE CASE WHEN regexp_matches(url, '[?&]channel_id=')
                        THEN regexp_extract(url, '[?&]channel_id=([^&]*)', 1) END
                    END AS channel_id
            FROM bid) WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, string_split(url, '/')[4],
        string_split(url, '/')[5], string_split(url, '/')[6] FROM bid""",
}
"""Queries whose answer is known. The answer of q12 depends on the clock."""


class Oracle:
    """Events of a file, in DuckDB."""

    def __init__(self, file: Path) -> None:
        self._db = duckdb.connect()
        self._db.execute(
            "CREATE TABLE raw AS SELECT json AS e FROM read_ndjson_objects(?)", [str(file)]
        )
        for kind, columns in _KINDS.items():
            cells = []
            for name, of in columns.items():
                cell = f"(e -> '$.{name}')"
                if of == "TIME":
                    cells.append(f"{_TIME.format(cell)} AS {name}")
                elif of:
                    cells.append(f"CAST({cell} AS {of}) AS {name}")
                else:
                    cells.append(f"(e ->> '$.{name}') AS {name}")
            self._db.execute(
                f"CREATE TABLE {kind} AS SELECT {', '.join(cells)} FROM raw "
                f"WHERE (e ->> '$.kind') = '{kind}'"
            )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query's answer, in an order that makes answers comparable."""
        return comparable(self._db.execute(SQL[query]).fetchall())


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in one order, with floats to twelve digits."""
    rounded = [
        tuple(float(f"{cell:.12g}") if isinstance(cell, float) else cell for cell in row)
        for row in rows
    ]
    return sorted(rounded, key=repr)
