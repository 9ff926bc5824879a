"""What windows and aggregates are documented to give, computed in the plainest way.

Runs that agree with each other may be wrong together; this says what is right. It knows the kinds
of values and their one order from the documentation alone: null (left out) < bool < numbers by
exact value (of equal ones the integer first, -0.0 before 0.0, NaN last) < text < bytes < lists <
dicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from tests.property.mixed.compare import canonical
from tests.property.mixed.functions import kinds_seen

Timed = tuple[int, Any]


def compared(a: Any, b: Any) -> int:
    """-1, 0 or 1, by the one order over all kinds."""
    return _sign(_rank(a) - _rank(b)) or _COMPARE[_rank(a)](a, b)


def _rank(value: Any) -> int:
    kinds: list[Any] = [type(None), bool, (int, float), str, bytes, list, dict]
    return next(i for i, kind in enumerate(kinds) if isinstance(value, kind))


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _plain(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


def _numbers(a: Any, b: Any) -> int:
    if a != a or b != b:
        return int(a != a) - int(b != b)
    order = _plain(a, b)  # Python compares integers and floats exactly
    if order or a != b:
        return order
    return _plain(_equal_place(a), _equal_place(b))


def _equal_place(number: Any) -> tuple[int, int]:
    """Where a number stands among those that equal it: the integer, then the float; and -0.0
    before 0.0."""
    return int(type(number) is float), int(math.copysign(1, number) > 0) if number == 0 else 0


def _lists(a: list[Any], b: list[Any]) -> int:
    for one, other in zip(a, b, strict=False):
        order = compared(one, other)
        if order:
            return order
    return _sign(len(a) - len(b))


def _dicts(a: dict[Any, Any], b: dict[Any, Any]) -> int:
    return _lists(_entries(a), _entries(b))


def _entries(value: dict[Any, Any]) -> list[Any]:
    names = sorted(value, key=cmp_to_key(compared))
    return [part for name in names for part in (name, value[name])]


_COMPARE: list[Callable[[Any, Any], int]] = [
    lambda a, b: 0, _plain, _numbers, _plain, _plain, _lists, _dicts,
]  # fmt: skip

ORDER = cmp_to_key(compared)


class Refused(Exception):
    """The record goes aside, alone: its value cannot be taken."""


def numeric(value: Any) -> Any:
    """A value that can be added."""
    if not isinstance(value, bool | int | float):
        raise Refused
    return value


def whole(value: Any) -> Any:
    """What the random pipelines' own fold takes."""
    if type(value) is not int:
        raise Refused
    return value


def by_value(cells: list[Timed]) -> list[Any]:
    """Values, the smallest first."""
    return sorted((value for _, value in cells), key=ORDER)


def by_time(cells: list[Timed]) -> list[Any]:
    """Values by (timestamp, value)."""
    return [value for _, value in sorted(cells, key=lambda cell: (cell[0], ORDER(cell[1])))]


def total(cells: list[Timed]) -> Any:
    """The exact sum; rounded once where a float is in it."""
    values = [value for _, value in cells]
    if not values:
        return None
    if not any(isinstance(value, float) for value in values):
        return sum(values)
    return _special(values) if _is_special(values) else rounded(_sum(values))


def mean(cells: list[Timed]) -> Any:
    """The exact mean, rounded once."""
    values = [value for _, value in cells]
    if not values:
        return None
    return _special(values) if _is_special(values) else rounded(_sum(values) / len(values))


def variance(cells: list[Timed], *, sample: bool) -> Any:
    """The exact variance, rounded once."""
    values = [value for _, value in cells]
    if len(values) <= int(sample):
        return None
    if _is_special(values):
        return math.nan
    middle = _sum(values) / len(values)
    squares = sum((Fraction(value) - middle) ** 2 for value in values)
    return rounded(squares / (len(values) - int(sample)))


def _sum(values: list[Any]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))


def _is_special(values: list[Any]) -> bool:
    return any(isinstance(value, float) and not math.isfinite(value) for value in values)


def _special(values: list[Any]) -> float:
    found = {value for value in values if isinstance(value, float) and math.isinf(value)}
    has_nan = any(isinstance(value, float) and math.isnan(value) for value in values)
    return math.nan if has_nan or len(found) != 1 else found.pop()


def rounded(number: Fraction) -> float:
    """The nearest float; infinite beyond all of them."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def different(cells: list[Timed]) -> int:
    """How many different values: kinds are told apart."""
    return len({canonical(value) for _, value in cells})


ANY = lambda value: value  # noqa: E731
ANSWERS: dict[str, tuple[Callable[[Any], Any], Callable[[list[Timed]], Any]]] = {
    "count_of": (ANY, len),
    "sum": (numeric, total),
    "min": (ANY, lambda cells: (by_value(cells) or [None])[0]),
    "max": (ANY, lambda cells: (by_value(cells) or [None])[-1]),
    "mean": (numeric, mean),
    "variance": (numeric, lambda cells: variance(cells, sample=True)),
    "variance_of_all": (numeric, lambda cells: variance(cells, sample=False)),
    "distinct": (ANY, different),
    "first": (ANY, lambda cells: (by_time(cells) or [None])[0]),
    "last": (ANY, lambda cells: (by_time(cells) or [None])[-1]),
    "top": (ANY, lambda cells: by_value(cells)[::-1][:2]),
    "collect": (ANY, by_time),
    "fold": (whole, lambda cells: sum(value for _, value in cells)),
}
"""What may be in a column, and what comes of it. Nulls have been left out."""


def answer(name: str, column: str, records: list[dict[str, Any]]) -> Any:
    """One aggregate of the records of one window."""
    if name == "count":
        return len(records)
    if name == "fold_records":
        kinds: list[str] = []
        for record in records:
            kinds = kinds_seen(kinds, record)
        return kinds
    cells = [(r["t"], r.get(column)) for r in records if r.get(column) is not None]
    return ANSWERS[name][1](cells)


def taken(name: str, column: str, record: dict[str, Any]) -> bool:
    """Whether an aggregate takes a record."""
    value = record.get(column)
    if name in ("count", "fold_records") or value is None:
        return True
    try:
        ANSWERS[name][0](value)
    except Refused:
        return False
    return True


Windows = list[tuple[int, int, list[dict[str, Any]]]]


def windows(kind: str, size: int, records: list[dict[str, Any]]) -> Windows:
    """(start, end, records) of each window of one key."""
    times = sorted({record["t"] for record in records})
    spans: list[tuple[int, int]]
    if kind == "whole":
        return [(0, 0, records)]
    if kind == "tumbling":
        spans = sorted({(t // size * size, t // size * size + size) for t in times})
    elif kind == "hopping":
        every = max(1, size // 3)
        starts = {
            start for t in times for start in range(t - size + 1, t + 1) if start % every == 0
        }
        spans = sorted((start, start + size) for start in starts)
    elif kind == "sliding":
        spans = [(t + 1 - size, t + 1) for t in times]
    else:
        spans = []
        for t in times:
            if spans and t < spans[-1][1]:
                spans[-1] = (spans[-1][0], t + size)
            else:
                spans.append((t, t + size))
    return [(a, b, [r for r in records if a <= r["t"] < b]) for a, b in spans]
