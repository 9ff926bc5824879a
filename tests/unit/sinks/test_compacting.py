"""Compaction of an output on a store: crashes at every step, readers and mergers beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace import read_output, sinks
from headrace.cli.main import cli
from headrace.errors import SinkError, SourceError
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.stored.compacting import CompactedOutput, compact_output
from headrace.sinks.stored.manifest import ManifestName
from headrace.sinks.stored.manifests import Manifests
from headrace.sinks.stored.sink import own_name
from headrace.sinks.stored.upkeep import merge, sweep
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import ForwardingStore, Store

MAKERS: dict[str, Callable[[Store], Sink]] = {
    "jsonl": sinks.jsonl,
    "parquet": sinks.parquet,
    "partitioned": lambda store: sinks.parquet(store, partition_by="k"),
}
EPOCHS = 30


class Crash(BaseException):
    pass


class Dying(ForwardingStore):
    """A store whose client dies before its n-th change."""

    def __init__(self, base: Store, left: int) -> None:
        super().__init__(base)
        self.left = left

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def write(self, name: str, data: Any) -> None:
        self._change()
        super().write(name, data)

    def put_if_absent(self, name: str, data: Any) -> bool:
        self._change()
        return super().put_if_absent(name, data)

    def delete(self, name: str) -> None:
        self._change()
        super().delete(name)


def fill(store: Store, make: Callable[[Store], Sink], first: int = 1, last: int = EPOCHS) -> None:
    """Epochs of three rows; every fifth has none, and every third has an object of its own."""
    sink = make(store)
    sink.open(Opening("c1", 1, 0, MemoryStore()))
    for epoch in range(first, last + 1):
        values = [{"n": 10 * epoch + i, "k": i % 2} for i in range(3 if epoch % 5 else 0)]
        rows = Rows.of(values, [0] * len(values))
        parts = []
        if epoch % 3 == 0 and values:
            own = sink.own_store()
            assert own is not None
            for file in sink.encode_files(rows):
                name = own_name(file.directory, epoch, "a/0", file.data, file.suffix)
                own.make_directory(file.directory)
                own.write(name, file.data)
                parts.append(Part("a/0", "", bytes, name, file.rows, len(file.data), is_own=True))
        elif values:
            data = sink.encode(rows)
            parts.append(Part("a/0", "", lambda data=data: data, rows=3))
        sink.deliver(Delivery(epoch, "c1", parts, commit=f"m{epoch}"))
    sink.close()


def numbers(store: Store, after: str | None = None) -> list[int]:
    found = read_output(store, after=after)
    by_epoch = [sorted(epoch.table()["n"].to_pylist()) for epoch in found if epoch.table().num_rows]
    together = found.table()
    if together.num_rows:
        assert sorted(together["n"].to_pylist()) == [n for part in by_epoch for n in part]
    return [n for part in by_epoch for n in part]


def expected(first: int = 1, last: int = EPOCHS) -> list[int]:
    return [10 * e + i for e in range(first, last + 1) if e % 5 for i in range(3)]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("on", ["memory", "disk"])
def test_compaction_keeps_epochs_rows_and_cursors(kind: str, on: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if on == "memory" else DiskStore(tmp_path / "out")
    fill(store, MAKERS[kind])
    cursor = "c1/17"
    assert numbers(store) == expected() and numbers(store, cursor) == expected(18)
    done = compact_output(store, keep_s=0.0, newest=4)
    assert done.before > 15 and done.after == (2 if kind == "partitioned" else 1)
    assert done.deleted > 0
    assert numbers(store) == expected() and numbers(store, cursor) == expected(18)
    assert compact_output(store, keep_s=0.0, newest=4) == CompactedOutput(0, 0, 0), (
        "nothing is left"
    )
    fill(store, MAKERS[kind], EPOCHS + 1, EPOCHS + 20)
    again = compact_output(store, keep_s=0.0, newest=4)
    assert again.before > 10 and again.after <= 2
    assert numbers(store) == expected(last=EPOCHS + 20)
    assert Manifests(store).find(3).commit == "m3"  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_crash_before_any_change_loses_and_doubles_nothing(kind: str) -> None:
    changes = 0
    while True:
        store = MemoryStore()
        fill(store, MAKERS[kind], last=12)
        try:
            compact_output(Dying(store, changes), keep_s=0.0, newest=2)
        except Crash:
            assert numbers(store) == expected(last=12), changes
            assert numbers(store, "c1/7") == expected(8, 12), changes
            while merge(store, 4):
                pass
            sweep(store, 0, 12)
            assert numbers(store) == expected(last=12), changes
            fill(store, MAKERS[kind], 13, 20)
            compact_output(store, keep_s=0.0, newest=2)
            assert numbers(store) == expected(last=20), changes
            changes += 1
            continue
        assert changes > 10
        return


def test_readers_with_an_old_manifest_find_their_files_for_a_while() -> None:
    store = MemoryStore()
    fill(store, sinks.parquet)
    slow = read_output(store)
    compact_output(store, keep_s=3600.0, newest=4)
    sweep(store, 0, EPOCHS)
    assert sorted(slow.table()["n"].to_pylist()) == expected()
    assert numbers(store) == expected()


def test_a_merge_that_began_before_the_compaction_cannot_undo_it() -> None:
    store = MemoryStore()
    fill(store, sinks.jsonl)

    class Late(ForwardingStore):
        """A merger that sleeps between its reading and its put."""

        def put_if_absent(self, name: str, data: Any) -> bool:
            compact_output(store, keep_s=0.0, newest=4)
            return super().put_if_absent(name, data)

    merge(Late(store), 8)
    assert numbers(store) == expected()
    while merge(store, 8):
        pass
    sweep(store, 0, EPOCHS)
    assert numbers(store) == expected()
    fill(store, sinks.jsonl, EPOCHS + 1, EPOCHS + 30)
    compact_output(store, keep_s=0.0, newest=2)
    while merge(store, 8):
        pass
    assert numbers(store) == expected(last=EPOCHS + 30)


def test_of_two_compactions_at_once_one_stops() -> None:
    store = MemoryStore()
    fill(store, sinks.jsonl)

    class Late(ForwardingStore):
        def put_if_absent(self, name: str, data: Any) -> bool:
            compact_output(store, keep_s=0.0, newest=4)
            return super().put_if_absent(name, data)

    with pytest.raises(SinkError, match="compacted by somebody else"):
        compact_output(Late(store), keep_s=0.0, newest=4)
    assert numbers(store) == expected()


class Disturbed(ForwardingStore):
    """A store in which somebody else acts once, before a walk or a read of a directory."""

    def __init__(self, base: Store, directory: str, act: Callable[[], object]) -> None:
        super().__init__(base)
        self.directory, self.act = directory, act
        self.is_done = False

    def _disturb(self, name: str) -> None:
        if name.startswith(self.directory) and not self.is_done:
            self.is_done = True
            self.act()

    def walk(self, directory: str = "", *, after: str = "") -> Any:
        self._disturb(directory)
        return super().walk(directory, after=after)

    def read(self, name: str) -> bytes:
        self._disturb(name)
        return super().read(name)


@pytest.mark.parametrize("directory", ["_compactions", "compacted"])
def test_a_compaction_deletes_no_files_of_another_that_has_just_ended(directory: str) -> None:
    store = MemoryStore()
    fill(store, sinks.jsonl)
    compact_output(store, keep_s=0.0, newest=15)
    other = Disturbed(store, directory, lambda: compact_output(store, keep_s=0.0, newest=1))
    compact_output(other, keep_s=0.0, newest=15)
    assert other.is_done and numbers(store) == expected()


def test_a_compaction_goes_on_where_the_pipeline_merges_manifests() -> None:
    store = MemoryStore()
    fill(store, sinks.jsonl)
    done = compact_output(Disturbed(store, "_epochs/", lambda: merge(store, 4)), newest=4)
    assert done.before > 15 and numbers(store) == expected()


def test_a_compaction_says_which_file_is_lost() -> None:
    store = MemoryStore()
    fill(store, sinks.jsonl)
    [lost] = [i.name for i in store.walk("data") if i is not None and "000000000003" in i.name]
    store.delete(lost)
    with pytest.raises(SinkError, match="cannot be compacted: .*000000000003.* is missing"):
        compact_output(store, newest=4)


def test_files_of_part_of_a_compacted_file_are_copied(tmp_path: Path) -> None:
    for make in (sinks.jsonl, sinks.parquet):
        store = MemoryStore()
        fill(store, make, last=12)
        compact_output(store, keep_s=0.0, newest=1)
        whole = read_output(store).files(copies_in=tmp_path)
        assert len(whole) == 2, "the compacted file, and the rows of the newest epoch"
        part = read_output(store, after="c1/8")
        with pytest.raises(SourceError, match="beside rows of other epochs"):
            part.files()
        copies = part.files(copies_in=tmp_path)
        local = [copy for copy in copies if copy.startswith(str(tmp_path))]
        assert len(copies) == 3 and len(local) == 2, "epochs 9 and 11; epoch 12 is a file"
        assert all(Path(copy).stat().st_size for copy in local)


def test_columns_that_changed_their_type_are_not_put_into_one_file() -> None:
    store = MemoryStore()
    sink = sinks.parquet(store)
    sink.open(Opening("c1", 1, 0, MemoryStore()))
    for epoch, n in enumerate([1, 2, "x", "y", 3, 4, 5], start=1):
        data = sink.encode(Rows.of([{"n": n, f"only{epoch}": epoch}], [0]))
        sink.deliver(Delivery(epoch, "c1", [Part("a", "", lambda data=data: data, rows=1)]))
    assert compact_output(store, keep_s=0.0, newest=1).after == 2, "one for each type"
    names = sorted(info.name for info in store.walk() if info is not None)
    assert compact_output(store, keep_s=0.0, newest=1) == CompactedOutput(0, 0, 0)
    assert names == sorted(info.name for info in store.walk() if info is not None)
    found = [epoch.table()["n"].to_pylist() for epoch in read_output(store)]
    assert found == [[1], [2], ["x"], ["y"], [3], [4], [5]]


def test_names_of_manifests_say_their_compaction() -> None:
    name = ManifestName(64, 64, rewrite=3)
    assert ManifestName.parse(name.name.rpartition("/")[2]) == name
    assert name.name > ManifestName(64, 64).name


def test_the_command_says_what_it_expects_where_no_sink_has_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["compact-output", str(tmp_path)])
    assert result.exit_code == 1
    assert "no output of a file sink" in result.output and "sinks.parquet" in result.output
