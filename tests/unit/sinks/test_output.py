"""`read_output`: what a file sink has published, from a directory and from a store."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.engine.support import counting, driver_of, run
from tests.unit.systems import FILES

from headrace import read_output, sinks
from headrace.errors import SourceError
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.rows import Rows
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import Store

Place = Path | Store


@pytest.fixture(params=["directory", "memory", "store on disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return tmp_path / "out"
    return MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "out")


def opened(sink: Sink) -> Sink:
    sink.open(Opening("c1", 1, 0, MemoryStore()))
    return sink


def deliver(sink: Sink, epoch: int, *values: Any, weak: bool = False) -> None:
    data = sink.encode(Rows.of(list(values), [0] * len(values)))
    sink.deliver(
        Delivery(epoch, "c1", [Part("a/0", "", lambda: data, rows=len(values))], weak=weak)
    )


def test_epochs_are_read_in_order_and_a_cursor_goes_on(place: Place) -> None:
    sink = opened(sinks.jsonl(place))
    with_nothing = read_output(place)
    assert len(with_nothing) == 0 and with_nothing.table().num_rows == 0
    deliver(sink, 1, {"n": 1}, {"n": 2})
    deliver(sink, 2)
    first = read_output(place, after=with_nothing.cursor)
    assert first.table().to_pylist() == [{"n": 1}, {"n": 2}]
    deliver(sink, 3, {"n": 3})
    deliver(sink, 4, {"n": 4})
    newer = read_output(place, after=first.cursor)
    assert [epoch.number for epoch in newer if epoch.table().num_rows] == [3, 4]
    assert newer.table()["n"].to_pylist() == [3, 4]
    assert len(read_output(place, after=newer.cursor)) == 0
    assert read_output(place, after=newer.cursor).cursor == newer.cursor
    assert read_output(place).table()["n"].to_pylist() == [1, 2, 3, 4]


def test_a_cursor_of_another_output_or_none_at_all_is_refused(place: Place) -> None:
    with pytest.raises(SourceError, match="there is no output of a file sink at"):
        read_output(place)
    opened(sinks.jsonl(place))
    with pytest.raises(SourceError, match="checkpoint other.*belongs to c1.*from the beginning"):
        read_output(place, after="other/3")
    with pytest.raises(SourceError, match="is not the cursor of an earlier reading"):
        read_output(place, after="3")


def test_weak_deliveries_are_told_apart_and_appear_with_their_epoch(place: Place) -> None:
    sink = opened(sinks.jsonl(place))
    deliver(sink, 1, {"n": 1}, weak=True)
    deliver(sink, 1, {"n": 1}, weak=True)
    assert len(read_output(place)) == 0
    deliver(sink, 1, {"n": 2})
    output = read_output(place)
    weak = sorted(n for e in output if e.is_weak for n in e.table()["n"].to_pylist())
    strong = [n for e in output if not e.is_weak for n in e.table()["n"].to_pylist()]
    assert (weak, strong) == ([1, 1], [2])


ROWS = [
    {"a": 1, "t": 'x, "y"\n', "f": 1.5, "b": True},
    {"a": None, "t": "", "f": -2.0, "b": False},
]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_every_format_gives_its_rows_back(kind: str, place: Place) -> None:
    sink = opened(getattr(sinks, kind)(place))
    deliver(sink, 1, *ROWS)
    deliver(sink, 2, *ROWS)
    assert read_output(place).table().to_pylist() == [*ROWS, *ROWS]


def test_json_values_that_are_no_objects_and_columns_without_a_type_are_read(
    place: Place,
) -> None:
    sink = opened(sinks.jsonl(place))
    deliver(sink, 1, "text", 3)
    deliver(sink, 2, {"value": None})
    assert read_output(place).table()["value"].to_pylist() == ['"text"', "3", None]


def test_partitions_are_columns(place: Place) -> None:
    sink = opened(sinks.parquet(place, partition_by=["day", "hour"]))
    day = datetime.date(2024, 5, 1)
    deliver(sink, 1, {"n": 1, "day": day, "hour": 7}, {"n": 2, "day": None, "hour": 12})
    found = read_output(place).table().to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == [
        {"n": 1, "day": "2024-05-01", "hour": 7},
        {"n": 2, "day": None, "hour": 12},
    ]


def test_columns_that_do_not_go_together_are_explained(place: Place) -> None:
    sink = opened(sinks.parquet(place))
    deliver(sink, 1, {"n": 1})
    deliver(sink, 2, {"n": "text"})
    with pytest.raises(SourceError, match="do not go together.*schema="):
        read_output(place).table()
    assert [epoch.table()["n"].to_pylist() for epoch in read_output(place)] == [[1], ["text"]]


def test_times_are_read_as_times_though_older_files_have_integers(place: Place) -> None:
    sink = opened(sinks.parquet(place, times=()))
    deliver(sink, 1, {"window_end": 0, "n": 1})
    deliver(opened(sinks.parquet(place)), 2, {"window_end": 60_000_000, "n": 2})
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    found = read_output(place).table()["window_end"].to_pylist()
    assert found == [start, start + datetime.timedelta(minutes=1)]


def test_an_output_without_rows_has_the_schema_of_its_sink() -> None:
    schema = pa.schema([("n", pa.int32())])
    store = MemoryStore()
    deliver(opened(sinks.parquet(store, schema=schema)), 1)
    assert read_output(store).table().schema == schema


def test_files_are_named_where_they_lie_and_rows_in_manifests_are_copied(tmp_path: Path) -> None:
    deliver(opened(sinks.jsonl(tmp_path / "out")), 1, {"n": 1})
    [path] = read_output(tmp_path / "out").files()
    assert Path(path).read_text() == '{"n":1}\n'
    store = MemoryStore()
    sink = opened(sinks.jsonl(store))
    deliver(sink, 1, *({"n": n} for n in range(10_000)))
    [url] = read_output(store).files()
    assert url.startswith(f"{store.location}/data/000000000001-") and url.endswith(".jsonl")
    deliver(sink, 2, {"n": 1})
    with pytest.raises(SourceError, match="copies_in="):
        read_output(store).files()
    _, copy = read_output(store).files(copies_in=tmp_path / "copies")
    assert Path(copy).read_text() == '{"n":1}\n'
    assert read_output(store).files(copies_in=tmp_path / "copies")[1] == copy


def test_a_url_is_read_as_its_store_is(tmp_path: Path) -> None:
    store = MemoryStore()
    sink = sinks.jsonl(f"{store.location}/some/out")
    run(driver_of(counting([1, 2, 3], sink), MemoryStore(FILES)))
    output = read_output(f"{store.location}/some/out/")
    assert len(output.table()) == 3
    assert sorted(store.list("some/out")) == ["_epochs", "_identity", "data"]
    assert output.files()[0].startswith(f"{store.location}/some/out/data/")
    with pytest.raises(SourceError, match="is missing, though epoch 1 names it"):
        for name in store.list("some/out/data"):
            store.delete(f"some/out/data/{name}")
        output.table()
