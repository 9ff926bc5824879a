"""File sinks on a store: tasks write data, one put of a manifest publishes an epoch."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.systems import FILES

from headrace import failpoints, read_output, sinks
from headrace.errors import CorruptCheckpoint, IncompatibleState, SinkError, StoreError
from headrace.limits import Limits
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.stored.manifest import (
    EpochManifest,
    Manifest,
    ManifestName,
    OutputFile,
    decode_manifest,
    encode_manifest,
    joined,
)
from headrace.sinks.stored.manifests import Manifests
from headrace.sinks.stored.sink import own_name
from headrace.sinks.stored.upkeep import covered_names, due_run, merge, sweep
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import ForwardingStore, Store
from headrace.system import REAL, System

VALUES = [n % 7 for n in range(40)]
MAKERS: dict[str, Callable[[Store], Sink]] = {
    "jsonl": sinks.jsonl,
    "csv": sinks.csv,
    "parquet": sinks.parquet,
    "partitioned": lambda store: sinks.parquet(store, partition_by="k"),
}


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "out")


@pytest.fixture(autouse=True)
def disarmed() -> Any:
    yield
    failpoints.disarm()


def pairs(output: Any) -> list[tuple[str, int]]:
    return [(row["k"], row["n"]) for row in output.table().to_pylist()]


def expected() -> list[tuple[str, int]]:
    memory = sinks.memory()
    run(driver_of(counting(VALUES, memory)))
    return sorted((row["k"], row["n"]) for row in memory.rows)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_pipeline_writes_to_a_store_what_it_writes_elsewhere(kind: str, store: Store) -> None:
    run(driver_of(counting(VALUES, MAKERS[kind](store)), epoch_records=5))
    output = read_output(store)
    assert sorted(pairs(output)) == expected()
    assert [epoch.number for epoch in output] == list(range(1, len(output) + 1))
    assert not store.list("staged")


@pytest.mark.parametrize("kind", ["jsonl", "partitioned"])
@pytest.mark.parametrize(
    "failpoint",
    [
        "before-segment-write",
        "after-job",
        "before-commit-write",
        "after-commit-write",
        "before-delivery",
        "before-claim",
        "after-publish",
    ],
)
@pytest.mark.parametrize("system", [REAL, FILES], ids=["riders", "files"])
def test_a_killed_driver_loses_and_repeats_nothing(
    kind: str, failpoint: str, store: Store, system: System
) -> None:
    checkpoint = MemoryStore(system)
    for _ in range(4):
        count = 0

        def die_later() -> None:
            nonlocal count
            count += 1
            if count == 3:
                die()

        failpoints.arm(failpoint, die_later)
        with pytest.raises(Crash):
            run(driver_of(counting(VALUES, MAKERS[kind](store)), checkpoint, epoch_records=2))
        failpoints.disarm()
    run(driver_of(counting(VALUES, MAKERS[kind](store)), checkpoint, epoch_records=2))
    assert sorted(pairs(read_output(store))) == expected()


def test_the_checkpoint_holds_no_rows_of_such_a_sink() -> None:
    checkpoint, out = MemoryStore(FILES), MemoryStore()
    run(driver_of(counting(VALUES, sinks.jsonl(out)), checkpoint))
    assert not [name for name in checkpoint.files if name.startswith("staged/")]
    assert any(name.startswith("data/") for name in out.files)


def test_small_rows_go_with_the_commit_into_the_manifest() -> None:
    """M1 and N4: a small epoch is one put per sink."""
    checkpoint, out = MemoryStore(), MemoryStore()
    run(driver_of(counting(VALUES, sinks.jsonl(out)), checkpoint))
    assert not [name for name in checkpoint.files if name.startswith("staged/")]
    assert not [name for name in out.files if name.startswith("data/")]
    assert sorted(pairs(read_output(out))) == expected()


# One epoch at a time ------------------------------------------------------


def opened(store: Store, sink: Sink | None = None, **given: Any) -> Sink:
    made = sink or sinks.jsonl(store)
    made.open(Opening("c1", 1, given.pop("committed", 0), MemoryStore(), given.get("commits", {})))
    return made


def rows(*numbers: int) -> Rows:
    return Rows.of([{"n": n} for n in numbers], [0] * len(numbers))


def staged(sink: Sink, epoch: int, *numbers: int, label: str = "Count/0") -> Part:
    """What a task makes of some rows: a data file in the sink's own store."""
    own = sink.own_store()
    assert own is not None
    [file] = sink.encode_files(rows(*numbers))
    name = own_name("", epoch, label, file.data, file.suffix)
    own.write(name, file.data)
    return Part(label, "", lambda: file.data, name, file.rows, len(file.data), is_own=True)


