"""Finished splits leave the ledger for the record, and are never read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.support import Crash, die, follower_of, run
from tests.unit.systems import limited

from headrace import failpoints, sources
from headrace.engine.driver import finished_input
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.finished_input import to_merge
from headrace.engine.driver.follower import Follower
from headrace.engine.leading.loop import run_loop
from headrace.errors import CorruptCheckpoint, SourceError
from headrace.log.epochlog import EpochLog
from headrace.model.source import Range, Reading, Source, Timing
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.epoch import RecordFile
from headrace.sinks import memory as memory_sink
from headrace.store.disk import DiskStore

FEW = limited(sealed_rows_min=4)


class Folder:
    """A watched directory, a checkpoint, and what was read."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root, self.data = root, root / "in"
        self.data.mkdir()
        self.options = options
        self.sink = memory_sink()

    def put(self, *names: str) -> None:
        for name in names:
            (self.data / f".{name}").write_text(f"{name}\n")
            (self.data / f".{name}").rename(self.data / name)

    def driver(self, source: Source | None = None, **options: Any) -> Driver:
        return self.follower(source, **options).take_over()

    def follower(self, source: Source | None = None, **options: Any) -> Follower:
        pipeline = PipelineBuilder("folder")
        given = sources.text(self.data, watch=True, **self.options) if source is None else source
        pipeline.read("in", given).write(self.sink)
        store = DiskStore(self.root / "state", FEW)
        return follower_of(pipeline.freeze(), store, until="caught_up", **options)

    def rows(self) -> list[Any]:
        return list(self.sink.rows)

    def record(self) -> list[str]:
        return sorted(path.name for path in (self.root / "state" / "read" / "in").glob("*.arrow"))


