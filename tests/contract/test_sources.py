"""What every source promises, checked for each of them.

Structured Streaming is checked on real Spark, in tests/spark.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers import kafka

from headrace import sources
from headrace.errors import SourceError
from headrace.model.source import Range, Reading, Seen, Source, Workspace
from headrace.model.values.arrow import dicts
from headrace.sources.files.format import FileFormat
from headrace.sources.files.lines import LineFormat
from headrace.sources.generated import GeneratedSource
from headrace.sources.kafka.source import KafkaSource
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"
RECORDS = 500
RANGE_SIZES = (1, 7, 64, 10_000)

Records = list[tuple[int, Any]]
Make = Callable[[Path], Source]


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"naïve {i}" * (i % 9)} for i in range(first, first + count)]


def write_text(path: Path, lines: list[str], *, ends: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    path.write_bytes(text.encode())


def write_json(directory: Path) -> str:
    write_text(directory / "a.jsonl", [json.dumps(r) for r in rows(RECORDS)])
    write_text(directory / "b.jsonl", [json.dumps(r) for r in rows(60, 1000)], ends=False)
    write_text(directory / "empty.jsonl", [])
    write_text(directory / "deep" / "c.jsonl", [json.dumps(r) for r in rows(3, 2000)])
    return str(directory)


def write_csv(directory: Path) -> str:
    quoted = [f'{i},"line 1\nline ""{i}"" of {i}, {"x" * (i % 50)}"' for i in range(RECORDS)]
    write_text(directory / "a.csv", ["id,note", *quoted])
    write_text(directory / "b.csv", ["id,note", "1,plain", "", "2,"], ends=False)
    write_text(directory / "c.csv", ["id,note"])
    return str(directory / "*.csv")


def write_parquet(directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows(RECORDS)), directory / "a.parquet", row_group_size=96)
    pq.write_table(pa.Table.from_pylist(rows(7, 900)), directory / "b.parquet")
    pq.write_table(pa.Table.from_pylist(rows(1))[:0], directory / "c.parquet")
    return str(directory)


def write_gzip(directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    for name in "ab":
        with gzip.open(directory / f"{name}.txt.gz", "wt") as file:
            file.writelines(f"{name} {i}\n" for i in range(RECORDS))
    return str(directory / "*.gz")


def lines_of(directory: Path) -> str:
    write_text(directory / "a.txt", ["", "z", *[f"line {i} " + "é" * (i % 70) for i in range(300)]])
    write_text(directory / "b.txt", ["last line without a newline"], ends=False)
    return str(directory / "*.txt")


def number_and_dice(number: int, dice: Any) -> dict[str, Any]:
    return {"number": number, "draw": dice.random()}


_stores: list[MemoryStore] = []
"""A store in memory lives as long as something refers to it."""


def stored(written: str, directory: Path) -> str:
    """The same files in a store, and the same pattern as its URL."""
    store = MemoryStore()
    _stores.append(store)
    for path in directory.rglob("*"):
        if path.is_file():
            store.write(f"in/{path.relative_to(directory).as_posix()}", path.read_bytes())
    return written.replace(str(directory), f"{store.location}/in")


def topic_of(directory: Path, **options: Any) -> Source:
    """Two partitions with gaps: after a transaction that was aborted, and at the end."""
    server = kafka.broker()
    topic = kafka.new_topic(server, 3)
    kafka.produce(server, topic, rows(40), partition=0)
    kafka.transaction(server, topic, rows(5), abort=True)
    kafka.produce(server, topic, rows(3, 50), partition=0)
    kafka.transaction(server, topic, rows(30), partition=1, abort=False)
    return sources.kafka(topic, servers=server.servers, stop="latest", **options)


SOURCES: dict[str, Make] = {
    "text": lambda d: sources.text(lines_of(d)),
    "text-by-name": lambda d: sources.text(lines_of(d), ordered_by_name=True),
    "text-gzip": lambda d: sources.text(write_gzip(d)),
    "text-gzip-by-name": lambda d: sources.text(write_gzip(d), ordered_by_name=True),
    "jsonl": lambda d: sources.jsonl(write_json(d), timestamp="id"),
    "jsonl-by-name": lambda d: sources.jsonl(write_json(d), ordered_by_name=True),
    "csv": lambda d: sources.csv(write_csv(d), types={"id": int}),
    "csv-by-name": lambda d: sources.csv(write_csv(d), ordered_by_name=True),
    "parquet": lambda d: sources.parquet(write_parquet(d), timestamp="id", unit="s"),
    "parquet-columns": lambda d: sources.parquet(write_parquet(d), columns=["name"]),
    "parquet-by-name": lambda d: sources.parquet(write_parquet(d), ordered_by_name=True),
    "stored-text": lambda d: sources.text(stored(lines_of(d), d)),
    "stored-text-by-name": lambda d: sources.text(stored(lines_of(d), d), ordered_by_name=True),
    "stored-gzip": lambda d: sources.text(stored(write_gzip(d), d)),
    "stored-jsonl": lambda d: sources.jsonl(stored(write_json(d), d) + "/", timestamp="id"),
    "stored-jsonl-on-disk": lambda d: sources.jsonl(DiskStore(write_json(d))),
    "stored-csv": lambda d: sources.csv(stored(write_csv(d), d), types={"id": int}),
    "stored-parquet": lambda d: sources.parquet(stored(write_parquet(d), d) + "/"),
    "stored-parquet-columns": lambda d: sources.parquet(
        stored(write_parquet(d), d) + "/**", columns=["name"]
    ),
    "stored-parquet-by-name": lambda d: sources.parquet(
        stored(write_parquet(d), d), ordered_by_name=True
    ),
    "memory": lambda d: sources.memory(rows(RECORDS), timestamps=range(RECORDS)),
    "kafka": topic_of,
    "kafka-columns": lambda d: topic_of(d, columns=["offset"], timestamp="id", value="json"),
    "memory-empty": lambda d: sources.memory([]),
    "generate": lambda d: sources.generate(number_and_dice, count=RECORDS, splits=3, rate=10),
    "pandas": lambda d: sources.dataframe(pd.DataFrame(rows(RECORDS))),
    "polars": lambda d: sources.dataframe(pl.DataFrame(rows(RECORDS))),
    "polars-lazy": lambda d: sources.dataframe(pl.LazyFrame(rows(RECORDS))),
    "arrow": lambda d: sources.dataframe(pa.Table.from_pylist(rows(RECORDS))),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    return prepared(SOURCES[request.param](tmp_path / "in"), tmp_path)


def prepared(made: Source, tmp_path: Path) -> Source:
    made.prepare(Workspace(DiskStore(tmp_path / "workspace")))
    return made


@pytest.mark.parametrize("size", RANGE_SIZES)
def test_a_split_reaches_as_far_as_it_is_read_in_the_end(source: Source, size: int) -> None:
    for split in source.splits():
        position = source.first(split)
        while True:
            found = source.plan(split, position, size)
            reaches = source.reaches(split)
            assert found is not None and reaches is not None
            assert found.end <= reaches
            position = found.end
            if found.last:
                break
        assert position == source.reaches(split)


def ranges_of(source: Source, split: str, records: int) -> list[Range]:
    """Every range of a split that ends, planned `records` at a time."""
    position = source.first(split)
    found: list[Range] = []
    while not found or not found[-1].last:
        planned = source.plan(split, position, records)
        assert planned is not None, "a split that ends has a range until it has ended"
        assert planned.start == position
        assert planned.end > planned.start or planned.last, "a range makes progress"
        found.append(planned)
        position = planned.end
    return found


def records_of(reading: Reading) -> Records:
    values = reading.values if reading.columns is None else dicts(reading.columns)
    assert values is not None
    positions = np.asarray(reading.positions)
    assert positions.dtype == np.int64
    assert len(positions) == len(values)
    stamps = reading.timestamps
    if stamps is not None:
        assert len(stamps) == len(values)
        values = list(zip(values, stamps.tolist(), strict=True))
    return list(zip(positions.tolist(), values, strict=True))


def read_all(source: Source, split: str, records: int) -> Records:
    return [
        record
        for planned in ranges_of(source, split, records)
        for record in records_of(source.read(split, planned))
    ]


def test_ranges_of_any_size_give_the_same_records(source: Source) -> None:
    for split in source.splits():
        whole, *others = (read_all(source, split, size) for size in reversed(RANGE_SIZES))
        for other in others:
            assert other == whole


def test_positions_increase_and_lie_in_their_range(source: Source) -> None:
    for split in source.splits():
        for planned in ranges_of(source, split, 50):
            positions = [position for position, _ in records_of(source.read(split, planned))]
            assert positions == sorted(set(positions))
            assert all(planned.start <= position < planned.end for position in positions)


def test_the_number_of_records_is_about_what_was_asked_for(source: Source) -> None:
    for split in source.splits():
        for planned in ranges_of(source, split, 20):
            is_whole_file = planned.end - planned.start >= LineFormat.unpacked_bytes_max
            if not is_whole_file:
                assert len(records_of(source.read(split, planned))) <= 25
                assert planned.records <= 25


def test_a_range_read_twice_is_the_same(source: Source) -> None:
    for split in source.splits():
        for planned in ranges_of(source, split, 97):
            once, again = (records_of(source.read(split, planned)) for _ in "12")
            assert once == again


def test_a_task_reads_the_same_from_a_pickled_source(source: Source) -> None:
    for split in source.splits():
        planned = ranges_of(source, split, 97)
        copy = pickle.loads(pickle.dumps(source))
        for each in planned:
            assert records_of(copy.read(split, each)) == records_of(source.read(split, each))
            assert copy.low_watermark(split, each.end) == source.low_watermark(split, each.end)


def test_pickled_bytes_do_not_depend_on_what_was_planned(source: Source) -> None:
    before = pickle.dumps(pickle.loads(pickle.dumps(source)))
    for split in source.splits():
        ranges_of(source, split, 10)
    assert pickle.dumps(pickle.loads(pickle.dumps(source))) == before


def seen_of(source: Source, split: str, records: int, parts: int) -> list[dict[str, Seen]]:
    """What is remembered of a split after each of its ranges, each cut for several tasks."""
    known: dict[str, Seen] = {}
    found = []
    for planned in ranges_of(source, split, records):
        for part in source.parallel(split, planned, parts):
            for name, seen in source.read(split, part).seen.items():
                known[name] = known[name].then(seen) if name in known else seen
        found.append(dict(known))
    return found


def test_what_is_remembered_does_not_depend_on_the_cut_and_is_found_again(
    source: Source,
) -> None:
    make_cuts_cheap(source)
    if isinstance(format := getattr(source, "format", None), FileFormat):
        format.sum_bytes = 64
    splits = list(source.splits())
    assert set(splits) <= {split for split, _ in source.parts()}
    for split in splits:
        at_once = seen_of(source, split, 10_000, 1)[-1]
        assert all(seen.whole for seen in at_once.values())
        for records, parts in ((7, 1), (50, 3), (10_000, 4)):
            steps = seen_of(source, split, records, parts)
            assert steps[-1] == at_once
            for known in steps:
                for name, seen in known.items():
                    assert source.compare(split, name, seen, closely=False) == seen
                    # Another time alone is no change, once all bytes were compared.
                    touched = msgspec.structs.replace(seen, time_ns=min(seen.time_ns, 1))
                    assert source.compare(split, name, touched, closely=True) == seen


def test_a_split_has_ended_for_good_after_its_last_range(source: Source) -> None:
    for split in source.splits():
        planned = ranges_of(source, split, 33)
        assert [each.last for each in planned] == [False] * (len(planned) - 1) + [True]
        after = source.plan(split, planned[-1].end, 33)
        assert after is not None
        assert (after.start, after.end, after.records, after.last) == (
            planned[-1].end, planned[-1].end, 0, True,
        )  # fmt: skip
        assert records_of(source.read(split, after)) == []


def test_a_restart_finds_the_same_splits_and_ranges(source: Source, tmp_path: Path) -> None:
    splits = list(source.splits())
    before = {split: ranges_of(source, split, 41) for split in splits}
    source.close()
    source.prepare(Workspace(DiskStore(tmp_path / "workspace")))
    assert list(source.splits()) == splits
    assert {split: ranges_of(source, split, 41) for split in splits} == before


def test_parallel_cuts_exactly(source: Source) -> None:
    make_cuts_cheap(source)
    for split in source.splits():
        for records in (100, 10_000):
            for planned in ranges_of(source, split, records):
                for parts in (1, 2, 3, 8):
                    check_cut(source, split, planned, parts)


def check_cut(source: Source, split: str, planned: Range, parts: int) -> None:
    pieces = source.parallel(split, planned, parts)
    assert 1 <= len(pieces) <= parts
    assert [planned.start, *(piece.end for piece in pieces)] == [
        *(piece.start for piece in pieces), planned.end,
    ]  # fmt: skip
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [planned.last]
    together = [r for piece in pieces for r in records_of(source.read(split, piece))]
    assert together == records_of(source.read(split, planned))


def make_cuts_cheap(source: Source) -> Source:
    """Small ranges are worth a second task, too."""
    if isinstance(source, GeneratedSource | KafkaSource):
        source.cut_from = 10
    if isinstance(format := getattr(source, "format", None), FileFormat):
        format.cut_from = 200 if isinstance(format, LineFormat) else 10
    return source


def test_large_ranges_are_cut_into_as_many_parts_as_asked(
    tmp_path: Path,
) -> None:
    for name in ("jsonl", "jsonl-by-name", "parquet", "parquet-by-name", "csv-by-name", "pandas"):
        made = make_cuts_cheap(SOURCES[name](tmp_path / name / "in"))
        source = prepared(made, tmp_path / name)
        split = source.splits()[0]
        planned = ranges_of(source, split, 10_000)[0]
        counts = [len(source.read(split, p).positions) for p in source.parallel(split, planned, 4)]
        assert len(counts) == 4, name
        assert max(counts) < sum(counts) / 2, name


FILE_SOURCES = [name for name in SOURCES if name.startswith(("text", "jsonl", "csv", "parquet"))]


@pytest.mark.parametrize("name", FILE_SOURCES)
def test_a_file_rewritten_after_the_plan_is_refused(name: str, tmp_path: Path) -> None:
    source = prepared(SOURCES[name](tmp_path / "in"), tmp_path)
    split = source.splits()[0]
    planned = source.plan(split, 0, 50)
    assert planned is not None
    path = min(path for path in (tmp_path / "in").rglob("a.*"))
    old = path.read_bytes()
    # The same size, so that nothing but the content tells.
    path.write_bytes(old[:-20] + bytes(20))
    with pytest.raises(SourceError, match=f"{path.name} has changed.*put the old file back"):
        source.read(split, planned)
    path.write_bytes(old)
    assert records_of(source.read(split, planned))
    path.unlink()
    with pytest.raises(SourceError, match=f"{path.name} is missing"):
        source.read(split, planned)


@pytest.mark.parametrize("name", [name for name in FILE_SOURCES if "gzip" not in name])
def test_a_file_rewritten_during_the_run_is_not_planned_further(name: str, tmp_path: Path) -> None:
    source = prepared(SOURCES[name](tmp_path / "in"), tmp_path)
    split = source.splits()[0]
    planned = source.plan(split, 0, 20)
    assert planned is not None and not planned.last
    path = min(path for path in (tmp_path / "in").rglob("a.*"))
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows(3)), path)
    else:
        path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(SourceError, match=f"{path.name} has changed"):
        source.plan(split, planned.end, 20)


# Real data, where it is there.


def shared(name: str) -> str:
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"needs the real data in {SHARED_DATA}")
    return str(path)


def test_moby_dick_has_all_its_lines(tmp_path: Path) -> None:
    path = shared("moby_dick.txt")
    source = prepared(sources.text(path), tmp_path)
    assert source.splits() == ["moby_dick.txt"]
    values = [value for _, value in read_all(source, "moby_dick.txt", 1000)]
    with open(path, encoding="utf-8-sig", newline="") as file:
        assert values == [line.rstrip("\n").removesuffix("\r") for line in file]


def test_a_day_of_wikipedia_edits_is_read_from_its_gzip(tmp_path: Path) -> None:
    path = shared("wikiticker-2015-09-12-sampled.json.gz")
    source = prepared(sources.jsonl(path, timestamp="time"), tmp_path)
    (split,) = source.splits()
    (planned,) = ranges_of(source, split, 1000)
    reading = source.read(split, planned)
    assert reading.values is not None and not reading.rejected
    assert len(reading.values) == 39_244
    assert 10_000 < planned.records < 200_000
    times = [source.timing.micros(value["time"]) for value in reading.values]
    assert times == sorted(times)


def test_labelled_series_are_one_split_per_file(tmp_path: Path) -> None:
    directory = shared("nab")
    source = prepared(sources.csv(f"{directory}/*.csv", types={"value": float}), tmp_path)
    assert "Twitter_volume_AAPL.csv" in source.splits()
    for split in source.splits():
        values = [value for _, value in read_all(source, split, 500)]
        times = [datetime.fromisoformat(value["timestamp"]) for value in values]
        assert times == sorted(times) and len(times) > 1000
        assert all(isinstance(value["value"], float) for value in values)
