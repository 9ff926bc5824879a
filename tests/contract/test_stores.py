"""What every store promises, and the engine relies on.

A new store gets a line in `KINDS` and must pass as it is. What only a disk can show (damage, power
loss, other processes) follows below.
"""

import os
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from tests.servers.stores import chosen, store_on

from headrace.errors import StoreError
from headrace.store import counts
from headrace.store.disk import DiskStore
from headrace.store.location import open_store
from headrace.store.memory import MemoryStore
from headrace.store.overlay import Overlay
from headrace.store.store import ForwardingStore, Store
from headrace.system import REAL, Filesystem, System
from headrace.testing.simulator.machine.disk import SimulatedDisk
from headrace.testing.simulator.machine.objects import ObjectServer, SimulatedObjectStore

KINDS: dict[str, Callable[[Path], Store]] = {
    "disk": lambda path: DiskStore(path / "checkpoint"),
    "memory": lambda path: MemoryStore(),
    "overlay of a disk": lambda path: Overlay(DiskStore(path / "checkpoint")),
    "overlay of memory": lambda path: Overlay(MemoryStore()),
    "part of a disk": lambda path: DiskStore(path / "checkpoint").below("sources/a%2Fb"),
    "part of memory": lambda path: MemoryStore().below("sinks/out"),
    "forwarding": lambda path: ForwardingStore(DiskStore(path / "checkpoint")),
    "simulated objects": lambda path: simulated_objects(path),
}


def simulated_objects(path: Path) -> SimulatedObjectStore:
    """The simulator's object store, without faults."""
    server = ObjectServer(SimulatedDisk(), time.time)
    return SimulatedObjectStore(server, str(path), REAL, lambda call, path: None)


# Real servers: one installs in seconds, and `make test-servers` names others.
for server in chosen():
    KINDS[server] = lambda path, kind=server: store_on(kind)
    KINDS[f"part of {server}"] = lambda path, kind=server: store_on(kind).below("a/b%2Fc")

WRITERS = 16
ROUNDS = 20


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    found = KINDS[request.param](tmp_path)
    found.make_directory("d")
    return found


# Reading and writing ------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4096, 1_000_003])
def test_what_is_written_is_read_mapped_and_listed(store: Store, size: int) -> None:
    data = os.urandom(size)
    store.write("d/b", data)
    store.write("d/a", b"")
    assert store.read("d/b") == store.map("d/b").to_pybytes() == data
    assert store.map("d/a").to_pybytes() == b""
    assert store.list("d") == ["a", "b"]


def test_a_second_write_replaces_the_first(store: Store) -> None:
    for write in (store.write, store.write_volatile):
        write("d/a", b"1" * 10_000)
        write("d/a", b"2")
        assert store.read("d/a") == b"2" and store.list("d") == ["a"]


def test_a_volatile_write_is_seen_whole_and_at_once(store: Store) -> None:
    store.write_volatile("d/a", b"1")
    assert store.read("d/a") == b"1" and store.list("d") == ["a"]
    assert not store.put_if_absent("d/a", b"2")


def test_what_is_missing_is_not_found(store: Store) -> None:
    for look in (store.read, store.map):
        with pytest.raises(FileNotFoundError):
            look("d/none")
        with pytest.raises(FileNotFoundError):
            look("nowhere/none")
    assert store.list("nowhere") == []
    store.delete("d/none")
    store.delete("nowhere/none")
    with pytest.raises(FileNotFoundError):
        store.copy("d/none", "d/some")
    assert store.list("d") == []


def test_a_list_has_names_one_level_below_and_sees_directories(store: Store) -> None:
    store.make_directory("d/deep/deeper")
    for name in ("d/deep/deeper/x", "d/deep/y", "d/z", "d2"):
        store.write(name, b"")
    assert store.list("d") == ["deep", "z"]
    assert store.list("d/deep") == ["deeper", "y"]
    assert store.list("") == ["d", "d2"]


def test_what_is_mapped_stays_readable_when_it_is_deleted(store: Store) -> None:
    store.write("d/a", b"1" * 10_000)
    mapped = store.map("d/a")
    store.delete("d/a")
    assert mapped.to_pybytes() == b"1" * 10_000


