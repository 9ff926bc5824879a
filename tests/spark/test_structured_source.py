"""Spark's own frames as sources, bounded and streaming, on real Spark."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.pipelines import Pathless

from headrace import sources
from headrace.errors import SourceError
from headrace.model.source import Change, Range, Seen, Source, Workspace
from headrace.model.values.arrow import dicts
from headrace.store.disk import DiskStore
from headrace.store.store import Store

pytestmark = pytest.mark.spark

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("headrace-sources")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Inbox:
    """A directory that Spark streams from, one file to a micro-batch."""

    def __init__(self, spark: SparkSession, tmp_path: Path, *, has_paths: bool = True) -> None:
        self.has_paths = has_paths
        self.directory = tmp_path / "in"
        self.directory.mkdir()
        self.workspace = tmp_path / "a stream%2Fwith signs"
        self._spark = spark
        self._files = 0

    def put(self, *numbers: int) -> None:
        self._files += 1
        path = self.directory / f"{self._files:03d}.json"
        aside = path.with_name(f".{path.name}")
        aside.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        os.utime(aside, (1_700_000_000 + self._files,) * 2)
        aside.rename(path)

    def frame(self) -> DataFrame:
        reader = self._spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.directory))

    def start(self, **options: Any) -> Source:
        source = sources.dataframe(self.frame(), **options)
        store: Store = DiskStore(self.workspace)
        store = store if self.has_paths else Pathless(store)
        source.prepare(Workspace(store, self._spark))
        return source


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Inbox:
    return Inbox(spark, tmp_path)


def soon(ask: Callable[[], Any]) -> Any:
    """What `ask` answers, as soon as it is not None or False."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if (answer := ask()) not in (None, False):
            return answer
        time.sleep(0.02)
    raise TimeoutError("nothing came")


def next_range(source: Source, position: int, records: int = 1000) -> Range:
    return soon(lambda: source.plan("stream", position, records))


def numbers(source: Source, planned: Range) -> list[int]:
    columns = pickle.loads(pickle.dumps(source)).read("stream", planned).columns
    return [row["n"] for row in dicts(columns)]


@pytest.mark.parametrize("has_paths", [True, False], ids=["paths", "a store without paths"])
def test_micro_batches_are_one_split_that_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path, has_paths: bool
) -> None:
    inbox = Inbox(spark, tmp_path, has_paths=has_paths)
    inbox.put(1, 2)
    source = inbox.start()
    assert not source.bounded
    assert list(source.splits()) == ["stream"]
    first = next_range(source, 0)
    assert (numbers(source, first), first.last) == ([1, 2], False)
    assert source.plan("stream", first.end, 10) is None
    inbox.put(3, 4, 5)
    part = next_range(source, first.end, 2)
    assert numbers(source, part) == [3, 4]
    assert (part.start, part.end) == (2, 4)
    source.settle("stream", first.end)
    source.close()

    source = inbox.start()
    inbox.put(6)
    assert numbers(source, part) == [3, 4], "an open plan can be run again"
    assert numbers(source, soon_with(source, part.end, 2)) == [5, 6]
    source.close()


def soon_with(source: Source, position: int, records: int) -> Range:
    def enough() -> Range | None:
        planned = source.plan("stream", position, records)
        return planned if planned is not None and planned.records >= records else None

    return soon(enough)


def test_a_micro_batch_that_spark_delivers_again_is_skipped(inbox: Inbox) -> None:
    inbox.put(1)
    source = inbox.start()
    first = next_range(source, 0)
    source.settle("stream", first.end)
    soon(lambda: (inbox.workspace / "spark" / "commits" / "0").exists())
    source.close()
    # As a power loss leaves it: Spark has noted that micro-batch 0 was done, and planned the
    # next, but did not sync what it wrote.
    for name in ("commits/0", "commits/.0.crc", "offsets/1", "sources/0/1"):
        (inbox.workspace / "spark" / name).write_bytes(b"")
    source = inbox.start()
    inbox.put(2)
    second = next_range(source, first.end)
    assert numbers(source, second) == [2]
    assert second.end == 2
    source.close()


def test_a_deleted_spark_checkpoint_is_refused(inbox: Inbox) -> None:
    inbox.put(1)
    source = inbox.start()
    next_range(source, 0)
    source.close()
    kept = inbox.workspace.with_name("kept")
    shutil.copytree(inbox.workspace / "spark", kept)
    shutil.rmtree(inbox.workspace / "spark")
    with pytest.raises(SourceError, match="holds nothing: it was deleted.*start a new checkpoint"):
        inbox.start()

    # The query's id survives, but the offsets do not: the numbers start anew all the same.
    shutil.copytree(kept, inbox.workspace / "spark")
    for name in ("offsets", "commits", "sources"):
        shutil.rmtree(inbox.workspace / "spark" / name)
    source = inbox.start()
    with pytest.raises(SourceError, match="micro-batch 0 a second time with other rows"):
        soon(lambda: source.plan("stream", 1, 10))
    source.close()

    # Another query's checkpoint in its place.
    metadata = inbox.workspace / "spark" / "metadata"
    metadata.write_text(json.dumps({"id": "3b1c0d52-6c6e-4c65-a2c2-0d0b2d1c7d11"}))
    (metadata.parent / ".metadata.crc").unlink(missing_ok=True)
    with pytest.raises(SourceError, match="holds query 3b1c0d52"):
        inbox.start()