def deliver(sink: Sink, epoch: int, *numbers: int, **given: Any) -> None:
    parts = [staged(sink, epoch, *numbers)] if numbers else []
    sink.deliver(Delivery(epoch, "c1", parts, commit=f"commit {epoch}", **given))


def numbers_of(store: Store, after: str | None = None) -> list[int]:
    tables = [epoch.table() for epoch in read_output(store, after=after)]
    return [n for table in tables if table.num_rows for n in table["n"].to_pylist()]


def test_an_epoch_is_one_put_and_one_file_for_each_producer() -> None:
    store = MemoryStore()
    sink = opened(store)
    before = dict(store.files)
    deliver(sink, 1, 1, 2)
    new = store.files.keys() - before.keys()
    assert sorted(name.partition("/")[0] for name in new) == ["_epochs", "data"]
    assert numbers_of(store) == [1, 2]


def test_a_data_file_without_a_manifest_is_in_no_epoch(store: Store) -> None:
    sink = opened(store)
    deliver(sink, 1, 1)
    staged(sink, 2, 7)
    assert numbers_of(store) == [1]


def test_small_rows_from_the_checkpoint_stand_in_the_manifest_and_large_ones_in_data() -> None:
    store = MemoryStore()
    sink = opened(store)
    small, large = sink.encode(rows(1, 2)), sink.encode(rows(*range(10_000)))
    parts = [Part("a", "", lambda: small, rows=2), Part("b", "", lambda: large, rows=10_000)]
    sink.deliver(Delivery(1, "c1", parts))
    [(epoch, manifest, _)] = Manifests(store).since(0)
    assert [file.offset for file in epoch.files] == [0, None]
    assert manifest.tail == small
    assert numbers_of(store) == [1, 2, *range(10_000)]


def test_every_driver_puts_the_same_bytes_for_a_commit() -> None:
    first, second = MemoryStore(), MemoryStore()
    for store in (first, second):
        deliver(opened(store), 1, 1, 2)
    assert first.files["_epochs/000000000001"] == second.files["_epochs/000000000001"]


def test_the_place_of_another_checkpoint_and_a_place_without_an_owner_are_refused(
    store: Store,
) -> None:
    deliver(opened(store), 1, 1)
    with pytest.raises(SinkError, match="belongs to the checkpoint c1, not to c2"):
        sinks.jsonl(store).open(Opening("c2", 1, 0, MemoryStore()))
    store.delete("_identity")
    with pytest.raises(SinkError, match="nothing says of which checkpoint"):
        opened(store)


def test_a_damaged_manifest_is_refused_by_name(store: Store) -> None:
    deliver(opened(store), 1, 1)
    data = store.read("_epochs/000000000001")
    store.write("_epochs/000000000001", data[:-3] + b"xx\n")
    with pytest.raises(CorruptCheckpoint, match="_epochs/000000000001 is damaged"):
        read_output(store)


def test_a_sink_writes_to_a_prefix_and_two_may_not_share_one() -> None:
    from headrace.errors import InvalidPipeline

    with pytest.raises(InvalidPipeline, match="a prefix, not to a pattern"):
        sinks.jsonl("s3://bucket/out/*.jsonl")
    same = {sinks.jsonl(url).identity() for url in ("s3://b/out", "s3://b/out/", "s3://b//out")}
    assert same == {"store:s3://b/out"}


def test_at_most_once_rows_that_may_have_arrived_are_left_out(store: Store) -> None:
    sink = opened(store)
    sink.deliver(Delivery(1, "c1", [], commit="commit 1", complete=False))
    [(epoch, _, _)] = Manifests(store).since(0)
    assert not epoch.complete and sink.high_water() == 1
    deliver(opened(store), 1, 5)
    assert numbers_of(store) == []


