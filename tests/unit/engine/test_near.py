"""Near copies of immutable files: good or not there, never wrong, and never too many."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from headrace.engine.spark.segment_copies import (
    NearStore,
    near_directory,
    near_store,
    store_on_executor,
)
from headrace.log import paths
from headrace.log.content import digest_of, map_named
from headrace.log.entry import COMMIT
from headrace.log.epochlog import EpochLog
from headrace.log.holding import HoldingStore
from headrace.log.identity import claim_identity
from headrace.store.disk import DiskStore

DATA = b"as if it were a segment"


@pytest.fixture
def far(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "far")
    store.make_directory(paths.state_directory("Count"))
    return store


def near(far: DiskStore, tmp_path: Path, bytes_max: int = 10**9) -> NearStore:
    return NearStore(far, tmp_path / "near", bytes_max)


def segment(epoch: int, data: bytes = DATA) -> str:
    name = paths.content_name(epoch, "Count/0", digest_of(data), ".arrow")
    return f"{paths.state_directory('Count')}/{name}"


def test_what_was_read_once_is_read_nearby_though_the_store_has_lost_it(
    far: DiskStore, tmp_path: Path
) -> None:
    far.write(segment(1), DATA)
    assert near(far, tmp_path).map(segment(1)).to_pybytes() == DATA
    far.delete(segment(1))
    another = near(far, tmp_path)
    assert another.map(segment(1)).to_pybytes() == DATA
    assert (another.near_reads, another.far_reads) == (1, 0)


def test_what_is_written_is_in_both_places(far: DiskStore, tmp_path: Path) -> None:
    store = near(far, tmp_path)
    store.write(segment(2), DATA)
    assert far.read(segment(2)) == DATA
    far.delete(segment(2))
    assert store.map(segment(2)).to_pybytes() == DATA


@pytest.mark.parametrize("damage", [b"", b"other bytes", DATA[:-1]])
def test_a_damaged_copy_is_not_used(far: DiskStore, tmp_path: Path, damage: bytes) -> None:
    store = near(far, tmp_path)
    store.write(segment(3), DATA)
    store.near.write(segment(3), damage)
    assert store.map(segment(3)).to_pybytes() == DATA
    assert (store.near_reads, store.far_reads) == (0, 1)


def test_a_local_disk_that_refuses_copies_does_no_harm(far: DiskStore, tmp_path: Path) -> None:
    (tmp_path / "near").write_text("a file where the directory should be")
    store = near(far, tmp_path)
    store.write(segment(4), DATA)
    assert store.map(segment(4)).to_pybytes() == DATA
    store.drop_copies(paths.state_directory("Count"), [], before=9)


def test_only_segments_are_copied(far: DiskStore, tmp_path: Path) -> None:
    store = near(far, tmp_path)
    store.write("IDENTITY", DATA)
    far.delete("IDENTITY")
    with pytest.raises(FileNotFoundError):
        store.map("IDENTITY")


def test_copies_that_no_plan_names_are_swept_but_not_those_of_this_epoch(
    far: DiskStore, tmp_path: Path
) -> None:
    store = near(far, tmp_path)
    for epoch in (1, 2, 3):
        store.write(segment(epoch), DATA)
    store.drop_copies(paths.state_directory("Count"), {segment(1)}, before=3)
    left = [paths.parse_content_name(n)[0] for n in store.near.list(paths.state_directory("Count"))]
    assert left == [1, 3]


def test_the_directory_lies_in_the_executors_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/data/1/blockmgr-x,/data/2/blockmgr-y")
    assert near_directory() == "/data/1/blockmgr-x/headrace"
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert Path(near_directory()).is_dir() and near_directory() == near_directory()


def size_of(store: NearStore) -> int:
    return sum(p.stat().st_size for p in Path(store.near.location).rglob("*") if p.is_file())


def test_copies_never_take_much_more_than_is_allowed_whichever_worker_adds_them(
    far: DiskStore, tmp_path: Path
) -> None:
    dice = random.Random(7)
    workers = [near(far, tmp_path, 100_000) for _ in range(3)]
    for epoch in range(1, 400):
        data = dice.randbytes(dice.choice((10, 1000, 20_000)))
        store = dice.choice(workers)
        store.write(segment(epoch, data), data)
        # Each worker notices its own share after a sixteenth of what is allowed.
        assert size_of(store) <= 100_000 + len(workers) * (100_000 // 16 + 20_000)
    assert size_of(workers[0]) > 30_000


def test_the_copy_that_was_not_used_for_the_longest_time_is_deleted_first(
    far: DiskStore, tmp_path: Path
) -> None:
    store = near(far, tmp_path, 100_000)
    parts = [bytes([n]) * 20_000 for n in range(6)]
    for epoch, data in enumerate(parts[:5], 1):
        store.write(segment(epoch, data), data)
        os.utime(store.near.local_path(segment(epoch, data)), (epoch, epoch))
    assert near(far, tmp_path, 100_000).map(segment(1, parts[0])).to_pybytes() == parts[0]
    store.write(segment(6, parts[5]), parts[5])
    names = store.near.list(paths.state_directory("Count"))
    assert [paths.parse_content_name(name)[0] for name in names] == [1, 4, 5, 6]


def test_a_file_that_is_larger_than_half_of_what_is_allowed_is_not_copied(
    far: DiskStore, tmp_path: Path
) -> None:
    store = near(far, tmp_path, 1000)
    data = b"x" * 501
    store.write(segment(1, data), data)
    assert store.map(segment(1, data)).to_pybytes() == data
    assert size_of(store) == 0 and store.far_reads == 1


def test_a_segment_that_rides_in_the_log_is_kept_nearby_and_read_there(
    far: DiskStore, tmp_path: Path
) -> None:
    """M1: another worker of the executor need not read the whole entry of the log."""
    claim_identity(far, "orders")
    far.make_directory(paths.log_directory(1))
    log = EpochLog(far)
    assert not list(log.take_over())
    position = log.append(COMMIT, {}, {segment(5): DATA})
    store = near(far, tmp_path)
    assert map_named(store, segment(5), position).to_pybytes() == DATA
    assert (store.near_reads, store.far_reads) == (0, 1)
    far.delete(paths.log_entry(position))
    another = near(far, tmp_path)
    assert map_named(another, segment(5), position).to_pybytes() == DATA
    assert (another.near_reads, another.far_reads) == (1, 0)
    made = segment(6, b"made here")
    another.keep_near(made, b"made here")
    assert map_named(near(far, tmp_path), made, 9).to_pybytes() == b"made here"


def test_an_executor_holds_deltas_only_in_a_directory_that_its_processes_share(
    far: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'one'},{tmp_path / 'two'}")
    holding = store_on_executor(far.location, 100, holds=True)
    assert isinstance(holding, HoldingStore)
    assert holding.disk.location.startswith(str(tmp_path / "one"))
    copies = near_store(holding)
    assert copies is not None and not copies.near.location.startswith(holding.disk.location)
    assert not holding.disk.location.startswith(copies.near.location), "it is not made room in"
    assert isinstance(store_on_executor(far.location, 100, holds=False), NearStore)
    assert isinstance(store_on_executor(far.location, 0, holds=True), DiskStore)
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert isinstance(store_on_executor(far.location, 100, holds=True), NearStore)