def test_what_is_deleted_is_gone_and_its_name_is_free(store: Store) -> None:
    store.write("d/a", b"1")
    store.delete("d/a")
    assert store.list("d") == []
    with pytest.raises(FileNotFoundError):
        store.read("d/a")
    assert store.put_if_absent("d/a", b"2") and store.read("d/a") == b"2"


def test_many_files_are_deleted_at_once_and_missing_ones_do_not_matter(store: Store) -> None:
    store.delete_all([])
    names = [f"d/{number:04d}" for number in range(30)]
    for name in names:
        store.write(name, b"")
    store.write("d/kept", b"1")
    store.delete_all([*names, "d/none", "nowhere/none"])
    assert store.list("d") == ["kept"]
    with pytest.raises(ValueError, match="is not a name in a store"):
        store.delete_all(["d/../kept"])
    assert store.list("d") == ["kept"]


# Sizes, versions, ranges --------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 70_001])
def test_a_range_of_a_file_is_what_a_slice_of_its_bytes_is(store: Store, size: int) -> None:
    data = os.urandom(size)
    store.write("d/a", data)
    for start, end in [(0, 0), (0, 1), (0, size), (1, size + 10), (size // 2, size), (size, size)]:
        assert store.read_range("d/a", start, end) == data[start:end]
    assert store.read_range("d/a", size + 5, size + 9) == b""


def test_a_file_has_a_size_and_a_version_that_changes_with_its_bytes(store: Store) -> None:
    store.write("d/a", b"one")
    first = store.stat("d/a")
    assert (first.name, first.size) == ("d/a", 3) and first.version
    assert store.stat("d/a") == first
    store.write("d/a", b"two")
    second = store.stat("d/a")
    assert second.size == 3 and second.version != first.version
    store.write("d/b", b"another")
    assert store.stat("d/a") == second


def test_what_is_missing_has_neither_a_size_nor_ranges(store: Store) -> None:
    store.make_directory("d/deep")
    store.write("d/deep/a", b"1")
    for name in ("d/none", "nowhere/none", "d/deep"):
        with pytest.raises(FileNotFoundError):
            store.stat(name)
    with pytest.raises(FileNotFoundError):
        store.read_range("d/none", 0, 1)


def test_a_walk_finds_all_files_at_any_depth_with_their_sizes_and_versions(store: Store) -> None:
    store.make_directory("d/deep/deeper")
    names = ["d/a", "d/deep/b", "d/deep/deeper/c", "d/e", "d2"]
    for number, name in enumerate(names):
        store.write(name, b"x" * number)
    store.write("d/.hidden", b"")

    def walked(directory: str = "", after: str = "") -> list[Any]:
        found = store.walk(directory, after=after) if directory else store.walk(after=after)
        return sorted(info for info in found if info is not None)

    assert walked() == [store.stat(name) for name in names]
    assert [info.name for info in walked("d")] == names[:4]
    assert [info.name for info in walked("d/deep")] == names[1:3]
    assert [info.name for info in walked("d", after="d/deep/b")] == names[2:4]
    assert [info.name for info in walked(after="d/e")] == ["d2"]
    assert walked("nowhere") == []


# Put if absent ------------------------------------------------------------


def test_put_if_absent_succeeds_once(store: Store) -> None:
    assert store.put_if_absent("d/a", b"1")
    assert not store.put_if_absent("d/a", b"2")
    assert store.read("d/a") == b"1"


def test_put_if_absent_does_not_replace_what_was_written(store: Store) -> None:
    store.write("d/a", b"1")
    assert not store.put_if_absent("d/a", b"2")
    assert store.read("d/a") == b"1"


def test_of_many_threads_that_put_one_name_exactly_one_succeeds(store: Store) -> None:
    together = Barrier(WRITERS)

    def put(number: int, turn: int) -> bool:
        together.wait()
        return store.put_if_absent(f"d/{turn:02d}", b"%d" % number)

    with ThreadPoolExecutor(WRITERS) as pool:
        for turn in range(ROUNDS):
            won = list(pool.map(put, range(WRITERS), [turn] * WRITERS))
            assert won.count(True) == 1
            assert store.read(f"d/{turn:02d}") == b"%d" % won.index(True)
    assert len(store.list("d")) == ROUNDS


def test_no_reader_sees_a_part_of_a_file(store: Store) -> None:
    whole = {b"a" * 200_000, b"b" * 100_000}
    store.write("d/a", b"a" * 200_000)

    def write(turn: int) -> None:
        store.write("d/a", b"b" * 100_000 if turn % 2 else b"a" * 200_000)

    def read(turn: int) -> bytes:
        return store.map("d/a").to_pybytes() if turn % 2 else store.read("d/a")

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, turn) for turn in range(40)]
        assert set(pool.map(read, range(80))) <= whole
        for done in writes:
            done.result()
    assert store.list("d") == ["a"]


