"""State values: what is written is what is read, or it is refused."""

import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import InvalidPipeline, InvalidRecord
from headrace.model.values.codec import Codec, decode_value, packed, packed_exactly


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    next: "Basket | None" = None


@dataclass
class Loose:
    anything: list = field(default_factory=list)


class Point(msgspec.Struct):
    x: float
    y: float


class Unknown:
    pass


def codec(declared):
    return Codec(declared, where="C.f")


@given(st.dictionaries(st.text(), st.lists(st.integers(-(2**63), 2**64 - 1))))
def test_typed_values_come_back_as_they_were(value):
    c = codec(dict[str, list[int]])
    assert c.decode(c.encode(value)) == value


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (tuple[int, ...], (1, 2)),
        (set[str], {"b", "a"}),
        (dict[tuple[int, str], float], {(1, "a"): 0.5}),
        (datetime, datetime(2024, 1, 1, tzinfo=UTC)),
        (Basket, Basket(["x"], {"b", "a"}, Basket())),
        (Point, Point(1.0, 2.0)),
        (int | None, None),
        (Any, {"a": [1, None, b"x"]}),
    ],
    ids=str,
)
def test_rich_types_come_back_as_they_were(declared, value):
    c = codec(declared)
    assert c.decode(c.encode(value)) == value


def test_sets_are_written_in_one_order_also_inside_a_class():
    many = {f"tag {i}" for i in range(50)}
    backwards = set(sorted(many, reverse=True))
    assert codec(Basket).encode(Basket([], many)) == codec(Basket).encode(Basket([], backwards))


def test_dicts_keep_their_order():
    c = codec(dict[str, int])
    assert list(c.decode(c.encode({"b": 1, "a": 2}))) == ["b", "a"]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, "1"),
        (int, None),
        (str, b"x"),
        (list[int], ["x"]),
        (int, 2**70),
        (int, np.float64(3.5)),
        (Any, np.array([1])),
        (Any, np.datetime64("2026-01-01")),
        (dict[str, int], {1: 1}),
        (str, "\ud800"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused(declared, value):
    with pytest.raises(TypeError, match="declared as"):
        codec(declared).encode(value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Any, (1, 2)),
        (list, [(1, 2)]),
        (dict, {"a": {1, 2}}),
        (object, UUID(int=1)),
        (Loose, Loose([(1, 2)])),
        (dict[str, Any], {"a": Point(1.0, 2.0)}),
    ],
    ids=repr,
)
def test_a_loose_type_that_would_change_its_value_is_refused(declared, value):
    with pytest.raises(TypeError, match="declare the exact type"):
        codec(declared).encode(value)


@dataclass
class Measured:
    by: Any
    tags: set[float] = field(default_factory=set)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Any, float("nan")),
        (dict, {"a": [1.0, float("nan")], "b": {"c": float("nan")}}),
        (dict[str, Any], {"a": float("nan")}),
        (Measured, Measured(float("nan"), {2.0, 1.0})),
        (tuple[Any, float], (1, float("nan"))),
    ],
    ids=repr,
)
def test_what_is_not_a_number_comes_back_so_also_where_the_type_is_loose(declared, value):
    c = codec(declared)
    data, settled = c.encode_and_read(value)
    assert repr(settled) == repr(value) == repr(c.decode(data))
    assert c.encode(settled) == data


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (set[float], {float("nan"), 1.0}),
        (dict[str, frozenset[float]], {"a": frozenset([float("nan")])}),
        (Measured, Measured(1, {2.0, float("nan")})),
        (list[tuple[int, set[float]]], [(1, {-float("nan"), 3.0})]),
    ],
    ids=repr,
)
def test_a_set_with_nan_is_refused_as_its_bytes_would_differ_from_try_to_try(declared, value):
    with pytest.raises(TypeError, match="a set with NaN has no order"):
        codec(declared).encode(value)


@pytest.mark.parametrize("value", [{"a": (float("nan"),)}, [{float("nan")}]], ids=repr)
def test_beside_what_is_not_a_number_a_changed_value_is_still_refused(value):
    with pytest.raises(TypeError, match="declare the exact type"):
        codec(Any).encode(value)


