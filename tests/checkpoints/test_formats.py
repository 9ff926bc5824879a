"""Checkpoints of the formats that a release promises to read: opened, verified, continued.

Each was made once, by `tests/checkpoints/make.py` of the Headrace that wrote its format.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
from tests.checkpoints.make import COUNT, HERE, STOPPED_AT, fixture
from tests.install.programs.tally import EPOCH_RECORDS
from tests.install.tallies import SHOPS, USERS, check_all_once
from tests.spark.support import ROOT, run_local

from headrace import Checkpoint
from headrace.errors import IncompatibleState
from headrace.log import sealed
from headrace.state import record, segment

FIXTURES = sorted(HERE.glob("format-*.tar.gz"))
UPGRADES = ROOT / "docs" / "guides" / "upgrades.md"
DONE = STOPPED_AT * EPOCH_RECORDS


def number_of(path: Path) -> int:
    return int(re.fullmatch(r"format-(\d+)\.tar\.gz", path.name)[1])


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name)
def old(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, Path]:
    """The format of a former checkpoint, and the directory in which it lies."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return number_of(request.param), tmp_path


def test_a_former_checkpoint_is_opened_and_whole(old: tuple[int, Path]) -> None:
    number, where = old
    found = Checkpoint(where / "state")
    assert found.epoch == STOPPED_AT
    assert found.verify().problems == []
    tallies = dict(found.scan("Tally"))
    assert sum(fields["count"] for fields in tallies.values()) == DONE
    assert set(tallies) == {f"u{n}" for n in range(USERS)}
    for fields in tallies.values():
        assert sum(fields["shops"].values()) == fields["count"]
        assert len(fields["shops"]) == SHOPS
    seals = {
        path.read_bytes().split(b" ")[1]
        for path in (where / "state" / "log").rglob("0*")
        if path.is_file()
    }
    assert seals == {b"%d" % number}


def test_a_former_checkpoint_goes_on_without_a_gap(old: tuple[int, Path]) -> None:
    _, where = old
    # As the one who made it: relative to the directory in which everything lies.
    options = {"slots": 2, "epoch_records": EPOCH_RECORDS, "until": "end"}
    summary = run_local(fixture(Path()), "state", **options)
    assert summary.records == COUNT - DONE, "what was read is not read again"
    check_all_once(where, COUNT)
    assert Checkpoint(where / "state").verify().problems == []


def test_a_former_checkpoint_can_be_resized(old: tuple[int, Path]) -> None:
    _, where = old
    options = {"slots": 3, "epoch_records": 2 * EPOCH_RECORDS, "until": "end"}
    run_local(fixture(Path()), "state", **options)
    check_all_once(where, COUNT)


def test_every_format_that_the_guide_promises_to_read_has_a_checkpoint_here() -> None:
    text = UPGRADES.read_text(encoding="utf-8")
    promised = re.findall(
        r"^\| [\d.]+[^|]* \| (\d+) \| (\d+) \| (\d+) \| read and continued \|$", text, re.MULTILINE
    )
    assert promised, "the guide has a line for each release"
    assert {int(log) for log, _, _ in promised} == {number_of(path) for path in FIXTURES}
    newest = (sealed.FORMAT, segment.FORMAT, record.FORMAT)
    assert tuple(map(int, promised[0])) == newest, "the first line is that of this version"


@pytest.mark.parametrize("change", [1, -1])
def test_another_format_is_refused_by_name(
    change: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(HERE / f"format-{sealed.FORMAT}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    # As a Headrace would see it whose own format is an older or a newer one.
    monkeypatch.setattr(sealed, "FORMAT", sealed.FORMAT - change)
    words = "upgrade Headrace" if change > 0 else "begin with a new checkpoint"
    with pytest.raises(IncompatibleState, match=words):
        Checkpoint(tmp_path / "state").epoch
