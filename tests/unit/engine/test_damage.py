"""Damage stays where it was done: published files and the checkpoint share nothing."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit.engine.support import counting, driver_of, run
from tests.unit.systems import FILES, limited

from headrace import Pipeline, replay, sinks
from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.source import Range, Reading, Source, Timing, Workspace
from headrace.sinks import jsonl
from headrace.store.disk import DiskStore
from headrace.system import System

VALUES = [i * 7 % 10 for i in range(60)]


def ran(root: Path, system: System = FILES, **options: int) -> Path:
    """A pipeline that has come to its end; gives where its output lies."""
    out = root / "out"
    driver = driver_of(counting(VALUES, jsonl(out)), DiskStore(root / "state", system), **options)
    run(driver)
    driver.close()
    return out


def lines(out: Path) -> Counter[str]:
    return Counter(line for path in out.glob("epoch=*/*") for line in path.open())


def staged(root: Path) -> list[Path]:
    return sorted((root / "state" / "staged" / "counts").iterdir())


def is_whole(path: Path) -> bool:
    return digest_of(path.read_bytes()) == paths.parse_content_name(path.name)[2]


def test_a_consumer_that_writes_into_what_it_reads_does_not_reach_the_checkpoint(
    tmp_path: Path,
) -> None:
    out = ran(tmp_path)
    before = lines(out)
    for number, path in enumerate(sorted(out.glob("epoch=*/*"))):
        if number % 2:
            os.truncate(path, 1)
        else:
            path.open("r+b").write(b"edited in place")
    assert len(staged(tmp_path)) > 20 and all(map(is_whole, staged(tmp_path)))
    # The epochs that are kept can still be shown again, to a sink that has lost everything.
    shutil.rmtree(out)
    driver_of(counting(VALUES, jsonl(out)), DiskStore(tmp_path / "state"))
    again = lines(out)
    assert again and again <= before


def test_damage_to_staged_rows_does_not_show_in_what_was_published_and_is_found(
    tmp_path: Path,
) -> None:
    out = ran(tmp_path)
    before = lines(out)
    for path in staged(tmp_path):
        path.open("r+b").write(b"damaged")
    assert lines(out) == before
    shutil.rmtree(out)
    with pytest.raises(CorruptCheckpoint, match="is damaged: .* Restore the file from a copy"):
        driver_of(counting(VALUES, jsonl(out)), DiskStore(tmp_path / "state"))
    assert not list(out.glob("epoch=*"))


def test_no_file_of_a_checkpoint_or_an_output_has_a_second_name(
    tmp_path: Path,
) -> None:
    """Log, segments, merges, staged rows, claims, marks: all of them."""
    ran(
        tmp_path,
        limited(collect_every_epochs=1, merge_segments_min=2, ride_bytes_max=0),
        retain_epochs=3,
    )
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    kinds = {path.relative_to(tmp_path).parts[1] for path in found}
    assert {"log", "state", "staged", "IDENTITY", "_high_water", "_identity"} <= kinds
    assert {path for path in found if path.is_symlink() or path.stat().st_nlink > 1} == set()


class Noting(Source):
    """A source that notes, in its workspace, how often it was prepared."""

    def __init__(self) -> None:
        self.timing = Timing(timestamp="at")
        self.bounded = True

    def prepare(self, workspace: Workspace) -> None:
        before = workspace.store.read("notes") if workspace.store.list("") else b""
        workspace.store.write("notes", before + b"prepared\n")

    def splits(self) -> Sequence[str]:
        return ("all",)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        return Range(start, min(start + records, 10), 10 - start, last=start + records >= 10)

    def read(self, split: str, range: Range) -> Reading:
        values = [{"at": n} for n in np.arange(range.start, range.end).tolist()]
        return Reading(np.arange(range.start, range.end, dtype=np.int64), values=values)


def test_a_replay_does_not_write_through_into_the_workspace_of_a_source(tmp_path: Path) -> None:
    def pipeline() -> Pipeline:
        p = Pipeline("noting")
        p.read("in", Noting()).write(sinks.memory())
        return p

    driver = driver_of(pipeline().freeze(), DiskStore(tmp_path))
    run(driver)
    driver.close()
    (notes,) = tmp_path.glob("sources/in/notes")
    assert notes.read_text() == "prepared\n"
    assert replay(pipeline(), checkpoint=str(tmp_path), epoch=1).equal
    assert notes.read_text() == "prepared\n"
