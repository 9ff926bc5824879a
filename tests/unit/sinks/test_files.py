"""What lies in an output directory, and what its readers see."""

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.dataset as ds
import pytest

from headrace import failpoints, sinks
from headrace.errors import CorruptCheckpoint, SinkError
from headrace.limits import LIMITS, Limits
from headrace.model.values.rows import Rows
from headrace.plan.decisions.transient import is_outage
from headrace.sinks import Delivery, Opening, Part, Sink
from headrace.sinks.epoch_directory import label_name
from headrace.sinks.high_water import HighWater
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.system import AnyPath, Filesystem, System

OPENING = Opening("id", 1, 0, MemoryStore())


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def opened(sink: Sink) -> Sink:
    sink.open(OPENING)
    return sink


def part(sink: Sink, label: str, *values: object) -> Part:
    data = sink.encode(Rows.of(values, range(len(values))))
    return Part(label, "digest", lambda: data)


def crash() -> None:
    raise KeyboardInterrupt


def test_an_epoch_is_a_directory_of_parts_named_by_label(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path / "out"))
    sink.deliver(Delivery(12, "id", [part(sink, "Count/0", 1), part(sink, "é", 2)]))
    shown = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("out/epoch=*/*"))
    assert shown == [
        "out/epoch=000000000012/part-%C3%A9.jsonl",
        "out/epoch=000000000012/part-Count%2F0.jsonl",
    ]
    assert (tmp_path / "out/_identity").read_text() == "id"
    assert os.listdir(tmp_path / "out/_high_water") == ["000000000012"]


def test_partitions_lie_below_the_epoch(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, partition_by=["day", "hour"]))
    sink.deliver(Delivery(1, "id", [part(sink, "a", {"day": "mon", "hour": 3, "n": 1})]))
    assert (tmp_path / "epoch=000000000001/day=mon/hour=3/part-a.parquet").is_file()


def test_a_published_file_shares_nothing_with_the_staged_one(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path / "out"))
    staged = tmp_path / "staged"
    staged.write_bytes(b"1\n")
    sink.deliver(Delivery(1, "id", [Part("a", "digest", staged.read_bytes)]))
    published = tmp_path / "out/epoch=000000000001/part-a.jsonl"
    assert not staged.samefile(published)
    assert published.stat().st_nlink == staged.stat().st_nlink == 1
    published.write_bytes(b"edited")
    assert staged.read_bytes() == b"1\n"
    staged.write_bytes(b"")
    assert published.read_bytes() == b"edited"


def test_a_damaged_part_is_not_published(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path / "out"))

    def damaged() -> bytes:
        raise CorruptCheckpoint("its digest is not the committed one")

    with pytest.raises(CorruptCheckpoint):
        sink.deliver(Delivery(1, "id", [part(sink, "a", 1), Part("b", "digest", damaged)]))
    assert not list(tmp_path.glob("out/epoch=*"))
    assert not list(tmp_path.glob("out/_staging/*"))


def test_an_epoch_of_many_files_opens_a_few_at_a_time(tmp_path: Path) -> None:
    """And syncs each of them before it is shown."""
    opened_now: set[int] = set()
    most, synced = [0], set()

    class Counted(Filesystem):
        def create(self, path: AnyPath) -> int:
            descriptor = super().create(path)
            if Path(path).suffix == ".parquet":
                opened_now.add(descriptor)
                most[0] = max(most[0], len(opened_now))
            return descriptor

        def fsync(self, descriptor: int) -> None:
            synced.add(os.fstat(descriptor).st_ino)
            super().fsync(descriptor)

        def close(self, descriptor: int) -> None:
            opened_now.discard(descriptor)
            super().close(descriptor)

    sink = sinks.parquet(tmp_path, partition_by="day")
    system = System(Counted(), Limits(open_files_max=3))
    sink.open(Opening("id", 1, 0, MemoryStore(system)))
    sink.deliver(Delivery(1, "id", [part(sink, "a", *({"day": d, "n": d} for d in range(10)))]))
    found = list(tmp_path.glob("epoch=*/day=*/*.parquet"))
    assert (len(found), most[0], opened_now) == (10, 3, set())
    assert {path.stat().st_ino for path in found} <= synced


def test_an_epoch_staged_under_other_partitions_still_arrives(tmp_path: Path) -> None:
    before = sinks.parquet(tmp_path, partition_by="day")
    staged = part(before, "a", {"day": "mon", "n": 1})
    path = tmp_path / "staged-part"
    path.write_bytes(staged.read())
    after = opened(sinks.parquet(tmp_path / "out"))
    after.deliver(Delivery(1, "id", [Part("a", "digest", path.read_bytes)]))
    assert (tmp_path / "out/epoch=000000000001/day=mon/part-a.parquet").is_file()


def test_readers_see_published_epochs_only(tmp_path: Path) -> None:
    sink = opened(sinks.parquet(tmp_path, partition_by="day"))
    sink.deliver(Delivery(1, "id", [part(sink, "a", {"day": "m n", "n": 1})]))
    failpoints.arm("after-claim", crash)
    with pytest.raises(KeyboardInterrupt):
        sink.deliver(Delivery(2, "id", [part(sink, "a", {"day": "tue", "n": 2})]))
    assert list((tmp_path / "_staging").glob("000000000002.*"))
    seen = ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert seen == [{"n": 1, "epoch": 1, "day": "m n"}]
    found = duckdb.sql(
        f"select n, epoch::int, day from '{tmp_path}/epoch=*/**/*.parquet'"
    ).fetchall()
    assert found == [(1, 1, "m n")]


