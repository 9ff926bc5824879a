"""Values in messages, and how deep they are nested: no value makes either fail."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.values.shown import encodable, is_nested, shown


def nested(depth: int, kind: type = list) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind([value])  # type: ignore[call-arg]
    return value


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "make",
    [
        lambda: nested(100_000),
        lambda: nested(3000, dict),
        lambda: 10**5000,
        Odd,
        lambda: [Odd()],
        lambda: "\ud800",
        lambda: {"\udfff": 1},
    ],
)
def test_any_value_can_be_shown_and_sent(make: Callable[[], object]) -> None:
    text = shown(make())
    assert text and len(text) <= 220
    text.encode("utf-8")


def test_plain_values_are_shown_as_they_are() -> None:
    for value in (1, "x", {"a": [1, (2, {"b"})], "c": None}, [], b"\xff", {1: {2: {3: {4: 5}}}}):
        assert shown(value) == repr(value)
    assert shown("x" * 500) == repr("x" * 500)[:200]
    assert shown({"k": "a", "x": nested(50)}) == "{'k': 'a', 'x': [[[[[[...]]]]]]}"


def test_what_is_shown_does_not_depend_on_who_asks() -> None:
    value = nested(400)

    def deeper(levels: int) -> str:
        return shown(value) if not levels else deeper(levels - 1)

    assert deeper(0) == deeper(sys.getrecursionlimit() - 300)


def test_half_a_pair_of_surrogates_is_written_out() -> None:
    assert encodable("a\ud800é") == "a\\ud800é"
    assert encodable("plain é 漢") == "plain é 漢"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    st.integers(0, 6),
)  # fmt: skip
def test_nesting_is_the_longest_way_in(value: object, depth: int) -> None:
    def deepest(found: object) -> int:
        if isinstance(found, dict):
            return 1 + max(map(deepest, found.values()), default=0)
        return 1 + max(map(deepest, found), default=0) if isinstance(found, list) else 0

    assert is_nested(value, depth) == (deepest(value) > depth)
