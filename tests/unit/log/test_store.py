"""Both stores keep the same contract."""

from pathlib import Path

import pytest

from headrace.errors import StoreError
from headrace.store.store import DiskStore, MemoryStore, Store


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path: Path) -> Store:
    found = DiskStore(tmp_path / "checkpoint") if request.param == "disk" else MemoryStore()
    found.make_directory("d")
    return found


def test_what_is_written_is_read_mapped_and_listed(store: Store) -> None:
    store.write("d/b", b"1")
    store.write("d/a", b"")
    assert store.read("d/b") == store.map("d/b").to_pybytes() == b"1"
    assert store.map("d/a").to_pybytes() == b""
    assert store.list("d") == ["a", "b"]


def test_what_is_missing_is_not_found(store: Store) -> None:
    for look in (store.read, store.map):
        with pytest.raises(FileNotFoundError):
            look("d/none")
    assert store.list("nowhere") == []
    store.delete("d/none")


def test_put_if_absent_succeeds_once(store: Store) -> None:
    assert store.put_if_absent("d/a", b"1")
    assert not store.put_if_absent("d/a", b"2")
    assert store.read("d/a") == b"1"


def test_a_rename_replaces(store: Store) -> None:
    store.write("d/a", b"1")
    store.write("d/b", b"2")
    store.rename("d/a", "d/b")
    assert store.list("d") == ["b"] and store.read("d/b") == b"1"


def test_half_written_files_are_not_listed_and_are_found_once_they_are_old(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    (tmp_path / ".a.tmp").write_bytes(b"")
    assert store.list("") == []
    assert store.temporaries("", 3600) == []
    assert store.temporaries("", -1) == [".a.tmp"]


def test_a_directory_goes_with_what_was_half_written_in_it_but_never_with_a_file(
    tmp_path: Path,
) -> None:
    store = DiskStore(tmp_path)
    store.make_directory("d")
    (tmp_path / "d/.a.tmp").write_bytes(b"")
    store.write("d/a", b"")
    store.remove_directory("d")
    assert store.list("d") == ["a"]
    store.delete("d/a")
    store.remove_directory("d")
    assert not (tmp_path / "d").exists()


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
