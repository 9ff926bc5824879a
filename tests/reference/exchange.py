"""A small stock exchange, answered over lists: three levels, a diamond and a loop.

    trades --by account--> booked (running total of the account)  --by symbol--> closed seconds
       '----by symbol----> volumes (of each second)               --by symbol------'  |
                                                               bonus to the leader <--'
                                            passed on to its sponsor, halved, until it is nothing

Everything in it happens in the order of time. Ties are settled as the pipeline promises to settle
them: trades by (file, line); what two accounts booked at one instant by the account's name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

SECOND = 1_000_000
BONUS_DIVISOR = 100

Row = dict[str, Any]


def sponsor_of(account: str) -> str:
    """Account a12 was brought in by a6, a6 by a3, and so on up to a1, which is its own sponsor."""
    return f"a{max(1, int(account[1:]) // 2)}"


def bonus_of(volume: int) -> int:
    """What the leader of a second gets."""
    return volume // BONUS_DIVISOR


def exchange(files: Mapping[str, Sequence[Row]]) -> tuple[list[Row], list[Row], dict[str, int]]:
    """(closed seconds, payments, bonus by account) of trades {ts, account, symbol, amount}."""
    trades = [
        (trade["ts"], name, line, trade)
        for name in sorted(files)
        for line, trade in enumerate(files[name])
    ]
    trades.sort(key=lambda each: each[:3])
    closed = _close(_book([trade for *_, trade in trades]))
    payments, totals = _pay(closed)
    return closed, payments, totals


def _book(trades: Sequence[Row]) -> list[Row]:
    totals: Counter[str] = Counter()
    booked = []
    for trade in trades:
        totals[trade["account"]] += trade["amount"]
        booked.append({**trade, "total": totals[trade["account"]]})
    return sorted(booked, key=lambda row: (row["ts"], row["account"]))


def _close(booked: Sequence[Row]) -> list[Row]:
    volumes: Counter[tuple[str, int]] = Counter()
    last: dict[tuple[str, int], Row] = {}
    for row in booked:
        place = (row["symbol"], row["ts"] // SECOND)
        volumes[place] += row["amount"]
        last[place] = row
    return [
        {
            "symbol": symbol, "second": second, "volume": volume,
            "leader": last[symbol, second]["account"], "total": last[symbol, second]["total"],
        }
        for (symbol, second), volume in volumes.items()
    ]  # fmt: skip


def _pay(closed: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
    payments: list[Row] = []
    totals: dict[str, int] = defaultdict(int)
    for row in closed:
        account, amount, step = row["leader"], bonus_of(row["volume"]), 0
        while amount > 0:
            payments.append({"account": account, "amount": amount, "step": step})
            totals[account] += amount
            account, amount, step = sponsor_of(account), amount // 2, step + 1
    return payments, dict(totals)
