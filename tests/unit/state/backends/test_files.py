"""One file per key: versions that are joined, a purge that late writers cannot reach, damage."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CorruptCheckpoint, InvalidPipeline
from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.plan.state.choice import StateChoice
from headrace.state.backend import StoreMarks
from headrace.state.backends.directory import GONE, StateDirectory
from headrace.state.backends.files import FilesBackend
from headrace.state.backends.opening import opener_of
from headrace.state.segment import ENTRY, FIELD, Cell
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.system import REAL, AnyPath, Filesystem, System

A, B = encode_key("a"), encode_key("b")


def opened(path: Path, generation: int, place: str = "") -> FilesBackend:
    found = FilesBackend(StateDirectory(str(path), REAL), purge_share=0.0)
    found.lead(generation, place)
    return found


def cell(key: bytes, value: bytes | None, field: str = "n", entry: bytes = b"") -> tuple[str, Cell]:
    kind, gone = (ENTRY if entry else FIELD), value is None
    return "C", Cell(hash_key(key), key, kind, field, entry, value or b"", 0, END, 1, gone)


def value_of(files: FilesBackend, key: bytes, field: str = "n") -> bytes | None:
    (found,) = files.read_fields("C", [key], np.array([hash_key(key)], np.uint64))
    return found[field].value if field in found else None


def versions(path: Path) -> list[str]:
    return [name for _, _, names in os.walk(path) for name in names if name.count(".") >= 2]


def test_writers_that_have_not_seen_each_other_are_joined(tmp_path: Path) -> None:
    one, other = opened(tmp_path, 1), opened(tmp_path, 1)
    one.write(1, [cell(A, b"1"), cell(A, b"1", "m")])
    known = other._load("C", A)
    one.write(3, [cell(A, b"3")])
    other._load = lambda computation, key: known  # type: ignore[method-assign]
    other.write(2, [cell(A, b"2"), cell(A, b"2", "m")])
    assert value_of(one, A) == b"3" and value_of(one, A, "m") == b"2"


def test_a_place_that_a_late_writer_makes_again_goes_though_its_removal_had_begun(
    tmp_path: Path,
) -> None:
    files = opened(tmp_path, 1)
    files.write(1, [cell(A, b"1"), cell(B, None)])
    files.raise_applied(1, files.marks().run)
    old = files.place()
    files.purge(1)
    (tmp_path / f"removed-{old}").mkdir()  # its first removal ended here, and a writer went on
    (tmp_path / f"removed-{old}" / "cells").mkdir()
    files.tidy(files.place())
    assert {name for name in os.listdir(tmp_path) if name != "RUN"} == {files.place()}
    assert value_of(files, A) == b"1"


def test_old_versions_go(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    for epoch in range(1, 9):
        files.write(epoch, [cell(A, b"%d" % epoch)])
    assert value_of(files, A) == b"8" and len(versions(tmp_path)) == 2


def test_a_purge_moves_to_a_new_place_and_late_writers_stay_in_the_old_one(tmp_path: Path) -> None:
    late = opened(tmp_path, 1)
    late.write(1, [cell(A, b"1"), cell(B, b"1"), cell(B, b"1", "items", b"e")])
    leader = opened(tmp_path, 2, late.place())
    leader.write(2, [cell(A, None)])
    leader.raise_applied(2, leader.marks().run)
    leader.purge(2)
    late.write(1, [cell(A, b"1")])
    assert leader.place() != late.place() and leader.marks()[:2] == (2, 2)
    assert value_of(leader, A) is None and value_of(leader, B) == b"1"
    assert [key for _, key in leader.scan("C")] == [B]
    leader.tidy(leader.place())
    assert late.marks().run == GONE  # whoever reads there notices it
    assert value_of(opened(tmp_path, 3, leader.place()), B) == b"1"


def test_a_place_that_is_being_removed_is_gone_for_readers(tmp_path: Path) -> None:
    """Else a key whose file is gone already would be one that never was."""
    found: list[StoreMarks] = []

    class Slow(Filesystem):
        def remove_tree(self, path: AnyPath) -> None:
            found.append(reader.marks())
            if len(found) > 1:
                super().remove_tree(path)

    system = System(Slow())
    leader = FilesBackend(StateDirectory(str(tmp_path), system), purge_share=0.0)
    leader.lead(1, "")
    leader.write(1, [cell(A, b"1"), cell(B, b"1")])
    leader.write(2, [cell(A, None)])
    assert leader.raise_applied(2, leader.marks().run)
    reader = FilesBackend(StateDirectory(str(tmp_path), REAL))
    reader.follow(old := leader.place())
    before = reader.marks()
    leader.purge(2)
    assert leader.place() != old and reader.marks() == before
    leader.tidy(leader.place())  # dies there
    assert found[0].run == GONE != before.run
    (tmp_path / "000000-000000000000").mkdir()
    leader.tidy(leader.place())
    assert sorted(os.listdir(tmp_path)) == [leader.place(), "RUN"], "what was left is gone, too"


def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    files.write(1, [cell(A, b"1")])
    (name,) = versions(tmp_path)
    (path,) = tmp_path.rglob(name)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptCheckpoint, match=name[:20]):
        value_of(files, A)


def test_stores_in_files_need_a_directory(tmp_path: Path) -> None:
    for name in ("files", "log"):
        with pytest.raises(InvalidPipeline, match="not a directory"):
            opener_of(StateChoice(name), MemoryStore())
        opens = opener_of(StateChoice(name), DiskStore(tmp_path))
        assert opens is not None and opens("c1").name == name
    assert opener_of(StateChoice(), MemoryStore()) is None