class Unsure(ForwardingStore):
    """Puts manifests, or not, and does not say so."""

    lands = True

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if name.startswith("_epochs") and self.lands:
            super().put_if_absent(name, data)
        if name.startswith("_epochs"):
            raise StoreError("timed out")
        return super().put_if_absent(name, data)


@pytest.mark.parametrize("lands", [True, False])
def test_a_manifest_whose_put_was_not_answered_is_looked_for(store: Store, lands: bool) -> None:
    """So rows that have arrived are not counted as undelivered (at-most-once)."""
    unsure = Unsure(store)
    unsure.lands = lands
    sink = opened(unsure)
    with pytest.raises(StoreError):
        deliver(sink, 1, 5)
    assert sink.high_water() == (1 if lands else 0)


# Upkeep -------------------------------------------------------------------


def test_files_of_dropped_attempts_are_swept_and_no_others(store: Store) -> None:
    sink = opened(store)
    for epoch in (1, 2, 3):
        staged(sink, epoch, 100 + epoch, label="dropped")
        deliver(sink, epoch, epoch)
    weak = Delivery(3, "c1", [staged(sink, 3, 33, label="weak")], weak=True, commit="x")
    sink.deliver(weak)
    staged(sink, 4, 104, label="open")
    assert sweep(store, 0, 3) == 3
    assert sweep(store, 0, 3) == 0
    assert sorted(numbers_of(store)) == [1, 2, 3, 33]
    assert len(store.list("data")) == 5
    staged(sink, 1, 200, label="late")
    assert sweep(store, 1, 3) == 0, "not in the window"
    assert sweep(store, 0, 3) == 1


def test_merged_manifests_have_every_epoch_once(store: Store) -> None:
    sink = opened(store)
    for epoch in range(1, 41):
        deliver(sink, epoch, *([epoch] if epoch % 3 else []))
    wanted = [epoch for epoch in range(1, 41) if epoch % 3]
    while merge(store, 4):
        assert numbers_of(store) == wanted
    names = Manifests(store).names()
    assert len(names) < 15 and names[-1] == ManifestName(40)
    assert {name.count for name in names} == {1, 4, 16}
    for cursor in (0, 3, 4, 17, 39, 40):
        assert numbers_of(store, f"c1/{cursor}") == [n for n in wanted if n > cursor]
    again = opened(store, committed=40, commits={40: "commit 40"})
    assert again.high_water() == 40
    again.verify(7, "commit 7")
    with pytest.raises(IncompatibleState, match="has epoch 7 from another copy"):
        again.verify(7, "another")


def test_weak_deliveries_are_merged_with_their_epochs_and_stay_apart(store: Store) -> None:
    sink = opened(store)
    for epoch in range(1, 13):
        for _ in range(2):
            sink.deliver(Delivery(epoch, "c1", [staged(sink, epoch, 100 + epoch)], weak=True))
        deliver(sink, epoch, epoch)
    late = {name: store.read(f"_epochs/{name}") for name in store.list("_epochs")}

    def shown() -> list[tuple[int, bool, list[int]]]:
        return [(e.number, e.is_weak, e.table()["n"].to_pylist()) for e in read_output(store)]

    wanted = [
        (epoch, is_weak, [100 + epoch] if is_weak else [epoch])
        for epoch in range(1, 13)
        for is_weak in (True, True, False)
    ]
    assert shown() == wanted
    assert merge(store, 4) and shown() == wanted
    assert store.list("_epochs")[0] == "000000000004.000000000004"
    for name, data in late.items():
        store.write(f"_epochs/{name}", data)
    assert shown() == wanted, "each is shown once, though a crash has left both forms"
    assert Manifests(store).find(2) is not None
    assert sweep(store, 0, 12) == 0


def test_a_crash_between_a_merge_and_its_deletes_shows_every_epoch_once(store: Store) -> None:
    sink = opened(store)
    for epoch in range(1, 13):
        deliver(sink, epoch, epoch)
    kept = {name: store.read(f"_epochs/{name}") for name in store.list("_epochs")}
    assert merge(store, 4)
    for name, data in kept.items():
        store.write(f"_epochs/{name}", data)  # as if nothing had been deleted
    assert numbers_of(store) == list(range(1, 13))
    while merge(store, 4):
        pass
    assert numbers_of(store) == list(range(1, 13))
    assert "000000000001" not in store.list("_epochs")


