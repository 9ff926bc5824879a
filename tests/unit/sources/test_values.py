"""Sources that need no files of the user's: memory, generate and DataFrames."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headrace import sources
from headrace.errors import InvalidPipeline, SourceError, UserCodeError
from headrace.model.source import Change, Seen, Source, Workspace
from headrace.model.values.time import SECOND
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore


def prepared(source: Source, tmp_path: Path) -> Source:
    source.prepare(Workspace(DiskStore(tmp_path / "workspace")))
    return source


def draw(number: int, dice: random.Random) -> tuple[int, float]:
    return number, dice.random()


def test_memory_takes_times_from_beside_the_values() -> None:
    source = sources.memory(["a", "b"], timestamps=[5, datetime(1970, 1, 1, tzinfo=UTC)])
    planned = source.plan("memory", 0, 10)
    assert planned is not None
    assert source.read("memory", planned).timestamps.tolist() == [5, 0]
    with pytest.raises(InvalidPipeline, match="2 values and 1 timestamps"):
        sources.memory(["a", "b"], timestamps=[5])
    with pytest.raises(InvalidPipeline, match="not both"):
        sources.memory(["a"], timestamps=[5], timestamp="ts")
    with pytest.raises(InvalidPipeline, match="not one text"):
        sources.memory("abc")


def test_a_list_that_changed_under_the_plan_is_refused() -> None:
    planned = sources.memory([1, object()]).plan("memory", 0, 2)
    assert planned is not None
    with pytest.raises(SourceError, match="has changed since the plan was made"):
        sources.memory([2, object()]).read("memory", planned)


def test_a_generated_record_is_the_same_however_many_splits_make_it() -> None:
    def everything(splits: int) -> list[Any]:
        source = sources.generate(draw, count=20, splits=splits, seed=3, rate=10, start=100)
        found = []
        for split in source.splits():
            planned = source.plan(split, 0, 100)
            assert planned is not None and planned.last
            reading = source.read(split, planned)
            found += list(zip(reading.values or [], reading.timestamps.tolist(), strict=True))
        return sorted(found)

    assert everything(1) == everything(3) == everything(7)
    assert [value[0] for value, _ in everything(7)] == list(range(20))
    assert [stamp for _, stamp in everything(1)][:3] == [100, 100 + SECOND // 10, 100 + SECOND // 5]
    assert len({value[1] for value, _ in everything(1)}) == 20


def test_a_generator_knows_its_watermark_and_stamps_only_without_timestamp() -> None:
    source = sources.generate(draw, rate=2, splits=2)
    assert not source.bounded
    assert source.low_watermark("1", 3) == 7 * SECOND // 2
    own = sources.generate(draw, rate=2, timestamp=lambda value: value[0])
    planned = own.plan("0", 5, 2)
    assert planned is not None and not planned.last
    assert own.read("0", planned).timestamps is None
    assert own.low_watermark("0", 3) is None


def test_a_paced_generator_offers_what_is_due_and_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])

    def make() -> Source:
        return prepared(sources.generate(draw, rate=10, paced=True, count=100), tmp_path)

    source = make()
    planned = source.plan("0", 0, 50)
    assert planned is not None and (planned.start, planned.end) == (0, 1)
    assert source.plan("0", 1, 50) is None
    clock[0] += 1
    planned = source.plan("0", 1, 50)
    assert planned is not None and (planned.start, planned.end, planned.last) == (1, 11, False)
    assert source.read("0", planned).timestamps.tolist()[0] == 1000 * SECOND + SECOND // 10
    clock[0] += 2
    planned = make().plan("0", 11, 50)
    assert planned is not None and planned.end == 31
    clock[0] += 1000
    planned = source.plan("0", 31, 500)
    assert planned is not None and planned.end == 100 and planned.last


def test_a_function_that_fails_names_the_record() -> None:
    source = sources.generate(lambda number, _: 1 // (number - 7), count=10)
    planned = source.plan("0", 0, 10)
    assert planned is not None
    with pytest.raises(UserCodeError, match="record 7: ZeroDivisionError"):
        source.read("0", planned)


def test_other_arguments_under_an_open_plan_are_refused() -> None:
    planned = sources.generate(draw, seed=1).plan("0", 0, 10)
    assert planned is not None
    with pytest.raises(SourceError, match="other arguments"):
        sources.generate(draw, seed=2).read("0", planned)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paced": True}, "needs rate="),
        ({"rate": 0}, "records per second"),
        ({"splits": 0}, "at least 1"),
        ({"count": -1}, "negative"),
    ],
)
def test_a_generator_with_wrong_arguments_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        sources.generate(draw, **options)


def read_frame(source: Source) -> pa.RecordBatch:
    planned = source.plan("dataframe", 0, 1000)
    assert planned is not None and planned.last
    return pickle.loads(pickle.dumps(source)).read("dataframe", planned).columns


def test_frames_of_all_libraries_read_alike(tmp_path: Path) -> None:
    data = {"s": ["x", "y", "x"], "n": [3, 1, 2]}
    frames = {
        "pandas": pd.DataFrame(data, index=[9, 8, 7]),
        "categories": pd.DataFrame(data).astype({"s": "category"}),
        "polars": pl.DataFrame(data),
        "lazy": pl.LazyFrame(data),
        "arrow": pa.table(data),
        "batch": pa.RecordBatch.from_pydict(data),
    }
    schema = pa.schema([("s", pa.string()), ("n", pa.int64())])
    for name, frame in frames.items():
        batch = read_frame(prepared(sources.dataframe(frame), tmp_path / name))
        assert batch.schema.equals(schema), name
        assert batch.to_pydict() == data, name


def test_a_restart_reads_the_spool_and_not_the_frame(tmp_path: Path) -> None:
    prepared(sources.dataframe(pa.table({"n": [1, 2]})), tmp_path)
    changed = prepared(sources.dataframe(pa.table({"n": [7]})), tmp_path)
    assert read_frame(changed).to_pydict() == {"n": [1, 2]}


def test_a_spool_without_its_marker_is_written_again(tmp_path: Path) -> None:
    prepared(sources.dataframe(pa.table({"n": [1, 2]})), tmp_path)
    (tmp_path / "workspace" / "complete").unlink()
    again = prepared(sources.dataframe(pa.table({"n": [7]})), tmp_path)
    assert read_frame(again).to_pydict() == {"n": [7]}
    assert len(list((tmp_path / "workspace").glob("spool-*"))) == 1


def test_a_frame_without_rows_ends_at_once(tmp_path: Path) -> None:
    source = prepared(sources.dataframe(pd.DataFrame({"n": []})), tmp_path)
    planned = source.plan("dataframe", 0, 10)
    assert planned is not None and planned.last and planned.end == 0
    assert len(source.read("dataframe", planned).positions) == 0


def test_what_is_no_frame_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match=r"not list; .* use sources.memory"):
        sources.dataframe([1, 2])
    with pytest.raises(InvalidPipeline, match="for streaming Spark frames only"):
        sources.dataframe(pa.table({"n": [1]}), available_now=True)
    mixed = pd.DataFrame({"mixed": [1, "x", object()]})
    with pytest.raises(SourceError, match="pandas frame cannot be turned into Arrow"):
        prepared(sources.dataframe(mixed), tmp_path)
    lost = pickle.loads(pickle.dumps(sources.dataframe(pa.table({"n": [1]}))))
    with pytest.raises(SourceError, match="pickled before it was prepared"):
        prepared(lost, tmp_path / "lost")


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_a_frame_is_copied_into_a_store_that_has_no_paths(kind: str) -> None:
    store = MemoryStore()
    store.write("spool-old/rows.parquet", b"of a driver that died")
    table = pa.table({"n": list(range(1000))})
    frame = table if kind == "arrow" else table.to_pandas()
    first, again = sources.dataframe(frame), sources.dataframe(pa.table({"n": [7]}))
    for source in (first, again):
        source.prepare(Workspace(store))
        whole = source.plan("dataframe", 0, 5000)
        assert whole is not None and whole.last
        read = source.read("dataframe", whole).columns
        assert read["n"].to_pylist() == list(range(1000)), "a restart reads the copy"
    assert [name.partition("/")[0] for name in store.files].count("spool-old") == 0
    planned = first.plan("dataframe", 0, 10)
    assert planned is not None
    copy = pickle.loads(pickle.dumps(first))
    assert copy.read("dataframe", planned).columns.to_pylist() == [{"n": n} for n in range(10)]
    [change] = [again.compare("dataframe", "", Seen(1000), closely=True)]
    assert isinstance(change, Change) and change.told_only


def test_a_frame_without_rows_is_copied_into_a_store_too() -> None:
    source = sources.dataframe(pa.table({"n": pa.array([], pa.int64())}))
    source.prepare(Workspace(MemoryStore()))
    planned = source.plan("dataframe", 0, 10)
    assert planned is not None and planned.last and planned.records == 0


def test_a_workspace_need_not_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    for store in (MemoryStore(), DiskStore(tmp_path / "state")):
        workspace = Workspace(store.below("sources/in"))
        files = sources.text(tmp_path / "*.txt", ordered_by_name=True)
        files.prepare(workspace)
        assert store.list("sources/in/layout") == ["00000000"]
        clock = sources.generate(lambda n, random: n, rate=1, paced=True)
        clock.prepare(workspace)
        began = store.read("sources/in/began")
        sources.generate(lambda n, random: n, rate=1, paced=True).prepare(workspace)
        assert store.read("sources/in/began") == began
