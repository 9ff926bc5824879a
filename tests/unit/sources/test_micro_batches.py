"""The spool of a streaming query, without Spark: where rows lie, and what a power loss leaves.

Spark itself is in tests/spark; here a frame writes its Parquet file by itself.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import SourceError
from headrace.model.source import Timing
from headrace.sources.spark.micro_batches import QueryRun
from headrace.sources.spark.streaming import StructuredSource
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

QUERY = "5355cec1-d1f2-4fdd-9083-143e15a37cc0"
BEFORE = 2**40
"""How many positions a micro-batch had in older checkpoints."""


class Frame:
    """Rows that can write themselves, as a Spark frame does."""

    def __init__(self, *numbers: int) -> None:
        self._table = pa.table({"n": pa.array(numbers, pa.int64())})
        self.sparkSession = self.conf = self.write = self

    def set(self, name: str, value: str) -> None:
        pass

    def mapInArrow(self, write: Any, schema: str) -> Any:
        rows = [row for batch in write(self._table.to_batches()) for row in batch.to_pylist()]
        return SimpleNamespace(collect=lambda: rows)

    def parquet(self, path: str) -> None:
        folder = Path(path.removeprefix("file://"))
        folder.mkdir(parents=True)
        pq.write_table(self._table, folder / "part-0.parquet")


class Spool:
    """A workspace as Spark and the callback leave it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spark = directory / "spark"
        (directory / "batches").mkdir(parents=True)
        self.write("metadata", msgspec.json.encode({"id": QUERY}))

    def write(self, name: str, data: bytes) -> None:
        path = self.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def older_marker(self, batch: int, *rows: int) -> None:
        """A marker as it was written when a micro-batch began at its id * 2**40."""
        folder = f"batches/{batch:012d}.{QUERY}.aa"
        extents = [[f"{folder}/part-0.parquet", batch * BEFORE, len(rows)]] if rows else []
        if rows:
            Frame(*rows).parquet(str(self.directory / folder))
        marker = {"query": QUERY, "batch": batch, "offsets": "x", "extents": extents}
        path = self.directory / "batches" / f"{batch:012d}.json"
        path.write_bytes(msgspec.json.encode(marker))

    def run(self) -> QueryRun:
        found = QueryRun(DiskStore(self.directory), 4, ends=False)
        found._load()
        return found

    def deliver(self, run: QueryRun, batch: int, *rows: int) -> None:
        self.write(f"sources/0/{batch}", b"files")
        self.write(f"offsets/{batch}", f"offsets of {batch}".encode())
        run._take(Frame(*rows), batch)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "stream")


def rows_from(run: QueryRun, spool: Spool, position: int) -> list[tuple[int, int]]:
    """Positions and rows from `position` on."""
    source = StructuredSource(Frame(), Timing())
    source.root = str(spool.directory)
    source._run = run
    found: list[Any] = []
    while (planned := source.plan("stream", position, 2)) is not None:
        reading = source.read("stream", planned)
        assert reading.columns is not None
        found += zip(
            reading.positions.tolist(), reading.columns.column("n").to_pylist(), strict=True
        )
        position = planned.end
    return found


def test_a_micro_batch_begins_where_the_one_before_it_ended(spool: Spool) -> None:
    run = spool.run()
    for batch, rows in enumerate([(1, 2), (), (3,), ()]):
        spool.deliver(run, batch, *rows)
    assert rows_from(run, spool, 0) == [(0, 1), (1, 2), (2, 3)]
    again = spool.run()
    spool.deliver(again, 4, 4)
    assert rows_from(again, spool, 2) == [(2, 3), (3, 4)]
    again.settle(3)
    assert again._waiting == {4}
    again.release(4)
    assert not again._kept


@pytest.mark.parametrize("batch", [5, 2**23 - 1])
def test_a_spool_of_older_markers_goes_on_without_end(spool: Spool, batch: int) -> None:
    spool.older_marker(batch - 2, 1, 2)
    spool.older_marker(batch - 1)
    spool.older_marker(batch, *([3, 4] if batch == 5 else []))
    run = spool.run()
    spool.deliver(run, batch + 1)
    spool.deliver(run, batch + 2, 5)
    base = batch * BEFORE
    tail = [(base, 3), (base + 1, 4), (base + 2, 5)] if batch == 5 else [(base, 5)]
    first = (batch - 2) * BEFORE
    assert rows_from(run, spool, 0) == [(first, 1), (first + 1, 2), *tail]
    again = spool.run()
    assert rows_from(again, spool, base) == tail


def test_sparks_checkpoint_is_durable_before_the_marker_is_put(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), spool.directory))

    def linked(source: Any, target: Any) -> None:
        link(source, target)
        done.append(os.path.relpath(target, spool.directory))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    run = spool.run()
    spool.write("state/0/0/1.delta", b"state")
    spool.deliver(run, 0, 1)
    before = done[: done.index("batches/000000000000.json")]
    files = {f"spark/{name}" for name in ("metadata", "offsets/0", "sources/0/0")}
    names = {".", "spark", "spark/offsets", "spark/sources", "spark/sources/0", "spark/state"}
    assert files | names | {"spark/state/0/0/1.delta"} <= set(before)

    done.clear()
    spool.deliver(run, 1, 2)
    before = [name for name in done if name.startswith("spark")]
    assert sorted(before) == [
        "spark/offsets", "spark/offsets/1", "spark/sources/0", "spark/sources/0/1",
    ], "what is durable is not synced again"  # fmt: skip