def test_a_driver_that_wakes_late_puts_a_merged_epoch_again_and_nothing_shows_twice() -> None:
    store = MemoryStore()
    sink, late = opened(store), opened(store)
    for epoch in range(1, 13):
        deliver(sink, epoch, epoch)
    while merge(store, 4):
        pass
    deliver(late, 1, 1)
    assert "_epochs/000000000001" in store.files
    assert numbers_of(store) == list(range(1, 13))
    merge(store, 4)
    assert "_epochs/000000000001" not in store.files


def test_upkeep_runs_in_the_background_and_an_error_in_it_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(System(limits=Limits(sink_upkeep_epochs=4)))
    sink = opened(store)
    for epoch in range(1, 30):
        staged(sink, epoch, 100, label="dropped")
        deliver(sink, epoch, epoch)
    sink.close()
    monkeypatch.setattr(MemoryStore, "delete", lambda self, name: (_ for _ in ()).throw(OSError()))
    for epoch in range(30, 41):
        deliver(sink, epoch, epoch)
    sink.close()
    monkeypatch.undo()
    for epoch in range(41, 60):
        deliver(sink, epoch, epoch)
        sink.close()
    assert numbers_of(store) == list(range(1, 60))
    assert len(Manifests(store).names()) < 20
    assert len([n for n in store.list("data") if "dropped" in n]) == 0


def test_a_reader_with_a_cursor_misses_and_doubles_nothing_while_epochs_are_merged(
    store: Store,
) -> None:
    dice = random.Random(5)
    sink = opened(store)
    done = threading.Event()
    found: list[int] = []
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for epoch in range(1, 150):
                deliver(sink, epoch, epoch)
                if dice.random() < 0.3:
                    merge(store, 3)
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    def read() -> None:
        cursor = None
        while True:
            ended = done.is_set()
            output = read_output(store, after=cursor)
            found.extend(n for epoch in output for n in epoch.table()["n"].to_pylist())
            cursor = output.cursor
            if ended:
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        read()
    finally:
        writer.join()
    assert errors == []
    assert found == list(range(1, 150))


def test_runs_are_neighbours_of_like_count_and_the_newest_stay() -> None:
    singles = [ManifestName(n) for n in range(1, 11)]
    sizes = dict.fromkeys(singles, 100)
    assert due_run(singles, sizes, 4) == singles[:4]
    assert due_run(singles[:7], sizes, 4) == []
    with_gap = [name for name in singles if name.last != 3]
    assert due_run(with_gap, sizes, 3) == singles[3:6]
    large = {**sizes, singles[1]: 12 << 20}
    assert due_run(singles, large, 4) == singles[2:6]
    heavy = dict.fromkeys(singles, 7 << 20)
    assert due_run(singles, heavy, 4) == singles[:3]
    merged = [ManifestName(4, 4), ManifestName(8, 4), ManifestName(5), ManifestName(9)]
    assert covered_names(merged) == [ManifestName(5)]


def test_names_sort_so_that_a_listing_finds_what_was_merged_behind_it() -> None:
    names = [ManifestName(64), ManifestName(64, 4), ManifestName(64, 16), ManifestName(64, 64)]
    assert sorted(names, key=lambda name: name.name) == names
    for name in (*names, ManifestName(64, weak="ab12")):
        assert ManifestName.parse(name.name.rpartition("/")[2]) == name
    assert ManifestName.parse("notes.txt") is None


def test_a_manifest_keeps_its_files_and_its_tail_through_bytes_and_merges() -> None:
    def manifest(epoch: int, tail: bytes) -> Manifest:
        files = [OutputFile("a", 5, 1), OutputFile("b", len(tail), 1, 0)]
        return Manifest([EpochManifest(epoch, "c1", "x", "/p", files)], tail)

    one, two = manifest(1, b"{}\n\n"), manifest(2, b"\x00\n")
    both = decode_manifest(encode_manifest(joined([one, two])), "here")
    assert [both.bytes_of(each.files[1]) for each in both.epochs] == [b"{}\n\n", b"\x00\n"]
    assert both.find(2) is not None and both.find(3) is None
