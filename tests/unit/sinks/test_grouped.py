"""Groups of epochs in a directory: deaths at every change, zombies, readers and listers."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.systems import Stopwatch

from headrace import failpoints, read_output, sinks
from headrace.cli.main import cli
from headrace.errors import InvalidPipeline, SourceError
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.files import FileSink
from headrace.store.disk import DiskStore
from headrace.system import REAL, Filesystem, System

MAKERS: dict[str, Callable[..., Sink]] = {
    "jsonl": sinks.jsonl,
    "parquet": sinks.parquet,
    "partitioned": lambda path, **more: sinks.parquet(path, partition_by="k", **more),
}
CHANGES = ("create", "link", "replace", "rename", "unlink", "mkdir", "rmdir", "remove_tree")


class Crash(BaseException):
    pass


class Dying(Filesystem):
    """A disk whose client dies before its n-th change; `look` is called before each."""

    def __init__(self, left: int = 10**9, look: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.left, self.changes, self.is_dead = left, 0, False
        for name in CHANGES:
            setattr(self, name, self._changing(getattr(self, name), look))

    def _changing(self, act: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
        def change(*given: Any) -> Any:
            self.changes += 1
            self.is_dead = self.is_dead or self.changes > self.left
            if self.is_dead:
                raise Crash  # and so at every later change: the dead do not tidy up
            look()
            return act(*given)

        return change

    def fsync(self, descriptor: int) -> None:
        """No power is lost here, and there are thousands of them."""


@pytest.fixture(autouse=True)
def calm() -> Any:
    yield
    failpoints.disarm()


def opened(
    out: Path, kind: str = "jsonl", *, system: System = REAL, mb: float = 64, within: str = "10m"
) -> Sink:
    sink = MAKERS[kind](out, group_mb=mb, group_within=within)
    sink.open(Opening("c1", 1, 0, DiskStore(out.parent / "checkpoint", system)))
    return sink


def deliver(sink: Sink, epoch: int) -> None:
    """Three rows; every fifth epoch has none."""
    values = [{"n": 10 * epoch + i, "k": i % 2} for i in range(3 if epoch % 5 else 0)]
    data = sink.encode(Rows.of(values, [0] * len(values)))
    sink.deliver(Delivery(epoch, "c1", [Part("a/0", "", lambda: data)], commit=f"m{epoch}"))


def numbers(out: Path, after: str | None = None) -> list[int]:
    found = read_output(out, after=after)
    by_epoch = [sorted(epoch.table()["n"].to_pylist()) for epoch in found if epoch.table().num_rows]
    together = found.table()
    if together.num_rows:
        assert sorted(together["n"].to_pylist()) == [n for part in by_epoch for n in part]
    return [n for part in by_epoch for n in part]


def listed(out: Path) -> list[int]:
    """What somebody finds who lists the directory."""
    found = []
    for path in sorted(out.rglob("*.*")):
        name = path.relative_to(out).as_posix()
        if any(part[0] in "._" for part in name.split("/")):
            continue
        if path.suffix == ".jsonl":
            found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
        elif path.suffix == ".parquet":
            found += pq.ParquetFile(path).read()["n"].to_pylist()
    return sorted(found)


def expected(first: int, last: int) -> list[int]:
    return [10 * e + i for e in range(first, last + 1) if e % 5 for i in range(3)]


@pytest.mark.parametrize("kind", MAKERS)
def test_epochs_appear_together_in_few_files_and_readers_see_them_at_once(
    kind: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sink = opened(out, kind)
    for epoch in range(1, 13):
        deliver(sink, epoch)
        assert numbers(out) == expected(1, epoch) and listed(out) == []
    cursor = read_output(out).cursor
    with pytest.raises(SourceError, match="copies_in="):
        read_output(out).files()
    copies = read_output(out).files(copies_in=tmp_path / "copies")
    assert len(copies) == len(set(copies)) >= 10
    sink.close()
    assert listed(out) == expected(1, 12) == numbers(out) and numbers(out, cursor) == []
    assert [p.name for p in out.iterdir() if p.name[0] != "_"] == ["epoch=000000000012"]
    assert len(read_output(out).files()) == (2 if kind == "partitioned" else 1)
    assert {path.name[:5] for path in out.glob("epoch=*/**/*") if path.is_file()} == {"part-"}
    assert numbers(out, "c1/7") == expected(8, 12), "a cursor may lie inside of a group"
    sink = opened(out, kind)
    for epoch in range(13, 19):
        deliver(sink, epoch)
    assert numbers(out, cursor) == expected(13, 18)
    sink.close()
    assert numbers(out) == expected(1, 18) == listed(out) and numbers(out, cursor) == expected(
        13, 18
    )
    assert list((out / "_held").iterdir()) == [] == list((out / "_staging").iterdir())


def test_size_or_time_decides_when_a_group_appears(tmp_path: Path) -> None:
    clock = Stopwatch()
    sink = opened(tmp_path / "a", system=clock, within="1m")
    deliver(sink, 1)
    clock.now_s = 59.0
    deliver(sink, 2)
    assert listed(tmp_path / "a") == []
    clock.now_s = 60.0
    deliver(sink, 5)  # without rows: time alone does it
    assert listed(tmp_path / "a") == expected(1, 2)
    clock.now_s = 100.0
    deliver(sink, 6)
    clock.now_s = 159.0
    deliver(sink, 7)
    assert listed(tmp_path / "a") == expected(1, 2)
    sink = opened(tmp_path / "b", system=clock, mb=150 / (1 << 20))
    for epoch in range(1, 5):
        deliver(sink, epoch)
    directories = sorted(p.name for p in (tmp_path / "b").iterdir() if p.name[0] != "_")
    assert len(directories) == 1 and numbers(tmp_path / "b") == expected(1, 4)


def lives(out: Path, kind: str, files: Filesystem) -> None:
    """Delivers what is missing, with a group in between."""
    sink = opened(out, kind, system=System(files))
    for epoch in range(sink.high_water() + 1, 5):
        deliver(sink, epoch)
        if epoch == 2:
            assert isinstance(sink, FileSink)
            sink._publish_held()
    sink.close()


@pytest.mark.parametrize("kind", ["jsonl", "partitioned"])
def test_a_death_at_every_change_of_the_disk_loses_and_repeats_nothing(
    kind: str, tmp_path: Path
) -> None:
    whole = Dying()
    lives(tmp_path / "whole" / "out", kind, whole)
    for left in range(whole.changes):
        out = tmp_path / str(left) / "out"
        out.parent.mkdir()
        for dies_after in (left, 3):  # the next driver soon dies, too
            with suppress(Crash):  # near the end little is left to do
                lives(out, kind, Dying(dies_after))
            rows = listed(out)
            assert len(rows) == len(set(rows)), left
            if (out / "_identity").exists():
                seen = numbers(out)
                assert seen == expected(1, 4)[: len(seen)] and set(rows) <= set(seen), left
        lives(out, kind, Dying())
        assert numbers(out) == expected(1, 4) == listed(out), left
        shutil.rmtree(out.parent)


@pytest.mark.parametrize("kind", ["jsonl", "partitioned"])
def test_a_reader_and_a_lister_at_every_change_see_each_row_once_and_for_good(
    kind: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    seen: list[int] = []
    cursor: str | None = None
    found: dict[str, bytes] = {}

    def look() -> None:
        nonlocal cursor
        if not (out / "_identity").exists():
            return
        newer = read_output(out, after=cursor)
        table, cursor = newer.table(), newer.cursor
        if table.num_rows:
            seen.extend(sorted(table["n"].to_pylist()))
        assert len(set(seen)) == len(seen) == len(numbers(out))
        rows = Counter(listed(out))
        assert not rows or max(rows.values()) == 1
        now = {str(p): p.read_bytes() for p in out.glob("epoch=*/**/part-*") if p.is_file()}
        assert {name: now.get(name) for name in found} == found, "a listed file has changed"
        found.update(now)

    lives(out, kind, Dying(look=look))
    look()
    assert seen == expected(1, 4) == listed(out)


@pytest.mark.parametrize("sleeps_at", ["before-claim", "after-claim", "after-publish", "read"])
def test_a_driver_that_sleeps_while_another_goes_on_repeats_nothing(
    sleeps_at: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asleep, wake = threading.Event(), threading.Event()

    def sleep_first(*_: Any) -> None:
        if not asleep.is_set():
            asleep.set()
            assert wake.wait(60)

    class Sleepy(Filesystem):
        def read(self, path: Any) -> bytes:
            if sleeps_at == "read" and "_held" in str(path):
                sleep_first()
            return super().read(path)

    zombie = opened(out, system=System(Sleepy()))
    for epoch in range(1, 4):
        deliver(zombie, epoch)
    if sleeps_at != "read":
        failpoints.arm(sleeps_at, sleep_first)
    slow = threading.Thread(target=zombie.close)
    slow.start()
    assert asleep.wait(60)
    successor = opened(out)
    deliver(successor, 4)
    assert isinstance(successor, FileSink)
    successor._publish_held()
    deliver(successor, 6)
    wake.set()
    slow.join(60)
    assert numbers(out) == [*expected(1, 4), *expected(6, 6)]
    successor.close()
    assert listed(out) == [*expected(1, 4), *expected(6, 6)] == numbers(out)


def test_a_group_that_was_moved_away_does_not_come_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = opened(out)
    deliver(sink, 1)
    failpoints.arm("after-publish", lambda: (_ for _ in ()).throw(Crash()))
    with pytest.raises(Crash):
        sink.close()
    failpoints.disarm()
    shutil.move(str(out / "epoch=000000000001"), str(tmp_path / "taken"))
    opened(out).close()
    assert listed(out) == [] and numbers(out) == [], "it was published, and taken"


def test_groups_can_be_begun_and_ended_in_a_directory_with_epochs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    plain = sinks.jsonl(out)
    plain.open(Opening("c1", 1, 0, DiskStore(tmp_path / "checkpoint")))
    deliver(plain, 1)
    deliver(plain, 2)
    grouped = opened(out)
    deliver(grouped, 3)
    deliver(grouped, 4)
    assert numbers(out) == expected(1, 4) and listed(out) == expected(1, 2)
    plain = sinks.jsonl(out)
    plain.open(Opening("c1", 3, 0, DiskStore(tmp_path / "checkpoint")))
    assert listed(out) == expected(1, 4)
    deliver(plain, 6)
    assert listed(out) == numbers(out) == [*expected(1, 4), *expected(6, 6)]


def test_files_whose_columns_have_other_types_are_not_put_together(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = opened(out, "parquet")
    for epoch, value in enumerate([1, "two", 3], start=1):
        data = sink.encode(Rows.of([{"n": epoch, "v": value}], [0]))
        sink.deliver(Delivery(epoch, "c1", [Part("a/0", "", lambda data=data: data)]))
    sink.close()
    assert listed(out) == [1, 2, 3]
    assert [epoch.table()["v"].to_pylist() for epoch in read_output(out)] == [[1], ["two"], [3]]


def test_the_command_publishes_what_is_held_and_says_what_cannot_be(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = opened(out)
    for epoch in range(1, 5):
        deliver(sink, epoch)
    done = CliRunner().invoke(cli, ["compact-output", str(out)])
    assert done.exit_code == 0 and "4 epochs that were held back are published" in done.output
    assert listed(out) == expected(1, 4)
    deliver(sink, 6)  # the driver has gone on meanwhile
    sink.close()
    assert listed(out) == numbers(out) == [*expected(1, 4), *expected(6, 6)]
    plain = sinks.jsonl(tmp_path / "plain")
    plain.open(Opening("c1", 1, 0, DiskStore(tmp_path / "checkpoint")))
    refused = CliRunner().invoke(cli, ["compact-output", str(tmp_path / "plain")])
    assert refused.exit_code != 0 and "group_mb=" in refused.output
    with pytest.raises(InvalidPipeline, match="headrace compact-output"):
        sinks.jsonl("s3://bucket/out", group_mb=64)
    with pytest.raises(InvalidPipeline, match="group_mb=0"):
        sinks.jsonl(out, group_mb=0)
