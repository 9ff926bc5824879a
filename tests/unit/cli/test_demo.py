"""Where a demo works, and that it touches nothing else."""

from pathlib import Path

import pytest

from headrace.cli.demo import DemoMarker, prepare
from headrace.errors import HeadraceError

MINE = DemoMarker("zeitgeist", 1)


def test_without_a_directory_each_run_gets_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = prepare(None, MINE, resume=False), prepare(None, MINE, resume=False)
    assert first != second
    for place in (first, second):
        (place / "headrace-demo.json").unlink()
        place.rmdir()


def test_a_new_run_in_the_same_directory_starts_clean(tmp_path: Path) -> None:
    place = prepare(tmp_path / "demo", MINE, resume=False)
    (place / "checkpoint").mkdir()
    (place / "checkpoint" / "log").write_text("old")
    (place / "notes.txt").write_text("mine")
    assert prepare(place, MINE, resume=False) == place
    assert not (place / "checkpoint").exists()
    assert (place / "notes.txt").read_text() == "mine"


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    with pytest.raises(HeadraceError, match="not empty and not a demo's"):
        prepare(tmp_path, MINE, resume=False)
    assert (tmp_path / "output").exists()


def test_resuming_keeps_everything_and_needs_the_same_run(tmp_path: Path) -> None:
    place = prepare(tmp_path, MINE, resume=False)
    (place / "checkpoint").mkdir()
    assert prepare(place, MINE, resume=True) == place
    assert (place / "checkpoint").exists()
    with pytest.raises(HeadraceError, match="no zeitgeist run with seed 2"):
        prepare(place, DemoMarker("zeitgeist", 2), resume=True)
