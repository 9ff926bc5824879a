"""The input of Nexmark's joins whose recovery is measured, and what is seen of their rows.

File n has sellers and their auctions within ten seconds of event time, and an event of each
kind after these, so that its window can close. An id tells the file that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.bench.recovery.watch import Feed, OutputPoller
from headrace.model.values.time import SECOND

WINDOW_US = 10 * SECOND
IDS = 1_000
"""The ids of a file, at most."""


class EventFeed(Feed):
    """Writes files of people and auctions; `records` are half of each."""

    def __init__(self, query: str, directory: Path, interval: float, records: int) -> None:
        super().__init__(directory, interval, records, records // 2)
        self._query = query

    def rows(self, number: int, at: int) -> list[dict[str, Any]]:
        """Every seller has one auction of category 10; every other one is in Oregon."""
        began, first = number * WINDOW_US, number * IDS
        found = []
        for i in range(self.keys):
            state = "OR" if i % 2 == 0 else "NY"
            found.append(_person(first + i, state, began + 2 * SECOND))
            found.append(_offer(first + i, first + i, began + 3 * SECOND))
        # One of each kind, as Spark has a watermark for each; they meet nobody.
        after = began + WINDOW_US + SECOND
        found.append(_person(first + IDS - 1, "NY", after))
        found.append(_offer(first + IDS - 1, first + IDS - 2, after))
        return found

    def expected(self, number: int) -> Iterable[Any]:
        """Query 3 has the auctions of sellers in Oregon, query 8 all who sold."""
        step = 2 if self._query == "q3" else 1
        return range(number * IDS, number * IDS + self.keys, step)


class RowPoller(OutputPoller):
    """Counts rows by their id: each is to be there once."""

    def take(self, row: dict[str, Any]) -> int:
        """Remembers a row; the file that it came from."""
        self.counts[row["id"]] = self.counts.get(row["id"], 0) + 1
        return int(row["id"]) // IDS


def _offer(id: int, seller: int, at: int) -> dict[str, Any]:
    return {
        "kind": "auction", "id": id, "seller": seller, "category": 10, "initial_bid": 1,
        "reserve": 1, "date_time": at, "expires": at + SECOND,
    }  # fmt: skip


def _person(id: int, state: str, at: int) -> dict[str, Any]:
    return {
        "kind": "person", "id": id, "name": f"person {id}", "city": "Bend", "state": state,
        "date_time": at,
    }  # fmt: skip
