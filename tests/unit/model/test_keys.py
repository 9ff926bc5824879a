"""Keys: identity and order survive encoding, and what cannot be a key is refused."""

import enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import InvalidRecord
from headrace.model.values.keys import KEY_BYTES_MAX, decode_key, encode_key, encode_part, hash_key

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**64 - 1)
ATOMS = st.one_of(TEXT, NUMBERS, st.binary())
PARTS = st.recursive(
    st.one_of(ATOMS, st.none()), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6
)


class Colour(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@given(PARTS)
def test_a_key_comes_back_as_it_was(key):
    back = decode_key(encode_part(key))
    assert back == key
    assert type(back) is type(key)


@given(PARTS, PARTS)
def test_two_keys_are_equal_if_and_only_if_their_bytes_are(one, two):
    # In Python, True == 1 and 1 == 1.0; none of these can be a key, so == is identity here.
    assert (encode_part(one) == encode_part(two)) == (one == two)


@given(NUMBERS, NUMBERS)
def test_numbers_sort_by_size(one, two):
    assert (encode_part(one) < encode_part(two)) == (one < two)


@given(TEXT, TEXT)
def test_text_sorts_by_code_point(one, two):
    assert (encode_part(one) < encode_part(two)) == (one < two)


@given(st.binary(), st.binary())
def test_bytes_sort_as_bytes(one, two):
    assert (encode_part(one) < encode_part(two)) == (one < two)


@given(st.tuples(TEXT, NUMBERS, st.binary()), st.tuples(TEXT, NUMBERS, st.binary()))
def test_tuples_sort_part_by_part(one, two):
    assert (encode_part(one) < encode_part(two)) == (one < two)


@given(st.lists(TEXT, max_size=3), st.lists(TEXT, max_size=3))
def test_a_shorter_tuple_sorts_before_those_it_begins(one, two):
    assert (encode_part(tuple(one)) < encode_part(tuple(two))) == (tuple(one) < tuple(two))


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (True, "not bool"),
        (("a", False), "not bool"),
        (1.0, "not float"),
        (None, "missing"),
        ("", "empty"),
        (b"", "empty"),
        ("x" * 10_000_000, "the limit is"),
        ("\ud800", "not valid Unicode"),
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (["a"], "not list"),
        ({"a": 1}, "not dict"),
        (np.float64(1.0), "not float"),
        (np.bool_(True), "not bool"),
        (("a", 1.5), "not float"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_cannot_be_a_key_is_refused_with_the_reason(key, reason):
    with pytest.raises(InvalidRecord, match=reason) as refusal:
        encode_key(key)
    assert len(str(refusal.value)) < 500


def test_the_longest_key_is_just_within_the_limit():
    longest = "x" * (KEY_BYTES_MAX - 2)
    assert decode_key(encode_key(longest)) == longest
    with pytest.raises(InvalidRecord):
        encode_key(longest + "x")


@pytest.mark.parametrize(
    ("scalar", "plain"),
    [
        (np.int64(-5), -5),
        (np.uint8(7), 7),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.array(3), 3),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
    ],
)
def test_scalars_of_numpy_and_enums_are_what_they_hold(scalar, plain):
    assert encode_key(scalar) == encode_key(plain)
    assert encode_key((scalar, None)) == encode_key((plain, None))


def test_one_and_its_text_and_its_bytes_are_three_keys():
    assert len({encode_key(1), encode_key("1"), encode_key(b"1"), encode_key((1,))}) == 4


def test_stray_bytes_after_a_key_are_not_overlooked():
    with pytest.raises(ValueError, match="stray"):
        decode_key(encode_key("a") + b"x")


def test_the_place_of_a_key_never_changes():
    # Rings, segments and routing rest on this; another value would lose every checkpoint.
    assert hash_key(encode_key("a")) == 0x938B_8540_8A4F_570C
    assert hash_key(encode_key(("a", -1))) == 0x1375_1ABD_7B33_95D4
