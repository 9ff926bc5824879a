"""CSV cells in the types of a schema, and times as people write them: numbers, without a zone."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.engine.support import driver_of, run

from headrace import Pipeline, sinks, sources, to
from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Timing
from headrace.model.values.zones import columns_in_zone, in_zone, zone_named
from headrace.store.disk import DiskStore
from headrace.store.store import Store

NINE_IN_BERLIN = 1_400_223_600_000_000  # 2014-05-16 07:00 UTC


def read(
    source: sources.Source, schema: Any = None, store: Store | None = None
) -> tuple[list[Any], list[str], list[int]]:
    """All that a pipeline reads from a source: values, why others are aside, and times."""
    rows, letters = sinks.memory(), sinks.memory()
    p = Pipeline("reads")
    p.read("rows", source, schema=schema, errors=to("dead")).write(rows)
    p.stream("dead").write(letters)
    run(driver_of(p.freeze(), store))
    return (
        rows.rows,
        [letter["error"] for letter in letters.rows],
        [timestamp for _, timestamp in rows.records],
    )


def csv_file(directory: Path, text: str) -> str:
    path = directory / "in.csv"
    path.write_text(text)
    return str(path)


@dataclass
class Trip:
    t: int
    fare: float | None
    note: str | None = None
    name: str = ""


def test_a_schema_says_what_cells_are_and_unit_what_its_numbers_mean(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "t,fare,note,name,x\n1400269500, 1.5,,,1\n1400269501,,hi,ada,2\n")
    values, aside, times = read(sources.csv(path, timestamp="t", unit="s"), Trip)
    assert aside == []
    assert values == [
        {"t": 1400269500, "fare": 1.5, "note": None, "name": ""},
        {"t": 1400269501, "fare": None, "note": "hi", "name": "ada"},
    ]
    assert times == [1400269500_000_000, 1400269501_000_000]


def test_a_cell_that_does_not_fit_is_told_with_its_column_and_what_it_holds(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "t,fare\n,1\n5,cheap\n6,2\n")
    values, aside, _ = read(sources.csv(path, timestamp="t"), Trip)
    assert [value["t"] for value in values] == [6]
    assert "column 't' is empty, but the schema says int64 and not None" in aside[0]
    assert "column 'fare' holds 'cheap', but the schema says double" in aside[1]


class Sparse(TypedDict):
    k: str
    v: NotRequired[int]


def test_empty_cells_in_dicts_and_arrow_schemas(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "k,v\n,1\nb,\n")
    assert read(sources.csv(path), Sparse)[0] == [{"k": "", "v": 1}, {"k": "b", "v": None}]
    schema = pa.schema([("k", pa.string()), pa.field("v", pa.int32(), nullable=True)])
    assert read(sources.csv(path), schema)[0] == [{"k": None, "v": 1}, {"k": "b", "v": None}]


@dataclass
class Doubled:
    """What a class does to its fields is done once."""

    v: int

    def __post_init__(self) -> None:
        self.v *= 2


def test_a_class_sees_each_row_of_text_as_often_as_a_row_of_json(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "v\n4\n")
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"v": 4}\n')
    assert read(sources.csv(path), Doubled)[0] == read(sources.jsonl(lines), Doubled)[0]


def test_files_read_by_name_have_the_types_of_the_schema_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "in" / name).write_text("t,fare\n5,\n")
    source = sources.csv(tmp_path / "in", timestamp="t", ordered_by_name=True)
    values, aside, _ = read(source, Trip, DiskStore(str(tmp_path / "state")))
    assert aside == []
    assert [value["fare"] for value in values] == [None, None]


def test_numbers_in_text_are_times_where_a_unit_says_so() -> None:
    assert Timing(unit="s").micros("1400269500") == 1400269500_000_000
    assert Timing(unit="s").micros(" 1400269500.25 ") == 1400269500_250_000
    assert Timing(unit="ms").micros("2014-05-16T07:00:00Z") == NINE_IN_BERLIN
    for text in ("1400269500", "1412011200000", "1400269500.5"):
        with pytest.raises(ValueError, match='a number without a unit: .*unit="s"'):
            Timing(zone="UTC").micros(text)


@pytest.mark.parametrize("text", ["2014-05-16 09:00:00", "20140516T0900", "2014-05-16T07:00Z"])
def test_a_time_without_a_zone_is_in_the_one_that_the_source_names(text: str) -> None:
    assert Timing(zone="Europe/Berlin").micros(text) == NINE_IN_BERLIN


def test_a_time_without_a_zone_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "at\n2014-05-16 09:00:00\n")
    p = Pipeline("naive")
    p.read("rows", sources.csv(path, timestamp="at")).write(sinks.memory())
    with pytest.raises(SourceError, match='has no time zone: .*zone="UTC" or zone="Europe/Berlin"'):
        run(driver_of(p.freeze()))


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2024-10-27 02:30:00", "2024-10-27 00:30:00"),  # comes twice: the first
        ("2024-03-31 02:30:00", "2024-03-31 01:30:00"),  # does not come: with the offset before
        ("2024-03-31 03:00:00", "2024-03-31 01:00:00"),
    ],
)
def test_times_that_come_twice_or_not_at_all_are_the_same_in_text_and_columns(
    local: str, utc: str
) -> None:
    zone = zone_named("Europe/Berlin")
    meant = datetime.fromisoformat(utc).replace(tzinfo=UTC)
    assert in_zone(datetime.fromisoformat(local), zone) == meant
    column = np.array([np.datetime64(local, "us").astype(np.int64)] * 2)
    assert columns_in_zone(column, zone).tolist() == [int(meant.timestamp()) * 1_000_000] * 2
    assert columns_in_zone(column[:0], zone).tolist() == []


@dataclass
class Event:
    at: datetime


def test_a_column_of_times_says_the_same_as_the_time_of_its_record(tmp_path: Path) -> None:
    meant = datetime(2014, 5, 16, 7, tzinfo=UTC)
    naive = datetime(2014, 5, 16, 9)
    text = csv_file(tmp_path, "at\n2014-05-16 09:00:00\n")
    table = pa.table({"at": pa.array([naive], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "in.parquet")
    timing: Any = {"timestamp": "at", "zone": "Europe/Berlin"}
    for source in (
        sources.csv(text, **timing),
        sources.parquet(tmp_path / "in.parquet", **timing),
        sources.memory([{"at": naive}], **timing),
    ):
        values, aside, times = read(source, Event)
        assert (values, aside, times) == ([{"at": meant}], [], [NINE_IN_BERLIN])
    # Without zone= a column of Arrow's times is UTC, as it is for Spark.
    assert read(sources.parquet(tmp_path / "in.parquet", timestamp="at"))[2] == [
        NINE_IN_BERLIN + 2 * 3_600_000_000
    ]


def test_an_unknown_zone_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidPipeline, match="did you mean 'Europe/Berlin'"):
        sources.memory([], timestamp="t", zone="Europe/Berln")
    for wrong in ("", "../etc/passwd", 5):
        with pytest.raises(InvalidPipeline, match="zone= is an IANA name"):
            sources.memory([], timestamp="t", zone=wrong)  # type: ignore[arg-type]


def test_the_function_of_generate_is_checked_when_the_pipeline_is_built() -> None:
    with pytest.raises(InvalidPipeline, match=r"sources.generate calls its function as f\(n, rand"):
        sources.generate(lambda n: n, count=1)  # type: ignore[arg-type, misc]
    with pytest.raises(InvalidPipeline, match=r"takes a function, f\(n, random\)"):
        sources.generate(5, count=1)  # type: ignore[arg-type]
    sources.generate(lambda n, random: n, count=1)
