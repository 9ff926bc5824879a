"""The store `files` counts its keys: a key that is lost, and one that is put back, are noticed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state.backends.test_files import A, B, cell, opened, value_of, versions

from headrace.errors import CorruptCheckpoint
from headrace.model.values.keys import encode_key
from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.files import FilesBackend
from headrace.state.backends.key_files import stem_of
from headrace.state.segment import Cell
from headrace.system import Filesystem, System

KEYS = [encode_key(i) for i in range(12)]
Changes = list[tuple[str, Cell]]


def history(epochs: int, seed: int) -> dict[int, Changes]:
    dice = random.Random(seed)
    return {
        epoch: [
            cell(key, None if dice.random() < 0.3 else b"%d" % epoch, dice.choice("mn"))
            for key in dice.sample(KEYS, dice.randint(0, 5))
        ]
        for epoch in range(1, epochs + 1)
    }


def applied(files: FilesBackend, epoch: int, cells: Changes) -> None:
    files.write(epoch, cells)
    assert files.raise_applied(epoch, files.marks().run)


def loses(path: Path, key: bytes) -> None:
    for file in path.rglob(f"{stem_of(key)}.*"):
        file.unlink()


def test_each_file_that_is_missing_is_noticed_if_it_counts(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    for epoch, cells in history(20, seed=1).items():
        applied(files, epoch, cells)
        assert files.lost() == ""
    before = {key: (value_of(files, key, "m"), value_of(files, key, "n")) for key in KEYS}
    noticed = 0
    for name in versions(tmp_path):
        (path,) = tmp_path.rglob(name)
        path.rename(tmp_path / "aside")
        now = {key: (value_of(files, key, "m"), value_of(files, key, "n")) for key in KEYS}
        lost = files.lost()
        assert lost or now == before, f"without {name}: never a silent wrong answer"
        noticed += bool(lost)
        (tmp_path / "aside").rename(path)
    assert noticed == len({name.partition(".")[0] for name in versions(tmp_path)})
    assert files.lost() == ""


def test_a_loss_stays_known_when_the_key_is_written_again(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    applied(files, 1, [cell(A, b"1"), cell(B, b"1")])
    applied(files, 2, [cell(A, b"2")])
    loses(tmp_path, B)
    for epoch in range(3, 7):
        applied(files, epoch, [cell(A, b"%d" % epoch), cell(B, b"%d" % epoch)])
        assert "3 keys were written" in str(files.lost()), "B counts as another one"


def test_an_epoch_that_is_half_written_takes_nothing_away(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    applied(files, 1, [cell(A, b"1")])
    files.write(2, [cell(A, b"2"), cell(B, b"2")])  # and then it dies
    assert files.lost() == ""
    later = opened(tmp_path, 2, files.place())
    assert later.lost() == ""
    applied(later, 2, [cell(A, b"2"), cell(B, b"2")])
    assert later.lost() == ""


class Dies(Exception):
    """The process ends here."""


class Mortal(Filesystem):
    """Files of a process that dies at one of its changes."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("create", "write", "replace", "rename", "link", "unlink", "mkdir", "fsync"):
            return found
        return lambda *given: self._die_or(found, given)

    def _die_or(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        self.left -= 1
        if self.left == 0:
            raise Dies
        return call(*given)


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_that_dies_anywhere_leaves_a_count_that_is_right(
    seed: int, tmp_path: Path
) -> None:
    given, dice = history(9, seed), random.Random(seed)
    generation, place, at, deaths = 1, "", 0, 0
    while at < 9:
        system = System(Mortal(dice.randint(1, 60)))
        mortal = FilesBackend(StateDirectory(str(tmp_path), system), purge_share=0.0)
        try:
            mortal.lead(generation, place)
            for epoch in range(mortal.marks().applied + 1, 10):
                applied(mortal, epoch, given[epoch])
                place, at = mortal.place(), epoch  # a commit names it
                if epoch % 3 == 0:
                    mortal.purge(epoch - 1)
        except Dies:
            deaths += 1
        generation += 1
        heir = opened(tmp_path, generation, place)
        assert heir.lost() == ""
        place = heir.place()
    assert deaths > 2
    values = {key: value_of(heir, key) for key in KEYS}
    whole = opened(tmp_path / "whole", 1)
    for epoch, cells in given.items():
        applied(whole, epoch, cells)
    assert {key: value_of(whole, key) for key in KEYS} == values


def test_a_writer_that_was_overtaken_does_not_change_the_count(tmp_path: Path) -> None:
    given, dice = history(12, seed=4), random.Random(4)
    late = opened(tmp_path, 1)
    for epoch in (1, 2):
        applied(late, epoch, given[epoch])
    late.write(3, given[3][:1])
    leader = opened(tmp_path, 2, late.place())
    for epoch in range(3, 13):
        applied(leader, epoch, given[epoch])
        late.write(slow := dice.randint(3, epoch), given[slow])
        late.raise_applied(slow, leader.marks().run)
        assert leader.lost() == ""


def test_a_mark_without_a_count_gets_one_with_the_next_epoch(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    applied(files, 1, [cell(A, b"1")])
    (mark,) = tmp_path.rglob("applied-*")
    mark.write_bytes(b"")  # as earlier releases wrote it
    assert files.lost() is None
    applied(opened(tmp_path, 2, files.place()), 2, [cell(B, b"2")])
    assert files.lost() == ""
    loses(tmp_path, A)
    assert "2 keys were written up to epoch 2, and 1 are there" in str(files.lost())


def test_a_damaged_mark_says_what_to_do(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    applied(files, 1, [cell(A, b"1")])
    (mark,) = tmp_path.rglob("applied-*")
    mark.write_bytes(mark.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(CorruptCheckpoint, match=r"applied-.* make it empty"):
        files.lost()


def test_a_purge_does_not_hide_a_loss(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    applied(files, 1, [cell(A, b"1"), cell(B, b"1")])
    applied(files, 2, [cell(A, None)])
    loses(tmp_path, B)
    with pytest.raises(CorruptCheckpoint, match=r"2 keys were written.*1 are there.*empty"):
        files.purge(2)


def test_dropped_keys_are_counted_anew(tmp_path: Path) -> None:
    files = opened(tmp_path, 1)
    applied(files, 1, [cell(A, b"1"), cell(B, b"1")])
    files.drop("C", 1, [A])
    assert files.lost() is None
    applied(files, 2, [cell(B, b"2")])
    assert files.lost() == ""