# Names --------------------------------------------------------------------

REFUSED = [
    "/etc/passwd", "../a", "d/../../a", "d/./a", "d//a", "d/", "/", "..", "d/a\0b", "d/a\nb",
    "d\\a", "d/\udc80", "d/\u202e",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_not_every_store_can_hold_are_refused(store: Store, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.write(name, b""),
        lambda: store.write_volatile(name, b""),
        lambda: store.put_if_absent(name, b""),
        lambda: store.read(name),
        lambda: store.map(name),
        lambda: store.delete(name),
        lambda: store.copy("d/a", name),
        lambda: store.copy(name, "d/a"),
        lambda: store.below(name).read("a"),
    ]
    store.write("d/a", b"")
    for call in calls:
        with pytest.raises(ValueError, match="is not a name in a store"):
            call()


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "é", "ü=1,2+3@#!", "漢", "x" * 200, "a..b"])
def test_other_names_are_kept_as_they_are(store: Store, name: str) -> None:
    assert store.put_if_absent(f"d/{name}", b"1")
    assert store.list("d") == [name] and store.read(f"d/{name}") == b"1"


# Copies -------------------------------------------------------------------


def test_a_copy_has_the_bytes_of_the_first_name_and_outlives_it(store: Store) -> None:
    store.make_directory("e")
    store.write("d/a", b"1" * 10_000)
    store.copy("d/a", "e/b")
    assert store.read("e/b") == store.read("d/a") == b"1" * 10_000
    store.delete("d/a")
    assert store.read("e/b") == store.map("e/b").to_pybytes() == b"1" * 10_000
    assert store.list("d") == [] and store.list("e") == ["b"]
    assert not store.put_if_absent("e/b", b"2")


def test_a_copy_replaces_and_may_be_made_again(store: Store) -> None:
    store.write("d/a", b"1")
    store.write("d/b", b"2")
    for _ in range(2):
        store.copy("d/a", "d/b")
        assert store.list("d") == ["a", "b"] and store.read("d/b") == b"1"
    store.write("d/a", b"3")
    assert store.read("d/b") == b"1", "a copy is a file of its own"


# Leftovers ----------------------------------------------------------------


def test_hidden_files_are_swept_when_they_are_old(store: Store) -> None:
    store.write("d/.a.1.tmp", b"1")
    store.write("d/a", b"1")
    assert store.sweep("d", older_than_s=3600) == 0
    assert store.read("d/.a.1.tmp") == b"1"
    assert store.sweep("nowhere", older_than_s=-1) == 0
    assert store.sweep("d", older_than_s=-1) == 1
    with pytest.raises(FileNotFoundError):
        store.read("d/.a.1.tmp")
    assert store.list("d") == ["a"]


# Directories --------------------------------------------------------------


def test_a_directory_may_be_made_and_synced_again_and_again(store: Store) -> None:
    for _ in range(2):
        store.make_directory("d/deep")
        store.sync("d")
    assert store.put_if_absent("d/deep/a", b"")


def test_a_directory_goes_without_its_leftovers_but_never_with_a_file(store: Store) -> None:
    store.write("d/.a.1.tmp", b"")
    store.write("d/a", b"")
    store.remove_directory("d")
    assert store.list("d") == ["a"]
    store.delete("d/a")
    store.remove_directory("d")
    assert store.list("") == []


def test_a_retired_directory_is_empty_and_refuses_files_if_it_can(store: Store) -> None:
    store.put_if_absent("d/a", b"1")
    assert store.retire_directory("d")
    assert store.list("d") == []
    if isinstance(store, DiskStore):
        with pytest.raises(FileNotFoundError):
            store.put_if_absent("d/b", b"2")
    assert store.retire_directory("d")
    assert store.list("d") == []