@pytest.mark.parametrize(
    ("declared", "given", "kept"),
    [
        (float, 5, 5.0),
        (list[float], [1, 2], [1.0, 2.0]),
        (list[int], (1, 2), [1, 2]),
        (int, np.int64(3), 3),
        (float, np.float32(0.5), 0.5),
        (dict[str, Any], {"a": np.bool_(True), "b": np.float64(1.5)}, {"a": True, "b": 1.5}),
    ],
    ids=str,
)
def test_what_stays_warm_is_what_would_be_read(declared, given, kept):
    c = codec(declared)
    data, settled = c.encode_and_read(given)
    assert repr(settled) == repr(kept) == repr(c.decode(data))
    assert c.encode(settled) == data


@pytest.mark.parametrize("declared", [Unknown, Unknown | None, complex, list[Unknown]], ids=str)
def test_a_type_that_cannot_be_encoded_is_refused_at_once(declared):
    with pytest.raises(InvalidPipeline, match=r"C\.f.*cannot be encoded"):
        codec(declared)


def test_a_codec_travels_to_workers():
    c = pickle.loads(pickle.dumps(codec(dict[str, set[int]])))
    assert c.decode(c.encode({"a": {2, 1}})) == {"a": {1, 2}}


@pytest.mark.parametrize(
    "value", [object(), {2**70: 1}, "\ud800", {"a": Unknown(), "b": 2**70}], ids=repr
)
def test_a_record_that_cannot_be_encoded_says_so(value):
    with pytest.raises(InvalidRecord, match="the value cannot be encoded"):
        packed(value)


def test_numbers_of_numpy_are_packed_as_python_numbers():
    value = {"t": np.float64(1.5), "n": [np.int8(-1), np.uint64(2**63)], "b": np.bool_(False)}
    assert packed(value) == packed({"t": 1.5, "n": [-1, 2**63], "b": False})
    with pytest.raises(InvalidRecord, match=r"numpy.ndarray is unsupported: write .tolist\(\)"):
        packed({"t": np.zeros(3)})


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**62, 2**66) | st.binary()
    | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def same(one, other):
    """Equal, and of the same kinds throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and repr(one) == repr(other)


@given(_plain)
def test_a_record_comes_back_as_it_was_whatever_the_size_of_its_integers(value):
    assert same(decode_value(packed(value)), value)
    assert same(decode_value(packed_exactly(value)), value)


@pytest.mark.parametrize(
    "cell",
    [
        Decimal("1.50"), Decimal("-0"), Decimal("NaN"), Decimal("1e400"),
        datetime(2024, 3, 31, 2, 30), datetime(2024, 1, 1, tzinfo=UTC), datetime.min, datetime.max,
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2024, 10, 27, 2, 30, 0, 5, ZoneInfo("Europe/Berlin"), fold=1),
        date(1, 1, 1), time(23, 59, 59, 999_999), timedelta(days=-3, microseconds=1),
        timedelta.max, UUID(int=7), 2**64, -(2**63) - 1, -(2**70), 10**4000, -0.0,
    ],
)  # fmt: skip
def test_what_columns_hold_comes_back_as_it_was(cell):
    for value in (cell, {"a": cell}, {"a": [{"b": cell}]}):
        back = decode_value(packed_exactly(value))
        assert back == value or (back != back and cell != cell) or "NaN" in repr(value)
        while not isinstance(back, type(cell)):
            back = next(iter(back.values() if isinstance(back, dict) else back))
        assert type(back) is type(cell)
        if isinstance(cell, datetime):
            assert back.isoformat() == cell.isoformat() and back.fold == cell.fold


def test_wide_integers_are_packed_inside_of_classes_too():
    @dataclass
    class Big:
        n: int
        at: Decimal

    value = {"a": (Big(2**80, Decimal("1.5")), Point(1.0, 2.0)), "b": {2**80}}
    assert decode_value(packed(value)) == {
        "a": [{"n": 2**80, "at": "1.5"}, {"x": 1.0, "y": 2.0}],
        "b": [2**80],
    }
    assert decode_value(packed(np.int64(5))) == 5


def test_a_wide_integer_cannot_name_an_entry_of_a_dict():
    with pytest.raises(InvalidRecord, match="the key of a dict has at most 64 bits"):
        packed({2**80: 1})


@given(st.integers() | st.integers(-(2**70), 2**70))
def test_state_of_any_kind_holds_integers_of_any_size(value):
    c = codec(Any)
    assert (
        c.encode_and_read({"n": [value]})[1] == c.decode(c.encode({"n": [value]})) == {"n": [value]}
    )


def test_wide_integers_inside_typed_state_are_refused():
    for declared, value in ((list[int], [2**64]), (dict[str, int | None], {"a": -(2**64)})):
        with pytest.raises(TypeError, match="declared as"):
            codec(declared).encode(value)
