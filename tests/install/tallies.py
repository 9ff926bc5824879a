"""The input of the program `tally`, what must come out, and what did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.spark.support import rows

USERS, SHOPS = 7, 3
START = 1_700_000_040_000_000
"""A whole minute."""


def sale(number: int) -> dict[str, Any]:
    at = START + number * 1_000_000
    return {"id": number, "user": f"u{number % USERS}", "shop": f"s{number % SHOPS}", "at": at}


def check_all_once(where: Path, count: int) -> None:
    """Every sale was counted once, in order per user; each timer and each window fired once."""
    tallies = rows(where / "out" / "tallies")
    seen: Counter[str] = Counter()
    shops: Counter[tuple[str, str]] = Counter()
    expected = []
    for number in range(count):
        given = sale(number)
        user, shop = given["user"], given["shop"]
        seen[user] += 1
        shops[user, shop] += 1
        row = {"user": user, "nth": seen[user], "in_shop": shops[user, shop], "id": number}
        expected.append(row)
    made = sorted((row for row in tallies if "id" in row), key=lambda row: row["id"])
    assert made == expected
    idle = [row for row in tallies if "idle_after" in row]
    assert sorted(idle, key=lambda row: row["user"]) == [
        {"user": user, "idle_after": seen[user]} for user in sorted(seen)
    ]
    minutes = Counter((sale(n)["shop"], n // 60) for n in range(count))
    found = rows(where / "out" / "minutes")
    assert sorted((row["shop"], row["sales"]) for row in found) == sorted(
        (shop, sales) for (shop, _), sales in minutes.items()
    )