# Where it is --------------------------------------------------------------


def test_a_store_that_is_shared_can_be_opened_by_its_location(store: Store) -> None:
    store.write("d/a", b"1")
    if isinstance(store, Overlay | SimulatedObjectStore):
        pytest.skip("it belongs to one process")
    for other in (open_store(store.location), pickle.loads(pickle.dumps(store))):
        assert other.read("d/a") == b"1" and other.location == store.location
        other.write("d/b", b"2")
        assert store.read("d/b") == b"2"


def test_two_stores_have_two_locations_and_messages_name_the_place(tmp_path: Path) -> None:
    made = [make(tmp_path / kind.replace(" ", "-")) for kind, make in KINDS.items()]
    assert len({store.location for store in made}) == len(made)
    for store in made:
        assert store.where("d/a").startswith(store.where())
        assert store.where("d/a").endswith("d/a")


def test_a_local_path_leads_to_the_file_or_there_is_none(store: Store) -> None:
    store.write("d/a", b"1")
    path = store.local_path("d/a")
    assert path is None or Path(path).read_bytes() == b"1"


def test_a_part_of_a_store_has_names_of_its_own(store: Store) -> None:
    part = store.below("d/x y")
    part.make_directory("")
    part.make_directory("e")
    assert part.put_if_absent("a", b"1") and part.put_if_absent("e/b", b"2")
    assert part.list("") == ["a", "e"] and part.read("e/b") == b"2"
    assert store.read("d/x y/a") == b"1" and store.list("d/x y") == ["a", "e"]
    assert part.where("a") == store.where("d/x y/a")
    part.below("e").delete("b")
    assert store.list("d/x y/e") == []


def test_a_store_in_the_memory_of_another_process_is_refused() -> None:
    with pytest.raises(StoreError, match="memory of another process"):
        open_store("memory:0")


# Requests -----------------------------------------------------------------


def test_a_store_that_counts_counts_every_request_for_its_purpose(store: Store) -> None:
    if not store.requests() and store.list("d") == [] and not store.requests():
        pytest.skip("it does not count")
    before = store.requests().get(counts.PATH, counts.RequestCounts())
    store.write("d/a", b"123")
    assert store.put_if_absent("d/b", b"4567")
    with counts.counted_as(counts.LEASE):
        assert store.read("d/a") == b"123"
        with counts.counted_as(counts.MERGES):
            store.copy("d/a", "d/c")
        store.list("d")
    store.map("d/b")
    store.delete("d/a")
    found = store.below("d").requests()
    path = found[counts.PATH] - before
    assert (path.puts, path.bytes_out) == (2, 7)
    assert (path.gets, path.bytes_in) == (1, 4)
    assert (path.lists, path.deletes) == (0, 1)
    lease = found[counts.LEASE]
    assert (lease.gets, lease.bytes_in, lease.lists, lease.puts) == (1, 3, 1, 0)
    assert found[counts.MERGES].puts >= 1
    assert found[counts.LEASE].requests == 2
    assert found.keys() == {counts.PATH, counts.LEASE, counts.MERGES}


# An overlay ---------------------------------------------------------------


@pytest.fixture
def base() -> MemoryStore:
    found = MemoryStore()
    found.write("d/a", b"1")
    found.write("d/b", b"2")
    return found


def test_an_overlay_shows_what_lies_below_and_never_changes_it(base: MemoryStore) -> None:
    before = dict(base.files)
    overlay = Overlay(base)
    assert not overlay.put_if_absent("d/a", b"3")
    overlay.write("d/a", b"3")
    overlay.delete("d/b")
    overlay.copy("d/a", "d/c")
    overlay.delete("d/a")
    assert overlay.put_if_absent("d/b", b"4")
    assert overlay.list("d") == ["b", "c"]
    assert overlay.read("d/c") == b"3" and overlay.read("d/b") == b"4"
    assert base.files == before
    assert overlay.written == {"d/b": b"4", "d/c": b"3"}


