"""Input that changed after it was read: refused at every start, told, or accepted by name."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.engine.support import Crash, die, driver_of, follower_of, run

from headrace import failpoints, sources
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.leading.loop import run_loop
from headrace.engine.replay.replay import replay_epoch
from headrace.errors import SourceError
from headrace.model.source import Source
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.transient import is_outage
from headrace.sinks import jsonl
from headrace.store.disk import DiskStore

LINES = [f"line-{i}" for i in range(10)]


class Place:
    """A directory with input, a checkpoint and output."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "in" / "a.txt"
        self.file.parent.mkdir()

    def put(self, lines: list[str]) -> None:
        self.file.write_text("".join(f"{line}\n" for line in lines))

    def topology(self, source: Source | None = None) -> Topology:
        pipeline = PipelineBuilder("changes")
        given = sources.text(f"{self.root}/in/*.txt") if source is None else source
        pipeline.read("in", given).write(jsonl(self.root / "out"))
        return pipeline.freeze()

    def driver(self, source: Source | None = None, **options: Any) -> Driver:
        return driver_of(self.topology(source), DiskStore(self.root / "state"), **options)

    def follower(self, source: Source | None = None, **options: Any) -> Follower:
        return follower_of(self.topology(source), DiskStore(self.root / "state"), **options)

    def rows(self) -> list[Any]:
        files = sorted(self.root.glob("out/epoch=*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def told(self, source: Source, **options: Any) -> list[str]:
        """The notices of a run to the end."""
        found: list[Any] = []
        run_loop(self.follower(source, on_notice=found.append, **options))
        return [notice.text for notice in found if notice.kind == "doubt"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# A file that is half read --------------------------------------------------


@pytest.mark.parametrize("met", [True, False])
def test_a_file_replaced_while_half_read_is_refused_at_every_start(place: Place, met: bool) -> None:
    place.put(LINES)
    driver = place.driver()
    run(driver, 1)
    if not met:
        driver.stop()
    place.put(LINES[::-1])
    if met:
        with pytest.raises(SourceError, match="a.txt has changed since it was first read"):
            run(driver)
    driver.close()
    for _ in range(2):
        with pytest.raises(SourceError, match=r"a\.txt was rewritten .*--accept-changed .*a\.txt"):
            place.driver()
    place.put(LINES)
    run(place.driver())
    assert place.rows() == LINES


def test_a_change_between_two_epochs_is_noticed_though_size_and_ends_are_the_same(
    place: Place,
) -> None:
    lines = [f"line {i:09d}" for i in range(2000)]
    place.put(lines)
    driver = place.driver(epoch_records=900)
    run(driver, 1)
    driver.stop()
    changed = [*lines]
    changed[500] = "LINE 000000500"
    place.put(changed)
    os.utime(place.file, (5, 5))
    with pytest.raises(SourceError, match="was rewritten since it was read up to"):
        run(driver)
    with pytest.raises(SourceError, match="was rewritten since it was read up to"):
        place.driver()
    # What lies behind is not read yet, and may be anything of that size.
    changed = [*lines]
    changed[1500] = "LINE 000001500"
    place.put(changed)
    run(place.driver(epoch_records=900))
    assert place.rows() == changed


def test_a_copy_of_the_old_file_is_the_old_file_whatever_its_time(place: Place) -> None:
    place.put(LINES)
    driver = place.driver()
    run(driver, 1)
    driver.stop()
    os.utime(place.file, (1, 1))
    again = place.driver()
    seen = again.ledger.splits["in"]["a.txt"].seen[""]
    assert seen.time_ns == 10**9  # remembered, so that it is not compared byte by byte again
    run(again)
    assert place.rows() == LINES


@pytest.mark.parametrize("crash", [None, "before-plan-write", "after-plan-write"])
def test_an_accepted_change_is_remembered_by_every_later_driver(
    place: Place, crash: str | None
) -> None:
    place.put(LINES)
    driver = place.driver()
    run(driver, 1)  # the next plan is open
    place.put([line.upper() for line in LINES])
    follower = place.follower(accept_changed=(str(place.file),))
    if crash is None:
        accepting = follower.take_over()
    else:
        failpoints.arm(crash, die)
        with pytest.raises(Crash):
            run(follower.take_over())
        failpoints.disarm()
        accepting = place.driver()  # without being asked again
    run(accepting)
    assert place.rows() == [*LINES[:3], *(line.upper() for line in LINES[3:])]


def test_reading_goes_on_with_the_first_record_after_the_old_position(place: Place) -> None:
    place.put(LINES)
    run(place.driver(), 1)  # 21 bytes
    place.put(["a line that is longer than it was", "second", "third"])
    run(place.driver(accept_changed=(str(place.file),)))
    assert place.rows() == [*LINES[:3], "second", "third"]


def test_a_file_that_is_shorter_than_what_was_read_is_at_its_end(place: Place) -> None:
    place.put(LINES)
    run(place.driver(), 2)
    place.put(["short"])
    run(place.driver(accept_changed=(os.path.relpath(place.file),)))
    assert place.rows() == LINES[:6]
    place.driver()


def test_files_in_an_order_keep_their_length_or_are_refused(place: Place) -> None:
    source = sources.text(place.file.parent, ordered_by_name=True)
    place.put(LINES)
    (place.file.parent / "b.txt").write_text("last\n")
    run(place.driver(source), 1)
    place.put([line.upper() for line in LINES])
    with pytest.raises(SourceError, match="a.txt was rewritten"):
        place.driver(source)
    place.put([*LINES, "more"])
    with pytest.raises(SourceError, match="a.txt has changed: it is not as long"):
        place.driver(source, accept_changed=(str(place.file),))
    place.put([line.upper() for line in LINES])
    run(place.driver(source, accept_changed=(str(place.file),)))
    assert place.rows() == [*LINES[:3], *(line.upper() for line in LINES[3:]), "last"]


def test_other_names_accept_nothing(place: Place) -> None:
    place.put(LINES)
    run(place.driver(), 1)
    place.put(LINES[::-1])
    with pytest.raises(SourceError, match="was rewritten"):
        place.driver(accept_changed=("in", "b.txt", str(place.root)))


@pytest.mark.parametrize("kind", ["csv", "gz", "parquet"])
def test_every_format_notices_a_change_of_what_was_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("a.csv" if kind == "csv" else f"a.{kind}")
    numbers = list(range(10))
    write: dict[str, Callable[[list[int]], object]] = {
        "csv": lambda ns: path.write_text("n\n" + "".join(f"{n}\n" for n in ns)),
        "gz": lambda ns: path.write_bytes(
            gzip.compress("".join(f"{n}\n" for n in ns).encode(), mtime=0)
        ),
        "parquet": lambda ns: pq.write_table(
            pa.table({"n": ns}), path, row_group_size=2, compression="none"
        ),
    }
    make = {
        "csv": lambda: sources.csv(path),
        "gz": lambda: sources.text(path),
        "parquet": lambda: sources.parquet(path),
    }[kind]
    write[kind](numbers)
    place = Place(tmp_path)
    driver = place.driver(make(), epoch_records=4)
    run(driver, 1)
    driver.stop()
    write[kind](numbers[::-1])
    if kind == "gz":  # one range: it is finished
        assert len(place.driver(make()).notices) == 1
    else:
        with pytest.raises(SourceError, match="was rewritten"):
            place.driver(make())
    write[kind](numbers)
    assert place.driver(make()).notices == []


def test_a_replay_checks_all_bytes_that_it_reads(place: Place) -> None:
    lines = [f"line {i:09d}" for i in range(2000)]
    place.put(lines)
    run(place.driver(epoch_records=3000))
    store = DiskStore(place.root / "state")
    assert replay_epoch(place.topology(), store, 1).equal
    lines[1000] = "LINE 000001000"
    place.put(lines)
    with pytest.raises(SourceError, match="what in/a.txt#00000 read has changed since"):
        replay_epoch(place.topology(), store, 1)


# A file that is finished ---------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("started_again", [False, True])
@pytest.mark.parametrize("then", ["one\ntwo\n", "two\n", ""])
def test_a_finished_file_of_a_watched_directory_must_not_change(
    place: Place, ordered: bool, started_again: bool, then: str
) -> None:
    source = sources.text(place.file.parent, watch=True, ordered_by_name=ordered)
    place.put(["one"])
    driver = place.driver(source, until="caught_up")
    run(driver)
    place.file.unlink()
    place.file.write_text(then)
    with pytest.raises(SourceError, match="complete, by a rename"):
        if started_again:
            driver.close()
            driver = place.driver(source, until="caught_up")
        run(driver)
    place.driver(source, accept_changed=(str(place.file),))
    again = place.driver(source, until="caught_up")
    (place.file.parent / "b.txt").write_text("three\n")
    run(again)
    assert place.rows() == ["one", "three"]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("watch", [False, True])
def test_a_file_seen_empty_is_read_when_it_is_filled(
    place: Place, ordered: bool, watch: bool
) -> None:
    source = sources.text(place.file.parent, watch=watch, ordered_by_name=ordered)
    place.put([])
    driver = place.driver(source, until="caught_up" if watch else "end")
    run(driver)
    assert place.rows() == []
    place.put(["one"])
    if not watch and ordered:  # a fixed set in an order cannot grow, and says so
        with pytest.raises(SourceError, match="a.txt was not there, or empty, when"):
            place.driver(source)
        return
    if not watch:
        driver.close()
        driver = place.driver(source)
    run(driver)
    assert place.rows() == ["one"]


def test_a_finished_file_that_goes_and_comes_back_is_not_read_twice(place: Place) -> None:
    source = sources.text(place.file.parent, watch=True)
    place.put(["one"])
    driver = place.driver(source, until="caught_up")
    run(driver)
    place.file.rename(place.root / "aside")
    run(driver)
    driver = place.driver(source, until="caught_up")
    (place.root / "aside").rename(place.file)
    run(driver)
    assert place.rows() == ["one"]


def test_a_bounded_file_that_changed_after_it_was_read_is_told(place: Place) -> None:
    place.put(["one"])
    source = sources.text(place.file)
    assert place.told(source) == []
    place.put(["one", "two"])
    (text,) = place.told(sources.text(place.file))
    assert "a.txt has grown from 4 to 8 bytes since it was read to its end" in text
    assert "not read" in text and "watch=True" in text
    place.put(["zzz"])
    (text,) = place.told(sources.text(place.file))
    assert "a.txt was rewritten since" in text
    (text,) = place.told(sources.text(place.file), accept_changed=(str(place.file),))
    assert "a.txt was rewritten, and that is accepted" in text
    assert place.told(sources.text(place.file)) == []
    assert place.rows() == ["one"]


# Lists, frames, generators -------------------------------------------------


def test_a_list_that_changed_after_it_was_read_is_told(place: Place) -> None:
    assert place.told(sources.memory(["a", "b"])) == []
    assert place.told(sources.memory(["a", "b"])) == []
    (text,) = place.told(sources.memory(["a", "b", "c"]))
    assert "the list given to sources.memory has grown from 2 to 3 values" in text
    (text,) = place.told(sources.memory(["a", "x"]))
    assert "has other values" in text and "--accept-changed in " in text
    (text,) = place.told(sources.memory(["a", "x"]), accept_changed=("in",))
    assert "has other values, and that is accepted" in text
    assert place.told(sources.memory(["a", "x"])) == []


def test_a_list_that_changed_while_it_was_read_is_refused(place: Place) -> None:
    run(place.driver(sources.memory(LINES)), 1)
    with pytest.raises(SourceError, match=r"has other values since it was read up to 3.*old list"):
        place.driver(sources.memory(LINES[::-1]))
    longer = [*LINES, "more"]
    run(place.driver(sources.memory(longer)))
    assert place.rows() == longer


def test_a_frame_that_changed_is_told_and_its_copy_is_read(place: Place) -> None:
    frame = pandas.DataFrame({"n": [1, 2, 3]})
    run(place.driver(sources.dataframe(frame), epoch_records=2), 1)
    other = pandas.DataFrame({"n": [1, 2, 4]})
    (text,) = place.told(sources.dataframe(other))
    assert "the frame given to sources.dataframe has other rows" in text
    assert place.rows() == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert place.told(sources.dataframe(frame.copy())) == []
    assert len(place.told(sources.dataframe(pa.table({"n": [1, 2]})))) == 1


def test_a_generator_with_other_arguments_is_refused_and_another_count_is_told(
    place: Place,
) -> None:
    driver = place.driver(sources.generate(make, count=5))
    run(driver, 1)
    driver.stop()
    with pytest.raises(SourceError, match="has changed from seed=0 .* to seed=1 .*Give it the old"):
        place.driver(sources.generate(make, count=5, seed=1))
    assert place.told(sources.generate(make, count=6)) == []
    (text,) = place.told(sources.generate(make, count=8))
    assert "has changed from 6 records to 8 records" in text
    assert place.rows() == list(range(6))


def make(number: int, random: Any) -> int:
    return number


def test_what_is_accepted_is_told_and_so_is_a_name_that_nothing_needs(place: Place) -> None:
    place.put(LINES)
    source = sources.text(f"{place.root}/in/*.txt")
    assert place.told(source) == []
    place.put(LINES[:3])
    [told] = place.told(source, accept_changed=(str(place.file),))
    assert "has shrunk" in told and "that is accepted" in told
    [told] = place.told(source, accept_changed=(str(place.file),))
    assert "nothing of that name has changed" in told


def test_input_that_at_most_once_skips_is_known_again_all_the_same(place: Place) -> None:
    def topology() -> Topology:
        pipeline = PipelineBuilder("changes", guarantee="at-most-once")
        pipeline.read("in", sources.text(f"{place.root}/in/*.txt")).write(jsonl(place.root / "out"))
        return pipeline.freeze()

    place.put(LINES)
    store = DiskStore(place.root / "state")
    driver = driver_of(topology(), store, epoch_records=3)
    run(driver, 1)
    failpoints.arm("after-job", die)
    with pytest.raises(Crash):
        run(driver)
    failpoints.disarm()
    run(driver_of(topology(), store, epoch_records=3), 1)
    place.put(LINES[::-1])
    with pytest.raises(SourceError, match="was rewritten"):
        driver_of(topology(), store, epoch_records=3)


@pytest.mark.parametrize("error", [OSError(116, "Stale file handle"), OSError(5, "I/O error")])
def test_an_error_while_files_are_looked_at_is_judged_by_the_run(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    place.put(LINES)
    source = sources.text(place.file.parent, watch=True)
    driver = place.driver(source, until="caught_up")
    run(driver)
    stat = os.stat

    def failing(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).endswith(".txt"):
            raise error
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(OSError) as raised:
        place.driver(source, until="caught_up")
    assert is_outage(raised.value)


def test_a_replay_blames_the_step_that_raises_and_not_the_file(place: Place) -> None:
    broken = threading.Event()

    def step(value: str) -> str:
        if broken.is_set():
            raise ValueError("the code has changed")
        return value

    pipeline = PipelineBuilder("changes")
    source = sources.text(f"{place.root}/in/*.txt")
    pipeline.read("in", source).map(step).named("mapped").write(jsonl(place.root / "out"))
    topology = pipeline.freeze()
    place.put(LINES)
    store = DiskStore(place.root / "state")
    run(driver_of(topology, store))
    broken.set()
    found = replay_epoch(topology, store, 1)
    assert not found.equal and "the code has changed" in str(found.differences)