@pytest.fixture(params=[False, True], ids=["by file", "by name"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Folder:
    return Folder(tmp_path, ordered_by_name=request.param)


def read(folder: Folder, driver: Driver, numbers: Sequence[int]) -> None:
    for number in numbers:
        folder.put(f"{number:03d}.txt")
        run(driver)


def test_finished_splits_leave_the_ledger_and_none_is_read_twice(folder: Folder) -> None:
    driver = folder.driver()
    sizes = []
    for number in range(40):
        read(folder, driver, [number])
        sizes.append(len(msgspec.json.encode(driver.ledger.splits)))
    assert max(sizes[20:]) <= max(sizes[:20]) + 20  # names and times get no longer
    assert driver.ledger.finished["in"].files and folder.record()
    again = folder.driver()
    assert again.ledger.finished == driver.ledger.finished
    read(folder, again, range(40, 50))
    assert folder.rows() == [f"{number:03d}.txt" for number in range(50)]


def test_files_of_the_record_are_merged_and_the_old_ones_collected(folder: Folder) -> None:
    driver = folder.driver(retain_epochs=2)
    read(folder, driver, range(70))
    named = {name.rpartition("/")[2] for name in driver.ledger.records()}
    assert len(named) <= 6  # 4, 8, 16, 32 rows
    assert named <= set(folder.record()) and len(folder.record()) < 20
    rows = [file.rows for file in driver.ledger.finished["in"].files]
    assert rows == sorted(rows)


@pytest.mark.parametrize(
    "point", ["after-record-write", "before-commit-write", "after-commit-write"]
)
def test_a_crash_around_the_commit_loses_and_doubles_nothing(folder: Folder, point: str) -> None:
    for crash in (1, 3, 6):
        driver = folder.driver()
        left = [crash]

        def die_then(left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                die()

        failpoints.arm(point, die_then)
        try:
            read(folder, driver, range(crash * 20, crash * 20 + 20))
        except Crash:
            pass
        failpoints.disarm()
        last = folder.driver()
        run(last)
        assert sorted(folder.rows()) == sorted(path.name for path in folder.data.iterdir())


def test_a_sealed_file_that_changes_is_refused_while_it_runs_and_at_every_start(
    folder: Folder,
) -> None:
    driver = folder.driver()
    read(folder, driver, range(20))
    (folder.data / "003.txt").write_text("other\n")
    with pytest.raises(SourceError, match=r"003\.txt has shrunk from 8 to 6 bytes"):
        run(driver)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"003\.txt has shrunk"):
            folder.driver()
    folder.driver(accept_changed=(str(folder.data / "003.txt"),))
    again = folder.driver()
    read(folder, again, range(20, 30))  # and the change is sealed, above what was known before
    read(folder, folder.driver(), range(30, 32))
    (folder.data / "003.txt").write_text("003.txt\n")
    with pytest.raises(SourceError, match=r"003\.txt has grown from 6 to 8 bytes"):
        folder.driver()


def test_a_sealed_file_that_comes_back_under_its_name_is_not_read_again(folder: Folder) -> None:
    driver = folder.driver()
    read(folder, driver, range(20))
    (folder.data / "003.txt").rename(folder.root / "aside")
    again = folder.driver()
    run(again)
    (folder.root / "aside").rename(folder.data / "003.txt")
    run(again)
    assert len(folder.rows()) == 20
    (folder.data / "003.txt").unlink()
    again = folder.driver()
    (folder.data / "003.txt").write_text("another\n")
    with pytest.raises(SourceError, match=r"003\.txt was rewritten|003\.txt has"):
        run(again)


def test_a_missing_file_of_the_record_is_told_before_anything_is_read(folder: Folder) -> None:
    read(folder, folder.driver(), range(20))
    for name in folder.record():
        (folder.root / "state" / "read" / "in" / name).unlink()
    with pytest.raises(CorruptCheckpoint, match="is missing from the checkpoint"):
        folder.driver()


class Days(Source):
    """Splits that come and end, and stay listed."""

    def __init__(self, days: int, **timing: Any) -> None:
        self.timing = Timing(timestamp=lambda value: value, **timing)
        self.bounded = False
        self.days = days

    def splits(self) -> Sequence[str]:
        return [f"day {day}" for day in range(self.days)]

    def plan(self, split: str, start: int, records: int) -> Range | None:
        return Range(0, 1, 1, last=True)

    def read(self, split: str, range: Range) -> Reading:
        return Reading([0], values=[int(split.split()[1]) * 1_000_000])


def test_a_source_may_go_on_to_list_what_has_left_the_ledger(tmp_path: Path) -> None:
    folder, source = Folder(tmp_path), Days(6)
    driver = folder.driver(source)
    run(driver)
    for more in range(7, 15):
        source.days = more
        run(driver)
    assert len(driver.ledger.splits["in"]) < 6
    run(folder.driver(source))
    assert folder.rows() == [day * 1_000_000 for day in range(14)]


def test_the_watermark_stays_where_finished_splits_had_brought_it(tmp_path: Path) -> None:
    folder, source = Folder(tmp_path), Days(9, expected=["day 2"])
    driver = folder.driver(source)
    run(driver)
    source.days = 10
    run(driver)
    assert "day 2" not in driver.ledger.splits["in"]
    assert driver.ledger.newest_of("in") == 9_000_000
    again = folder.driver(source)
    run(again)
    assert again.ledger.outs["in"] == 9_000_000  # day 2 is expected, and was read long ago
    assert again.ledger.newest_of("in") == 9_000_000


def test_runs_of_files_no_larger_than_what_they_join_are_merged() -> None:
    def sizes(rows: int, *known: int) -> int:
        return len(to_merge(rows, tuple(RecordFile(f"f{i}", n) for i, n in enumerate(known))))

    assert sizes(4) == 0
    assert sizes(4, 5) == 0
    assert sizes(4, 4, 8, 16) == 3
    assert sizes(4, 4, 9) == 1
    assert sizes(4, finished_input.MERGE_ROWS_MAX) == 0
    assert sizes(finished_input.MERGE_ROWS_MAX, 1) == 0


def test_a_large_directory_is_listed_bit_by_bit_and_its_end_is_found(tmp_path: Path) -> None:
    folder = Folder(tmp_path)

    def source() -> Source:
        found = sources.text(folder.data, watch=True)
        found.files.entries_at_once, found.files.look_s, found.files.look_share = 2, 0.0, 0.0
        return found

    names = [f"{number:03d}.txt" for number in range(8)]
    folder.put(*names)
    summary = run_loop(folder.follower(source()))
    assert summary.reason == "caught_up"
    folder.put("x.txt", "y.txt")
    run_loop(folder.follower(source()))
    assert sorted(folder.rows()) == sorted([*names, "x.txt", "y.txt"])


def test_an_accepted_change_is_an_entry_of_the_log(folder: Folder) -> None:
    read(folder, folder.driver(), range(6))
    (folder.data / "001.txt").write_text("1\n")
    folder.driver(accept_changed=(str(folder.data / "001.txt"),))
    kinds = [entry.kind for _, entry in EpochLog(DiskStore(folder.root / "state")).backwards()]
    assert kinds[0] == "accept"


def test_a_file_that_was_expected_and_is_in_the_record_is_not_missing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    driver = folder.driver(sources.text(folder.data, watch=True, expected=("000.txt",)))
    read(folder, driver, range(12))
    assert folder.record() and "000.txt" not in driver.ledger.splits["in"]
    (folder.data / "000.txt").unlink()
    assert not driver._injectors.offers(driver.ledger, 4, 1, 1)["in"].missing
