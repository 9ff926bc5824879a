"""From rows to parcels: keys equal if and only if their bytes are, order kept, nothing lost."""

import enum

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import InvalidRecord
from headrace.model.key_spec import KeySpec
from headrace.model.values.keys import decode_key, encode_key, hash_key
from headrace.model.values.rows import Rows
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.routing import keyed, route


def spec(given) -> KeySpec:
    return KeySpec(given, where="a test")


def columns(**given) -> Rows:
    batch = pa.RecordBatch.from_pydict(given)
    return Rows(np.arange(batch.num_rows, dtype=np.int64), columns=batch)


def keys_in_order(parcel) -> list:
    return [decode_key(parcel.keys[code]) for code in parcel.codes.tolist()]


def test_a_column_and_a_function_give_the_same_keys() -> None:
    rows = columns(k=["b", "a", "b", "ä"])
    fast, bad = keyed(rows, spec("k"))
    slow, also_bad = keyed(rows, spec(lambda value: value["k"]))
    assert bad == also_bad == []
    assert keys_in_order(fast) == keys_in_order(slow) == ["b", "a", "b", "ä"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 1], pa.int8()),
        pa.array([1, 2, 1], pa.uint64()),
        pa.array([b"1", b"2", b"1"]),
        pa.array(["1", "2", "1"], pa.large_string()),
        pa.array(["1", "2", "1"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 2, 0]), pa.array(["1", "unused", "2"])),
    ],
)
def test_arrow_columns_of_text_numbers_and_bytes_take_the_fast_way(values: pa.Array) -> None:
    parcel, bad = keyed(columns(k=values), spec("k"))
    assert not bad
    assert keys_in_order(parcel) == values.to_pylist()


def test_a_dictionary_that_holds_a_key_twice_is_one_key() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "a"]))
    parcel, _ = keyed(columns(k=column), spec("k"))
    assert parcel.keys == [encode_key("a")]
    assert parcel.codes.tolist() == [0, 0]


def test_numbers_text_and_truth_values_are_different_keys_or_none() -> None:
    values = [1, "1", b"1", True, 1.0, None, (1,), np.int64(1), ""]
    parcel, bad = keyed(Rows.of(list(range(9)), [0] * 9), spec(lambda i: values[i]))
    assert keys_in_order(parcel) == [1, "1", b"1", (1,), 1]
    assert [unkeyed.index for unkeyed in bad] == [3, 4, 5, 8]
    assert all(isinstance(unkeyed.error, InvalidRecord) for unkeyed in bad)
    assert parcel.rows.values() == [0, 1, 2, 6, 7]


def test_an_enum_is_its_value() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    parcel, _ = keyed(Rows.of([1, 2], [0, 0]), spec(lambda i: Colour.RED if i == 1 else "red"))
    assert len(parcel.keys) == 1


def test_a_null_cell_or_a_truth_value_in_a_column_spares_the_other_rows() -> None:
    parcel, bad = keyed(columns(k=["a", None, "b"]), spec("k"))
    assert keys_in_order(parcel) == ["a", "b"] and [b.index for b in bad] == [1]
    parcel, bad = keyed(columns(k=[True, False]), spec("k"))
    assert len(bad) == 2 and not len(parcel.rows)


def test_a_function_that_raises_rejects_its_row_alone() -> None:
    parcel, bad = keyed(Rows.of(["a", "bc"], [0, 0]), spec(lambda text: text[1]))
    assert keys_in_order(parcel) == ["c"]
    assert isinstance(bad[0].error, IndexError)


def test_without_columns_all_records_share_one_key() -> None:
    parcel, _ = keyed(columns(k=[1, 2, 3]), spec(()))
    assert keys_in_order(parcel) == [(), (), ()]


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_every_row_goes_to_the_slot_of_its_hash_in_its_order_with_its_own_values(
    slots: int,
) -> None:
    values = [f"key {i * 7 % 23}" for i in range(200)]
    rows = Rows.of(values, range(200))
    rows.origins = pa.array([b"%d" % i for i in range(200)])
    parcel, _ = keyed(rows, spec(lambda value: value))
    ring = Ring.even(slots)
    seen = []
    for slot, part in route(parcel, ring):
        times = part.rows.timestamps.tolist()
        assert times == sorted(times)
        for time, key, value, origin in zip(
            times, keys_in_order(part), part.rows.values(), part.rows.origins.to_pylist(),
            strict=True,
        ):  # fmt: skip
            place = ring.place(np.array([hash_key(encode_key(key))], np.uint64))
            assert place.tolist() == [slot]
            assert key == value == values[time] and origin == b"%d" % time
        seen += times
    assert sorted(seen) == list(range(200))


def test_no_rows_go_nowhere() -> None:
    parcel, _ = keyed(Rows.empty(), spec(lambda value: value))
    assert list(route(parcel, Ring.even(2))) == []


def test_keys_of_several_columns_are_those_that_records_have_one_by_one():
    names = pa.array(["a", None, "b", "a", "a", None])
    numbers = pa.array([1, 2, 1, 1, None, 2])
    columns = pa.RecordBatch.from_arrays([names, numbers], ["name", "number"])
    rows = Rows(np.arange(6), columns=columns)
    spec = KeySpec(("name", "number"), where="test")
    fast, bad = keyed(rows, spec)
    slow, _ = keyed(rows.as_packed(), spec)
    assert not bad
    found, wanted = ([parcel.keys[c] for c in parcel.codes] for parcel in (fast, slow))
    assert found == wanted
    assert len(fast.keys) == 4