def test_what_a_power_loss_left_empty_is_planned_again(spool: Spool) -> None:
    run = spool.run()
    spool.deliver(run, 0, 1)
    spool.write("commits/0", b"")
    spool.write("commits/.0.crc", b"sums")
    spool.write("offsets/1", b"of files that are lost")
    spool.write("sources/0/1", b"\0" * 100)
    spool.write("sources/0/flag", b"")
    run._checkpoint.sweep(0)
    left = {str(path.relative_to(spool.spark)) for path in spool.spark.rglob("*") if path.is_file()}
    assert left == {"metadata", "offsets/0", "sources/0/0", "sources/0/flag"}


def test_offsets_that_were_not_spooled_stay_where_nothing_is_empty(spool: Spool) -> None:
    run = spool.run()
    spool.deliver(run, 0, 1)
    spool.write("offsets/1", b"planned")
    run._checkpoint.sweep(0)
    assert (spool.spark / "offsets" / "1").exists()


@pytest.mark.parametrize("content", [b"", b"\0\0", b"[]", b"{}"])
def test_a_damaged_metadata_file_is_named_with_what_to_do(spool: Spool, content: bytes) -> None:
    spool.write("metadata", content)
    with pytest.raises(SourceError, match=rf"metadata is damaged.*so delete {spool.spark}"):
        spool.run().start(Frame(), {})
    spool.older_marker(0, 1)
    with pytest.raises(SourceError, match=rf'write {{"id":"{QUERY}"}} into it'):
        spool.run().start(Frame(), {})


# A store without paths: Spark's checkpoint lies in a scratch directory of the driver.


class Life:
    """One driver, from its start to its end, with a query that writes as Spark does."""

    def __init__(self, store: MemoryStore) -> None:
        self.run = QueryRun(store, 4, ends=False)
        self.run._load()
        last = max(self.run._markers, default=-1)
        if last >= 0:
            self.run._files.restore(self.run._markers[last].spark)
        self.spark = self.run._checkpoint.directory
        if last < 0:
            self.write("metadata", msgspec.json.encode({"id": QUERY}))

    def write(self, name: str, data: bytes) -> None:
        path = self.spark / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def deliver(self, batch: int, *rows: int, offsets: str = "") -> None:
        self.write(f"sources/0/{batch}", b"files")
        self.write(f"offsets/{batch}", (offsets or f"offsets of {batch}").encode())
        self.write(f"offsets/.{batch}.crc", b"sums")
        self.run._take(Frame(*rows), batch)
        self.write(f"commits/{batch}", b"done")

    def files(self) -> set[str]:
        found = (path for path in self.spark.rglob("*") if path.is_file())
        return {path.relative_to(self.spark).as_posix() for path in found}

    def rows(self, store: MemoryStore, position: int = 0) -> list[int]:
        source = StructuredSource(Frame(), Timing())
        source.store, source._run = store, self.run
        found: list[int] = []
        while (planned := source.plan("stream", position, 2)) is not None:
            copy = pickle.loads(pickle.dumps(source))
            found += copy.read("stream", planned).columns.column("n").to_pylist()
            position = planned.end
        return found


def test_rows_and_sparks_checkpoint_outlive_a_driver_in_a_store_without_paths() -> None:
    store = MemoryStore()
    first = Life(store)
    for batch, rows in enumerate([(1, 2), (), (3,)]):
        first.deliver(batch, *rows)
    assert first.rows(store) == [1, 2, 3]
    first.run.stop()
    assert not first.spark.exists(), "a driver leaves nothing on its disk"
    second = Life(store)
    assert second.files() == {
        "metadata", "commits/0", "commits/1",
        *(f"{log}/{batch}" for log in ("offsets", "sources/0") for batch in (0, 1, 2)),
    }  # fmt: skip
    second.deliver(2, 9, 9)  # Spark delivers the last one again, and it is skipped
    second.deliver(3, 4)
    assert second.rows(store) == [1, 2, 3, 4]
    second.run.settle(3)
    second.run.release(3)
    folders = {name.split("/")[1] for name in store.files if name.endswith(".parquet")}
    assert [folder[:12] for folder in sorted(folders)] == ["000000000003"]
    assert second.rows(store, 3) == [4]
    second.run.stop()


def test_what_a_driver_puts_that_lost_a_micro_batch_is_never_restored() -> None:
    store = MemoryStore()
    early = Life(store)
    early.deliver(0, 1)
    slow, quick = Life(store), Life(store)
    quick.deliver(1, 2, offsets="of the winner")
    with pytest.raises(SourceError, match="a second time with other rows"):
        slow.deliver(1, 8, offsets="of the loser")
    after = Life(store)
    assert (after.spark / "offsets" / "1").read_bytes() == b"of the winner"
    after.deliver(1, 9, offsets="of the winner")
    assert after.rows(store) == [1, 2]
    assert not [name for name in store.list("batches") if len(store.list(f"batches/{name}")) > 1]


def test_files_of_sparks_checkpoint_are_put_once_and_deleted_when_no_marker_needs_them() -> None:
    store = MemoryStore()
    life = Life(store)
    for batch in range(40):
        life.write("state/0/0/current", f"state {batch}".encode())
        life.deliver(batch, batch)
    kept = [name for name in store.files if name.startswith("spark/")]
    named = [name for m in list(life.run._markers.values())[-10:] for name in m.spark.values()]
    assert set(named) <= set(kept)
    # 40 offsets, sources and commits, one metadata; of `current` the last few.
    assert len(kept) < 140
    again = Life(store)
    assert (again.spark / "state/0/0/current").read_bytes() == b"state 39"
    for name in kept:
        store.delete(name)
    with pytest.raises(SourceError, match=r"spark/.* is missing: the spool .* has lost rows"):
        QueryRun(store, 4, ends=False).start(Frame(), {})
