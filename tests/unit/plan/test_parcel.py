"""Parcels and rows: what goes in comes out, in one blob or many."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.values.keys import encode_key
from headrace.model.values.rows import Rows
from headrace.plan.parcel import Parcel


def packed(count: int, origins: bool = False) -> Rows:
    rows = Rows.of([{"n": i, "text": "x" * (i % 7)} for i in range(count)], range(count))
    if origins:
        rows.origins = pa.array([b"origin %d" % i for i in range(count)], pa.binary())
    return rows


def columnar(count: int) -> Rows:
    batch = pa.RecordBatch.from_pydict({"n": list(range(count)), "packed": ["y"] * count})
    return Rows(np.arange(count, dtype=np.int64), columns=batch)


def parcel_of(rows: Rows, distinct: int = 5) -> Parcel:
    keys = [encode_key(f"key {i}") for i in range(distinct)]
    return Parcel(keys, np.arange(len(rows), dtype=np.int32) * 3 % distinct, rows)


def content(parcel: Parcel) -> list[tuple]:
    origins = parcel.rows.origins.to_pylist() if parcel.rows.origins is not None else None
    return [
        (parcel.keys[code], time, value, origins[i] if origins else None)
        for i, (code, time, value) in enumerate(
            zip(
                parcel.codes.tolist(),
                parcel.rows.timestamps.tolist(),
                parcel.rows.values(),
                strict=True,
            )
        )
    ]


@pytest.mark.parametrize("rows", [packed(10), packed(10, True), columnar(10)])
def test_a_parcel_comes_back_from_its_blob(rows: Rows) -> None:
    parcel = parcel_of(rows)
    (blob,) = parcel.blobs()
    assert content(Parcel.read(blob)) == content(parcel)


def test_an_empty_parcel_has_no_blobs() -> None:
    assert list(parcel_of(Rows.empty()).blobs()) == []


@pytest.mark.parametrize("rows", [packed(1000), packed(1000, True), columnar(1000)])
def test_large_parcels_come_in_pieces_of_bounded_size_in_their_order(
    rows: Rows,
) -> None:
    parcel = parcel_of(rows, 50)
    blobs = list(parcel.blobs(4096))
    assert len(blobs) > 3
    assert max(map(len, blobs)) < 3 * 4096
    assert content(Parcel.merge([Parcel.read(blob) for blob in blobs])) == content(parcel)


def test_large_keys_count_and_are_sent_only_with_their_rows() -> None:
    keys = [encode_key(f"{i} " + "k" * 1000) for i in range(40)]
    parcel = Parcel(keys, np.arange(40, dtype=np.int32), packed(40))
    blobs = list(parcel.blobs(4096))
    assert max(map(len, blobs)) < 3 * 4096
    assert content(Parcel.merge([Parcel.read(blob) for blob in blobs])) == content(parcel)


def test_merging_gives_equal_keys_one_code_and_keeps_the_order() -> None:
    first = Parcel([b"a", b"b"], np.array([1, 0], np.int32), packed(2))
    second = Parcel([b"b", b"c"], np.array([0, 1, 0], np.int32), packed(3))
    merged = Parcel.merge([first, second])
    assert [merged.keys[c] for c in merged.codes.tolist()] == [b"b", b"a", b"b", b"c", b"b"]
    assert sorted(merged.keys) == [b"a", b"b", b"c"]
    assert content(merged) == content(first) + content(second)


def test_rows_of_different_forms_are_joined_without_loss() -> None:
    parts = [columnar(3), packed(2), Rows.empty(), columnar(1)]
    joined = Rows.concat(parts)
    assert joined.values() == [value for part in parts for value in part.values()]
    assert joined.timestamps.tolist() == [0, 1, 2, 0, 1, 0]


def test_rows_of_one_schema_stay_columns_and_of_two_do_not() -> None:
    same = Rows.concat([columnar(2), columnar(3)])
    assert same.columns is not None and same.columns.num_rows == 5
    other = Rows(np.zeros(1, np.int64), columns=pa.RecordBatch.from_pydict({"z": [1]}))
    mixed = Rows.concat([columnar(1), other])
    assert mixed.packed is not None and mixed.values() == [{"n": 0, "packed": "y"}, {"z": 1}]


def test_origins_survive_joining_only_where_all_rows_have_them() -> None:
    assert Rows.concat([packed(2, True), packed(1, True)]).origins.to_pylist() == [
        b"origin 0", b"origin 1", b"origin 0",
    ]  # fmt: skip
    assert Rows.concat([packed(2, True), packed(1)]).origins is None


def test_columns_with_dictionaries_of_their_own_are_joined() -> None:
    def text(*values: str) -> Rows:
        column = pa.array(values).dictionary_encode()
        return Rows(
            np.zeros(len(values), np.int64), columns=pa.RecordBatch.from_arrays([column], ["t"])
        )

    joined = Rows.concat([text("a", "b"), text("c", "a")])
    assert joined.values() == [{"t": t} for t in "abca"]