def test_a_lost_spool_is_noticed(inbox: Inbox) -> None:
    inbox.put(1)
    source = inbox.start()
    first = next_range(source, 0)
    inbox.put(2)
    second = next_range(source, first.end)
    soon(lambda: (inbox.workspace / "spark" / "commits" / "1").exists())
    source.close()
    markers = sorted((inbox.workspace / "batches").glob("*.json"))
    markers[1].unlink()
    source = inbox.start()
    inbox.put(3)
    with pytest.raises(SourceError, match="micro-batch 2, but 1 is the next: the spool"):
        soon(lambda: source.plan("stream", second.end, 10))
    source.close()
    shutil.rmtree(inbox.workspace / "batches")
    with pytest.raises(SourceError, match="nothing is left of what was spooled"):
        inbox.start()


def test_available_now_ends_when_all_is_read(inbox: Inbox) -> None:
    for number in range(5):
        inbox.put(number, number + 100)
    source = inbox.start(available_now=True)
    assert source.bounded
    found: list[int] = []
    position, last = 0, False
    while not last:
        planned = next_range(source, position, 3)
        found += numbers(source, planned) if planned.end > planned.start else []
        position, last = planned.end, planned.last
        source.settle("stream", position)
    assert found == [0, 100, 1, 101, 2, 102, 3, 103, 4, 104]
    spooled = list((inbox.workspace / "batches").iterdir())
    assert sum(path.is_dir() for path in spooled) == 5, "settled rows stay, to be read again"
    source.release("stream", position)
    spooled = list((inbox.workspace / "batches").iterdir())
    assert all(path.suffix == ".json" for path in spooled), "released rows are deleted"
    source.close()


def test_the_query_is_held_back_until_rows_are_settled(inbox: Inbox) -> None:
    for number in range(6):
        inbox.put(number)
    source = inbox.start(ahead=2)
    spooled = inbox.workspace / "batches"
    soon(lambda: len(list(spooled.glob("*.json"))) == 3)
    time.sleep(0.5)
    assert len(list(spooled.glob("*.json"))) == 3
    planned = soon_with(source, 0, 3)
    assert numbers(source, planned) == [0, 1, 2]
    source.settle("stream", planned.end)
    assert numbers(source, soon_with(source, planned.end, 3)) == [3, 4, 5]
    closing = threading.Thread(target=source.close)
    closing.start()
    closing.join(30)
    assert not closing.is_alive(), "a callback that waits does not hold up the end"


def test_a_query_that_fails_is_reported(inbox: Inbox, spark: SparkSession) -> None:
    inbox.put(1)
    failing = inbox.frame().selectExpr("raise_error('a bad row')", "n")
    source = sources.dataframe(failing)
    source.prepare(Workspace(DiskStore(inbox.workspace), spark))
    with pytest.raises(SourceError, match="the streaming query failed.*a bad row"):
        soon(lambda: source.plan("stream", 0, 10))
    with pytest.raises(SourceError, match="a bad row"):
        source.splits()
    source.close()


def test_a_query_that_somebody_stops_is_reported(inbox: Inbox, spark: SparkSession) -> None:
    source = inbox.start()
    for query in spark.streams.active:
        query.stop()
    with pytest.raises(SourceError, match="stopped from outside"):
        soon(lambda: source.plan("stream", 0, 10))
    source.close()


def test_a_bounded_spark_frame_is_read_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "timestamp_micros(id) AS at", "CAST(id AS string) AS name"
    )
    source = sources.dataframe(frame, timestamp="at")
    workspace = Workspace(DiskStore(tmp_path / "a stream%2Fwith signs"), spark)
    source.prepare(workspace)
    first = source.plan("dataframe", 0, 300)
    assert first is not None
    rest = source.plan("dataframe", first.end, 10_000)
    assert rest is not None and rest.last
    copy = pickle.loads(pickle.dumps(source))
    rows = [
        row for planned in (first, rest) for row in dicts(copy.read("dataframe", planned).columns)
    ]
    assert [row["id"] for row in rows] == list(range(1000))
    assert [source.timing.micros(row["at"]) for row in rows] == list(range(1000))
    again = sources.dataframe(spark.range(3))
    again.prepare(workspace)
    assert again.plan("dataframe", 0, 300) == first
    # What was read to its end is compared with the frame, row by row, in whatever order.
    seen = copy.read("dataframe", rest).seen[""]
    other = frame.selectExpr("id", "at", "IF(id = 7, 'x', name) AS name")
    for given, is_alike in ((frame.orderBy("name"), True), (other, False), (spark.range(3), False)):
        source = sources.dataframe(given)
        source.prepare(workspace)
        found = source.compare("dataframe", "", seen, closely=True)
        assert found == seen if is_alike else isinstance(found, Change) and found.told_only


def test_a_spark_frame_with_maps_is_compared_too(spark: SparkSession, tmp_path: Path) -> None:
    workspace = Workspace(DiskStore(tmp_path / "maps"), spark)
    seen = Seen(2, read=2, whole=True)
    for values, is_alike in ((["a", "b"], True), (["a", "b"], True), (["a", "c"], False)):
        frame = spark.createDataFrame([({value: 1},) for value in values], "m map<string,int>")
        source = sources.dataframe(frame)
        source.prepare(workspace)
        assert (source.compare("dataframe", "", seen, closely=True) == seen) is is_alike
