"""Values of every kind, drawn by seeded dice: what JSON, MessagePack or a careless producer sends.

Columns of a record:

- `n`: its number, which no other record has;
- `t`: its time, in microseconds;
- `s`: 0 or 1, the side on which it stands in a join;
- `k`, `j`: parts of keys: usable ones of several kinds, unusable ones, none;
- `v`, `w`, `x`: values of every kind, sparse;
- now and then others, with names that mean something elsewhere.
"""

from __future__ import annotations

import math
import random
from typing import Any

from headrace.errors import InvalidRecord
from headrace.model.values.codec import packed

LATENESS_US = 8
"""How far records of a case are out of order: the source is told so, hence none is late."""

INTS = [0, 1, 2, 3, 5, -1, 10, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63,
        2**64 - 1]  # fmt: skip
FLOATS = [0.0, -0.0, 0.5, 1.0, 2.0, -1.5, 1e155, -1e155, 1e308, -1e308, 5e-324, float(2**53),
          float(2**63), math.nan, math.inf, -math.inf]  # fmt: skip
TEXTS = ["", "a", "b", "1", "10", "true", "null", "1.0", "ä", "\U0001d11e", "a\x00b", "NaN"]
BYTES = [b"", b"a", b"1", b"\xff\x00"]
BOOLS = [True, False]
HUGE = [2**64, 2**70, -(2**63) - 1, 10**40]


def _taken(value: Any) -> bool:
    try:
        packed(value)
    except InvalidRecord:
        return False
    return True


INTS += [value for value in HUGE if _taken(value)]

USABLE_KEYS: list[Any] = ["a", "b", "ab", "1", "ä", 1, 2, 0, -1, 2**53, 2**53 + 1, 2**63,
                          2**63 - 1, -(2**63), 2**64 - 1, b"a", b"1", b"\x00"]  # fmt: skip
UNUSABLE_KEYS: list[Any] = [None, True, False, 1.0, 0.5, math.nan, "", b"", [], [1, "a"], {"a": 1}]
ABSENT = object()
"""Stands for a column that a record does not have."""

ODD_COLUMNS = ["z", "y", "key_index", "key", "timestamp", "record_timestamp", "stream", "value",
               "withdrawn", "window_end", "rank", "index", "a b", 'quo"te', "_", 5]  # fmt: skip
"""Names of more columns, which mean something inside of the engine, or in SQL, or are no text."""


def number(dice: random.Random) -> Any:
    """An integer or a float."""
    return dice.choice(INTS if dice.random() < 0.6 else FLOATS)


def scalar(dice: random.Random) -> Any:
    """A value of one of the simple kinds; null too."""
    kinds: list[list[Any]] = [INTS, INTS, FLOATS, FLOATS, TEXTS, BYTES, BOOLS, [None]]
    return dice.choice(dice.choice(kinds))


def nested(dice: random.Random, depth: int = 0) -> Any:
    """A list or a dict, of several kinds and shapes."""
    if depth > 2 or (depth and dice.random() < 0.6):
        return scalar(dice)
    size = dice.choice((0, 1, 1, 2, 3))
    if dice.random() < 0.5:
        return [nested(dice, depth + 1) for _ in range(size)]
    return {dice.choice(("a", "b", "c", "")): nested(dice, depth + 1) for _ in range(size)}


def deep(dice: random.Random) -> Any:
    """Lists and dicts far inside each other; some too far for a record."""
    value = scalar(dice)
    for _ in range(dice.choice((20, 36, 60))):
        value = [value] if dice.random() < 0.7 else {"a": value}
    return value


def depth(value: Any) -> int:
    """How many lists and dicts a value has inside each other, itself among them."""
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def anything(dice: random.Random) -> Any:
    """A value of any kind."""
    draw = dice.random()
    if draw < 0.03:
        return deep(dice)
    return nested(dice) if draw < 0.25 else scalar(dice)


PROFILES: dict[str, Any] = {
    "ints": lambda dice: dice.choice(INTS),
    "small": lambda dice: dice.choice((0, 1, 2, 3, -1)),
    "numbers": number,
    "texts": lambda dice: dice.choice(TEXTS),
    "scalars": scalar,
    "anything": anything,
}
"""What one column holds in one case: cases of one kind find other faults than cases of all."""

KINDS: list[list[Any]] = [INTS, [0, 1, 2], FLOATS, [0.0, -0.0, 1.0], TEXTS, BYTES, BOOLS]


def pair(dice: random.Random) -> list[Any]:
    """Values of two kinds only: what one of them is taken for beside the other shows best so."""
    return [dice.choice(kind) for kind in dice.sample(KINDS, 2) for _ in range(2)]


class Palette:
    """The values that the columns of one case have: few, so that equal ones meet."""

    def __init__(self, dice: random.Random) -> None:
        self.keys = dice.sample(USABLE_KEYS, dice.choice((1, 2, 2, 3)))
        if dice.random() < 0.3:
            self.keys += dice.sample([*UNUSABLE_KEYS, ABSENT], dice.choice((1, 2)))
        self.parts = dice.sample([*USABLE_KEYS, *UNUSABLE_KEYS, ABSENT], 3)
        self.columns = {column: self._column(dice) for column in "vwx"}
        self.odd = dice.sample(ODD_COLUMNS, 2) if dice.random() < 0.3 else []
        self.spoiled = 0.15 if dice.random() < 0.15 else 0.0
        """How many records have no usable time, or are no dicts."""

    def _column(self, dice: random.Random) -> list[Any]:
        if dice.random() < 0.6:
            return pair(dice) + [ABSENT] * (dice.random() < 0.2)
        profile = PROFILES[dice.choice(list(PROFILES))]
        found = [profile(dice) for _ in range(dice.choice((1, 2, 4, 6)))]
        if dice.random() < 0.5:
            found.append(anything(dice))  # one that is not like the others
        return found + [None] * (dice.random() < 0.2) + [ABSENT] * (dice.random() < 0.3)

    def record(self, dice: random.Random, n: int, time: int) -> Any:
        """One record."""
        cells: dict[Any, Any] = {"n": n, "t": time, "s": dice.randrange(2)}
        cells["k"] = dice.choice(self.keys)
        cells["j"] = dice.choice(self.parts)
        for column, values in self.columns.items():
            cells[column] = dice.choice(values)
        for column in self.odd:
            cells[column] = anything(dice) if dice.random() < 0.5 else ABSENT
        names = list(cells)
        if dice.random() < 0.3:
            dice.shuffle(names)  # the order of columns is no part of a record
        row = {name: cells[name] for name in names if cells[name] is not ABSENT}
        return spoiled(dice, row) if dice.random() < self.spoiled else row


def spoiled(dice: random.Random, row: dict[Any, Any]) -> Any:
    """A record without a usable time."""
    if dice.random() < 0.5:
        return dice.choice([row["n"], "text", None, [row["n"]], True])
    return {
        **row,
        "t": dice.choice([None, "soon", math.nan, [1], -(2**70) if _taken(2**70) else {}]),
    }


def records(dice: random.Random) -> list[Any]:
    """The records of a case, in the order of arrival. None is late, however they are cut."""
    palette, now, made = Palette(dice), 0, []
    for n in range(dice.choice((3, 8, 12, 16, 24))):
        now += dice.choice((0, 0, 1, 1, 3, 10))
        made.append(palette.record(dice, n, now + dice.randint(0, LATENESS_US)))
    return made
