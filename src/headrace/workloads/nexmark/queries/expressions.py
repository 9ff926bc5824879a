"""Arrow expressions that several queries use."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

EUROS_PER_DOLLAR = 0.908
RANK_LIMITS = (10_000, 1_000_000)
"""Prices below the first are of rank 1, below the second of rank 2, all others of rank 3."""
RANKS = ("rank1", "rank2", "rank3")

_NEAREST = pc.CastOptions.unsafe(pa.float64())
_TIME = pc.field("date_time").cast(pa.timestamp("us"))


def in_euros() -> pc.Expression:
    """The price in euros. Beyond 2^53 it is the nearest number that there is."""
    return pc.field("price").cast(options=_NEAREST) * EUROS_PER_DOLLAR


def remainder(column: str, of: int) -> pc.Expression:
    """`column % of`. Ids are not negative."""
    given = pc.field(column)
    return given - pc.divide(given, pc.scalar(of)) * of


def day() -> pc.Expression:
    """The day of `date_time`, in UTC, as yyyy-MM-dd."""
    return pc.strftime(_TIME, options=pc.StrftimeOptions("%Y-%m-%d"))


def minute() -> pc.Expression:
    """The minute of `date_time`, in UTC, as HH:mm."""
    return pc.strftime(_TIME, options=pc.StrftimeOptions("%H:%M"))


def hour() -> pc.Expression:
    """The hour of `date_time`, in UTC."""
    return pc.hour(_TIME)


def of_rank(column: str) -> dict[str, pc.Expression]:
    """`rank1_<column>` and so on: the column where the price is of that rank, otherwise null."""
    low, high = RANK_LIMITS
    price, given = pc.field("price"), pc.field(column)
    within = (price < low, (price >= low) & (price < high), price >= high)
    nothing = pc.scalar(pa.scalar(None, pa.int64()))
    return {
        f"{rank}_{column}": pc.if_else(condition, given, nothing)
        for rank, condition in zip(RANKS, within, strict=True)
    }


def matched(column: str, pattern: str) -> pc.Expression:
    """The group `found` of a pattern in a text; null if the text does not match."""
    options = pc.ExtractRegexOptions(pattern)
    return pc.struct_field(pc.extract_regex(pc.field(column), options=options), [0])
