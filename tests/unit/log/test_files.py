"""The promises of durable files: with a full disk, without permission, between two steps."""

import errno
import os
from pathlib import Path

import pytest
from tests.unit.systems import with_files

from headrace.errors import StoreError
from headrace.store import files


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_written_file_is_complete_and_nothing_else_is_left(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"one")
    files.write(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert names(tmp_path) == ["a"]


def test_the_first_put_wins_and_the_second_changes_nothing(tmp_path: Path) -> None:
    assert files.put_if_absent(tmp_path / "a", b"first")
    assert not files.put_if_absent(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("operation", [files.write, files.put_if_absent])
def test_a_full_disk_leaves_the_name_free_and_says_what_to_do(tmp_path: Path, operation) -> None:
    real = os.write
    written = 0

    def full(descriptor: int, data) -> int:
        nonlocal written
        if written >= 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += real(descriptor, bytes(data[:4]))
        return 4

    with pytest.raises(StoreError, match="disk is full: free some space"):
        operation(tmp_path / "a", b"12345678", with_files(write=full))
    assert names(tmp_path) == []


def test_a_file_survives_a_full_disk_under_its_replacement(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, "quota")

    with pytest.raises(StoreError, match="quota is used up"):
        files.write(tmp_path / "a", b"new", with_files(fsync=full))
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("number", "says"), [(errno.EACCES, "permission denied"), (errno.EROFS, "read-only")]
)
def test_a_refusal_of_the_filesystem_is_explained(tmp_path: Path, number: int, says: str) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StoreError, match=says):
        files.put_if_absent(tmp_path / "a", b"x", with_files(create=refuse))


def test_a_crash_between_write_and_link_leaves_the_name_free(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    def die(*_: object) -> None:
        raise Crash

    # A killed process tidies nothing up: neither link nor unlink happen.
    dying = with_files(link=die, unlink=lambda path: None)
    with pytest.raises(Crash):
        files.put_if_absent(tmp_path / "a", b"first life", dying)
    assert not (tmp_path / "a").exists()
    assert len(names(tmp_path)) == 1
    assert files.put_if_absent(tmp_path / "a", b"second life")
    assert (tmp_path / "a").read_bytes() == b"second life"


def test_a_crash_between_write_and_rename_keeps_the_old_file(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"old")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write(tmp_path / "a", b"new", with_files(replace=die))
    assert (tmp_path / "a").read_bytes() == b"old"


def test_directories_are_made_with_their_parents_and_making_them_again_is_fine(
    tmp_path: Path,
) -> None:
    files.make_directory(tmp_path / "a/b/c")
    files.make_directory(tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c").is_dir()


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StoreError, match="a file has that name"):
        files.make_directory(tmp_path / "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_explained(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="permission denied"):
        files.make_directory(tmp_path / "closed/inside")


def test_a_rename_that_is_sent_twice_is_an_error_of_the_store_and_not_a_missing_file(
    tmp_path: Path,
) -> None:
    """A network filesystem repeats a request: the second one finds no file to rename."""

    def twice(old: str, new: str) -> None:
        os.replace(old, new)
        os.replace(old, new)

    with pytest.raises(StoreError, match="temporary file .* has vanished"):
        files.write(tmp_path / "a", b"one", with_files(replace=twice))
    assert (tmp_path / "a").read_bytes() == b"one"
    files.write(tmp_path / "a", b"one")
    assert names(tmp_path) == ["a"]