def test_what_an_overlay_keeps_open_is_read_after_it_was_deleted_below(base: MemoryStore) -> None:
    overlay = Overlay(base)
    assert overlay.keep_open(["d/a", "d/none"]) == ["d/none"]
    base.delete("d/a")
    assert overlay.read("d/a") == overlay.map("d/a").to_pybytes() == b"1"


def test_an_overlay_gives_paths_only_to_those_who_only_read(tmp_path: Path) -> None:
    disk = DiskStore(tmp_path)
    assert Overlay(disk).local_path("a") is None
    assert Overlay(disk, gives_paths=True).local_path("a") == str(tmp_path / "a")


# A disk -------------------------------------------------------------------


def with_call(name: str, call: Callable[..., Any]) -> System:
    """This machine, but for one call on files."""
    files = Filesystem()
    setattr(files, name, call)
    return System(files)


def full(*given: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["create", "write", "fsync"])
@pytest.mark.parametrize("act", ["write", "put_if_absent", "write_volatile"])
def test_a_write_that_fails_leaves_nothing_to_be_seen(tmp_path: Path, call: str, act: str) -> None:
    DiskStore(tmp_path).write("a", b"old")
    store = DiskStore(tmp_path, with_call(call, full))
    for name in ("a", "b"):
        if (call, act) == ("fsync", "write_volatile"):
            continue  # it is not synced
        with pytest.raises(StoreError, match="the disk is full"):
            getattr(store, act)(name, b"new")
        assert DiskStore(tmp_path).list("") == ["a"]
    if (call, act) != ("fsync", "write_volatile"):
        assert DiskStore(tmp_path).read("a") == b"old"


def test_a_put_whose_outcome_is_unknown_is_in_or_out_when_read_back(tmp_path: Path) -> None:
    def lost(source: Any, target: Any) -> None:
        os.link(source, target)
        raise OSError(110, "Connection timed out")

    store = DiskStore(tmp_path, with_call("link", lost))
    with pytest.raises(StoreError):
        store.put_if_absent("a", b"1")
    assert store.read("a") == b"1"
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_a_volatile_write_and_it_alone_is_not_synced(tmp_path: Path) -> None:
    synced: list[int] = []
    store = DiskStore(tmp_path, with_call("fsync", synced.append))
    store.write_volatile("a", b"")
    assert not synced
    store.write("a", b"")
    assert len(synced) == 2, "the file and its name"
    store.put_if_absent("b", b"")
    assert len(synced) == 4


def test_what_a_killed_writer_left_is_hidden_until_it_is_swept(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    for name in (".a.01.tmp", ".b.02.tmp", ".keep"):
        (tmp_path / name).write_bytes(b"")
    long_ago = time.time() - 7200
    os.utime(tmp_path / ".a.01.tmp", (long_ago, long_ago))
    assert store.list("") == []
    assert store.sweep("", 3600) == 1
    assert sorted(os.listdir(tmp_path)) == [".b.02.tmp", ".keep"]


def test_a_missing_directory_is_not_made_by_a_write(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    for write in (store.write, store.write_volatile, store.put_if_absent):
        with pytest.raises(FileNotFoundError):
            write("d/a", b"")
    assert not list(tmp_path.iterdir())


def test_a_place_that_vanished_is_not_made_again(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "state")
    assert not store.is_present()
    store.make_directory("d")
    assert store.is_present()
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="has vanished: is it still mounted"):
        store.make_directory("d")
    assert not store.is_present()


def test_a_checkpoint_path_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DiskStore(tmp_path / "file")
    with pytest.raises(StoreError, match="file"):
        store.read("IDENTITY")
    with pytest.raises(StoreError, match="file"):
        store.make_directory("")


def test_a_directory_is_retired_though_a_crash_left_its_last_life_half_taken_away(
    tmp_path: Path,
) -> None:
    """Renamed, then a crash; a driver that slept makes it again: the old one is in the way."""
    store = DiskStore(tmp_path)
    store.make_directory("d/1")
    store.put_if_absent("d/1/old", b"x")
    (tmp_path / "d/1").rename(tmp_path / "d/1.gone")
    store.make_directory("d/1")
    (tmp_path / "d/1/new").write_bytes(b"y")
    assert store.retire_directory("d/1")
    assert store.list("d") == []
