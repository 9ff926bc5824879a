"""Text that a Parquet file has as a dictionary is read as one, and users see plain text."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.model.key_spec import KeySpec
from headrace.model.source import Reading
from headrace.model.values.keys import decode_key
from headrace.model.values.rows import Rows
from headrace.plan.rings.routing import keyed
from headrace.sources.files.input_file import LocalFile
from headrace.sources.files.parquet_rows import ParquetFormat

GROUP = 100


def _read(directory: Path, cells: Any, start: int = 0, end: int | None = None) -> Reading:
    path = directory / "some.parquet"
    pq.write_table(pa.table({"key": cells}), path, row_group_size=GROUP)
    return ParquetFormat().read(
        LocalFile(str(path)), "some", start, len(cells) if end is None else end
    )


def _keys(reading: Reading) -> list[Any]:
    """The key of each row, as routing finds it; fails if a key has no row."""
    rows = Rows(np.zeros(len(reading.positions), np.int64), columns=reading.columns)
    rows.coded = reading.coded
    parcel, unkeyed = keyed(rows, KeySpec("key", where="a test"))
    assert not unkeyed
    assert sorted(set(parcel.codes.tolist())) == list(range(len(parcel.keys)))
    return [decode_key(parcel.keys[code]) for code in parcel.codes.tolist()]


def test_a_dictionary_is_read_as_text_and_its_numbers_are_kept(tmp_path: Path) -> None:
    cells = [f"k{i % 7}" for i in range(GROUP)]
    reading = _read(tmp_path, cells)
    assert reading.columns is not None
    assert reading.columns.schema.field("key").type == pa.string()
    assert reading.columns.column("key").to_pylist() == cells
    assert len(reading.coded["key"].dictionary) == 7
    assert _keys(reading) == cells


def test_dictionaries_of_several_row_groups_become_one(tmp_path: Path) -> None:
    cells = [f"k{i % 5}" for i in range(GROUP)] + [f"k{3 + i % 5}" for i in range(GROUP)]
    reading = _read(tmp_path, cells)
    assert reading.coded["key"].dictionary.to_pylist() == [f"k{i}" for i in range(8)]
    assert _keys(reading) == cells


def test_values_outside_of_the_range_are_no_keys(tmp_path: Path) -> None:
    cells = ["a"] * (GROUP // 2) + ["b"] * (GROUP // 2)
    reading = _read(tmp_path, cells, 10, 40)
    assert reading.coded == {}
    assert _keys(reading) == ["a"] * 30


def test_missing_text_stays_missing(tmp_path: Path) -> None:
    cells = ["a", None] * (GROUP // 2)
    reading = _read(tmp_path, cells)
    assert reading.columns is not None
    assert reading.columns.column("key").to_pylist() == cells
    assert reading.coded == {}


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_types_stay_as_they_are(tmp_path: Path, kind: pa.DataType) -> None:
    cells = pa.array([f"k{i % 7}" for i in range(GROUP)]).cast(kind)
    reading = _read(tmp_path, cells)
    assert reading.columns is not None
    assert reading.columns.schema.field("key").type == kind
    assert reading.coded == {}
    assert _keys(reading) == cells.to_pylist()


def test_text_that_differs_in_every_row_is_read_plainly(tmp_path: Path) -> None:
    cells = [f"a long text with the number {i}" for i in range(GROUP)]
    reading = _read(tmp_path, cells)
    assert reading.coded == {}
    assert _keys(reading) == cells
