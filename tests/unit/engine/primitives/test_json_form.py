"""Values of state as JSON: every value has a form, and no entry of a dict is lost."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.primitives.json_form import json_line, typed_key, untyped_hint
from headrace.errors import InvalidRecord


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"a": 1, "b": [None, True]}, {"a": 1, "b": [None, True]}),
        ({1: "a", "b": 2}, {"1": "a", "b": 2}),
        ({1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        ({("a", 7): 1, ("b", 8): 2}, [[["a", 7], 1], [["b", 8], 2]]),
        ({None: 1, "x": 2}, [[None, 1], ["x", 2]]),
        ({True: 1, "x": 2}, [[True, 1], ["x", 2]]),
        ({"outer": {1.5: {2: 3}}}, {"outer": [[1.5, {"2": 3}]]}),
        ((1, ("a", None)), [1, ["a", None]]),
        ({1}, [1]),
        ({}, {}),
        (b"\xff", {"bytes": "/w=="}),
        ({b"\xff": (b"", 1)}, [[{"bytes": "/w=="}, [{"bytes": ""}, 1]]]),
        ([math.nan, -math.inf, {math.inf: 1}], ["NaN", "-Infinity", [["Infinity", 1]]]),
    ],
)
def test_a_line_has_all_entries_of_a_dict_whatever_its_keys_are(value: Any, form: Any) -> None:
    assert json.loads(json_line(value), parse_constant=pytest.fail) == form


def test_an_integer_that_python_does_not_write_in_decimal_is_shown_in_hexadecimal() -> None:
    assert json_line([2**20_000]) == f'["{hex(2**20_000)}"]'


def test_a_value_may_be_nested_as_deep_as_state_may_be() -> None:
    value: Any = 1
    for depth in range(200):
        value = [value] if depth % 2 else {"a": value}
    assert json.loads(json_line(value)) == value


parts = st.recursive(
    st.one_of(st.none(), st.text(), st.binary(), st.integers(-(2**63), 2**64 - 1)),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


@given(parts.filter(lambda key: key is not None))
def test_every_key_can_be_typed_as_it_is_printed(key: Any) -> None:
    found = typed_key(json_line(key))
    assert (found, type(found)) == (key, type(key))


@pytest.mark.parametrize("depth", [900, 5_000])
def test_a_key_of_too_many_nested_lists_is_a_text(depth: int) -> None:
    text = "[" * depth + "]" * depth
    assert typed_key(text) == text


def test_a_text_that_was_taken_for_another_key_can_be_typed_as_the_hint_says() -> None:
    for typed, kind in (("17", "a number"), ('["a"]', "parts"), ('{"bytes": "/w=="}', "bytes")):
        hint = untyped_hint(typed)
        assert kind in hint
        assert typed_key(hint.split("'")[1]) == typed
    assert untyped_hint("o1") == untyped_hint("true") == untyped_hint('"17"') == ""


def test_bytes_that_are_no_base64_are_refused() -> None:
    with pytest.raises(InvalidRecord, match='the key {"bytes": "%"} are no base64'):
        typed_key('{"bytes": "%"}')
