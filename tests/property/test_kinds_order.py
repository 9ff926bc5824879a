"""The order over kinds: bytes sort as the documented order says, and give the value back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.model.values.kinds import from_ordered, ordered

AWKWARD: list[Any] = [
    0, 0.0, -0.0, 1, 1.0, -1, -1.0, True, False, 2**53, 2**53 + 1, float(2**53), 2**53 - 1,
    -(2**53) - 1, -float(2**53), 2**63, 2**64, -(2**64), 2**64 + 1, 2**1024, -(2**1024), 10**400,
    5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308,
    math.inf, -math.inf, math.nan, 255, 256, 257, 255.0, 256.5, 65536, 65536.0, 0.1, 0.5, 1.5,
    "", "a", "a\x00", "a\x00b", "a\xff", "ä", "\U0001f600", b"", b"\x00", b"\x00\xff", b"a",
    [], [None], [1], [1.0], [1, 2], [[]], [[], 1], {}, {"a": 1}, {"a": 1.0}, {"a": None},
    {"b": 0}, {"a": [1]}, {5: 1}, {(1, "a"): 2},
]  # fmt: skip

NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.integers(-20, 20).flatmap(
        lambda n: st.sampled_from([2**60 + n, float(2**60 + n), n, float(n)])
    ),
    st.integers(-(2**70), 2**70),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=6), st.binary(max_size=6))
VALUES = st.one_of(
    st.sampled_from(AWKWARD),
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)
        ),
        max_leaves=8,
    ),
)


def rank(value: Any) -> int:
    kinds = ((type(None),), (bool,), (int, float), (str,), (bytes,), (list,), (dict,))
    return next(i for i, kind in enumerate(kinds) if type(value) in kind)


def number(value: float) -> tuple[Any, ...]:
    """Exact, the integer before the float, -0.0 before 0.0, NaN at the end."""
    if value != value:
        return (2, 0, 0, 0)
    if value in (math.inf, -math.inf):
        return (1 if value > 0 else -1, 0, 0, 0)
    sign = math.copysign(1, value) if value == 0 and isinstance(value, float) else 1
    return (0, Fraction(value), isinstance(value, float), sign)


def compare(a: Any, b: Any) -> int:
    """The documented order, written down once more."""
    if rank(a) != rank(b):
        return -1 if rank(a) < rank(b) else 1
    if isinstance(a, dict):
        key = cmp_to_key(compare)
        a, b = ([x for k in sorted(d, key=key) for x in (k, d[k])] for d in (a, b))
    if isinstance(a, list | tuple):
        for one, other in zip(a, b, strict=False):
            if found := compare(one, other):
                return found
        return (len(a) > len(b)) - (len(a) < len(b))
    if a is None:
        return 0
    if type(a) in (int, float):
        a, b = number(a), number(b)
    elif isinstance(a, str):
        a, b = [*map(ord, a)], [*map(ord, b)]
    return (a > b) - (a < b)


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, and of the same kinds all through."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


@given(VALUES, VALUES)
@settings(max_examples=500)
def test_bytes_sort_as_the_order_over_kinds_says(a: Any, b: Any) -> None:
    if any(type(k) is tuple for v in (a, b) if isinstance(v, dict) for k in v):
        return
    one, other = ordered(a), ordered(b)
    assert (one > other) - (one < other) == compare(a, b)


@given(VALUES)
@settings(max_examples=300)
@example({"b": {"d": 1, "c": [2.0, True, "1", None]}, "a": 2**70})
def test_bytes_give_the_value_back_with_its_kinds(value: Any) -> None:
    assert same(from_ordered(ordered(value)), value)


@pytest.mark.parametrize("value", AWKWARD, ids=repr)
def test_awkward_values_keep_their_kind(value: Any) -> None:
    assert same(from_ordered(ordered(value)), value)


def test_awkward_values_lie_in_one_order() -> None:
    given = [v for v in AWKWARD if v != {(1, "a"): 2}]
    by_bytes = sorted(given, key=ordered)
    assert [repr(v) for v in by_bytes] == [repr(v) for v in sorted(given, key=cmp_to_key(compare))]
    assert len(set(map(ordered, AWKWARD))) == len(AWKWARD)


def test_dicts_that_are_equal_have_equal_bytes() -> None:
    assert ordered({"a": 1, "b": 2}) == ordered({"b": 2, "a": 1})


def _unfolded(moment: Any) -> Any:
    return moment.replace(fold=0)


@given(
    st.one_of(
        st.lists(st.datetimes().map(_unfolded), min_size=2, max_size=2),
        st.lists(st.datetimes(timezones=st.just(UTC)).map(_unfolded), min_size=2, max_size=2),
        st.lists(st.dates(), min_size=2, max_size=2),
        st.lists(st.times().map(_unfolded), min_size=2, max_size=2),
        st.lists(st.timedeltas(), min_size=2, max_size=2),
        st.lists(st.decimals(allow_nan=False), min_size=2, max_size=2),
        st.lists(st.uuids(), min_size=2, max_size=2),
    )
)
@settings(max_examples=200)
def test_times_and_decimals_keep_their_order_and_kind(pair: list[Any]) -> None:
    a, b = pair
    assert [repr(from_ordered(ordered(v))) for v in pair] == [repr(v) for v in pair]
    if a != b:
        assert (ordered(a) < ordered(b)) == (a < b)


def test_kinds_of_time_lie_between_numbers_and_text() -> None:
    values = [
        math.nan, Decimal("0.1"), datetime(2026, 1, 1, tzinfo=UTC), datetime(1990, 1, 1),
        date(1980, 1, 1), time(0, 1), timedelta(1), UUID(int=1), "",
    ]  # fmt: skip
    assert [repr(v) for v in sorted(reversed(values), key=ordered)] == [repr(v) for v in values]


def test_how_deep_a_value_is_does_not_matter() -> None:
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep]
    found = from_ordered(ordered(deep))
    for _ in range(20_000):
        (found,) = found
    assert found == 1