def test_a_directory_in_the_place_of_an_epoch_is_never_overwritten(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path))
    foreign = tmp_path / "epoch=000000000001"
    foreign.mkdir()
    (foreign / "mine").write_text("precious")
    with pytest.raises(SinkError, match="Move it away"):
        sink.deliver(Delivery(1, "id", [part(sink, "a", 1)]))
    assert sink.high_water() == 0
    foreign.rename(tmp_path / "elsewhere")
    sink.deliver(Delivery(1, "id", [part(sink, "a", 1)]))
    assert (foreign / "part-a.jsonl").read_text() == "1\n"


def test_epochs_of_nobody_are_refused_when_opened(tmp_path: Path) -> None:
    (tmp_path / "epoch=000000000001").mkdir()
    with pytest.raises(SinkError, match="fresh output directory"):
        opened(sinks.jsonl(tmp_path))


def test_an_output_directory_that_vanishes_during_a_run_is_waited_for_and_not_made_again(
    tmp_path: Path,
) -> None:
    sink = opened(sinks.jsonl(tmp_path / "out"))
    sink.deliver(Delivery(1, "id", [part(sink, "a", 1)]))
    (tmp_path / "out").rename(tmp_path / "gone")
    with pytest.raises(SinkError, match="is missing.*put it back") as refused:
        sink.deliver(Delivery(2, "id", [part(sink, "a", 2)]))
    assert is_outage(refused.value)
    assert not (tmp_path / "out").exists()
    (tmp_path / "gone").rename(tmp_path / "out")
    sink.deliver(Delivery(2, "id", [part(sink, "a", 2)]))
    assert sink.high_water() == 2


def test_a_missing_staged_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path / "out"))
    missing = tmp_path / "staged"
    with pytest.raises(SinkError, match=f"epoch 1.*{missing}"):
        sink.deliver(Delivery(1, "id", [Part("a", "digest", missing.read_bytes)]))
    assert sink.high_water() == 0


def test_two_parts_of_one_label_are_refused(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path / "out"))
    with pytest.raises(SinkError, match="part-a.jsonl"):
        sink.deliver(Delivery(1, "id", [part(sink, "a", 1), part(sink, "a", 2)]))
    assert sink.high_water() == 0


def test_weak_staging_of_earlier_epochs_is_swept_and_strong_staging_is_not(tmp_path: Path) -> None:
    sink = opened(sinks.jsonl(tmp_path))
    weak, strong = tmp_path / "_staging/000000000001.weak-ab", tmp_path / "_staging/000000000001.ab"
    weak.mkdir()
    strong.mkdir()
    sink.deliver(Delivery(2, "id", [part(sink, "a", 1)], weak=True))
    assert not weak.exists()
    assert strong.exists()


def test_long_labels_are_cut_and_stay_apart() -> None:
    names = {label_name("x" * 400 + end) for end in "ab"}
    assert len(names) == 2
    assert all(len(name) < 200 for name in names)


def test_the_high_water_never_falls_and_keeps_few_markers(tmp_path: Path) -> None:
    mark = HighWater(DiskStore(tmp_path / "marks"), "id")
    (tmp_path / "marks").mkdir()
    leftover = tmp_path / "marks/.000000000002.0a.tmp"
    leftover.write_text("left by a killed writer, long ago")
    os.utime(leftover, (0, 0))
    for epoch in range(1, 41):
        mark.advance(epoch)
    mark.advance(3)
    assert mark.read() == HighWater(DiskStore(tmp_path / "marks"), "id").read() == 40
    mark.advance(41)
    mark.tidy()
    assert sorted(map(int, os.listdir(tmp_path / "marks"))) == list(
        range(42 - LIMITS.high_water_markers_kept, 42)
    )


def test_the_high_water_never_falls_in_a_store_without_directories() -> None:
    mark = HighWater(MemoryStore(), "id")
    mark.advance(5)
    mark.advance(3)
    assert mark.read() == 5


def test_an_epoch_finished_and_swept_while_another_driver_builds_it_is_delivered(
    tmp_path: Path,
) -> None:
    slow, quick = opened(sinks.jsonl(tmp_path)), opened(sinks.jsonl(tmp_path))
    parts = [part(quick, "a", 1), part(quick, "b", 2)]

    def read_slowly() -> bytes:
        quick.deliver(Delivery(1, "id", parts))
        return parts[1].read()

    slow.deliver(Delivery(1, "id", [parts[0], Part("b", "digest", read_slowly)]))
    assert sorted(os.listdir(tmp_path / "epoch=000000000001")) == ["part-a.jsonl", "part-b.jsonl"]


def test_a_claim_put_again_after_publication_publishes_nothing(tmp_path: Path, monkeypatch) -> None:
    slow, quick = opened(sinks.jsonl(tmp_path)), opened(sinks.jsonl(tmp_path))
    delivery = Delivery(1, "id", [part(quick, "a", 1)])

    def finish_elsewhere() -> None:
        # The other driver removes the claim and dies before it sweeps the staging.
        failpoints.disarm()
        with monkeypatch.context() as patched:
            patched.setattr("shutil.rmtree", lambda *_, **__: None)
            quick.deliver(delivery)
            quick.tidy()
        (tmp_path / "epoch=000000000001").rename(tmp_path / "consumed")
        assert list((tmp_path / "_staging").iterdir()) and not list(
            (tmp_path / "_claims").iterdir()
        )

    failpoints.arm("before-claim", finish_elsewhere)
    slow.deliver(delivery)
    assert not (tmp_path / "epoch=000000000001").exists()
