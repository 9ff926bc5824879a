"""Outages: told from errors, waited out, told, and over by themselves."""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.engine.support import counting, driver_of, follower_of
from tests.unit.engine.test_delivery import Diary, epochs_of
from tests.unit.systems import Stopwatch, limited

from headrace.engine.job import Job
from headrace.engine.leading.loop import run_loop
from headrace.engine.leading.retry import Retry, StopAsked
from headrace.errors import (
    CorruptCheckpoint,
    EpochFailed,
    Fenced,
    IncompatibleState,
    SinkError,
    SourceError,
    StoreError,
    UserCodeError,
)
from headrace.limits import LIMITS
from headrace.plan.decisions.transient import QUICK_TRIES, delay_s, is_outage, part_of
from headrace.plan.progress import Notice
from headrace.sinks import foreach, jsonl
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

VALUES = [i * 7 % 10 for i in range(60)]


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        StoreError("cannot write"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.ESTALE, "stale"),
        PermissionError(errno.EACCES, "no"),
        ConnectionRefusedError("no"),
        TimeoutError("slow"),
        caused(SinkError("refused"), ConnectionResetError("gone")),
        caused(SinkError("refused"), caused(SinkError("inner"), OSError(errno.EIO, "io"))),
        caused(SinkError("refused"), sqlite3.OperationalError("database is locked")),
        caused(SinkError("refused"), StoreError("cannot write")),
    ],
    ids=repr,
)
def test_refusals_of_something_outside_are_outages(error: Exception) -> None:
    assert is_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        Fenced("newer"),
        CorruptCheckpoint("damaged"),
        IncompatibleState("another's"),
        UserCodeError("a hook raised"),
        SourceError("gone"),
        EpochFailed("often"),
        SinkError("belongs to another checkpoint"),
        caused(SinkError("refused"), ValueError("no")),
        caused(SinkError("refused"), caused(CorruptCheckpoint("damaged"), OSError(errno.EIO, ""))),
        FileNotFoundError(errno.ENOENT, "nothing"),
        ValueError("no"),
        caused(UserCodeError("a hook raised"), ConnectionError("in user code")),
    ],
    ids=repr,
)
def test_what_somebody_has_to_mend_is_no_outage(error: Exception) -> None:
    assert not is_outage(error)


def test_the_part_that_is_away_is_named() -> None:
    assert part_of(StoreError("")) == "checkpoint"
    assert part_of(SinkError("")) == "sink"


def test_tries_are_quick_at_first_then_slower_and_never_slower_than_half_a_minute() -> None:
    plain = [delay_s(tries, 0.5) for tries in range(1, 40)]
    assert sum(plain[:QUICK_TRIES]) < 5
    assert plain[QUICK_TRIES:] == sorted(plain[QUICK_TRIES:])
    assert max(plain) == LIMITS.retry_slowest_s
    assert delay_s(30, 0.0) < delay_s(30, 0.5) < delay_s(30, 0.999) <= LIMITS.retry_slowest_s * 1.25


class Patient:
    """A patience whose waits take no time, and the notices it gave."""

    def __init__(self, give_up_s: float | None = None) -> None:
        self.told: list[tuple[str, str]] = []
        self.watch = Stopwatch()
        self.stopping = Waited(self.watch)
        self.patience = Retry(
            give_up_s,
            self.stopping,
            lambda kind, text: self.told.append((kind, text)),
            system=self.watch,
        )


class Waited(threading.Event):
    """To wait for it takes no time but that of a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self.watch = watch

    def wait(self, timeout: float | None = None) -> bool:
        self.watch.sleep(timeout or 0.0)
        return self.is_set()


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [times]

    def act() -> str:
        if left[0]:
            left[0] -= 1
            raise error
        return "done"

    return act


def test_a_hiccup_is_not_told() -> None:
    patient = Patient()
    assert patient.patience.through(failing(QUICK_TRIES, StoreError("no"))) == "done"
    assert patient.told == []
    assert patient.patience.outage is None


def test_an_outage_is_told_once_with_its_error_and_so_is_its_end() -> None:
    patient = Patient()
    assert patient.patience.through(failing(50, StoreError("stale handle"))) == "done"
    (away, why), (back, then) = patient.told
    assert (away, back) == ("away", "back")
    assert "the checkpoint has been unavailable since" in why and "stale handle" in why
    assert "the checkpoint is back after" in then
    assert patient.watch.now_s > 40 * 20


def test_it_gives_up_after_the_time_allowed_and_not_before() -> None:
    patient = Patient(give_up_s=600)
    with pytest.raises(StoreError, match=r"stale handle \(given up after 600 s\)"):
        patient.patience.through(failing(10_000, StoreError("stale handle")))
    at_once = Patient(give_up_s=0)
    with pytest.raises(StoreError, match="stale handle$"):
        at_once.patience.through(failing(1, StoreError("stale handle")))


def test_a_stop_ends_the_wait_and_a_newer_driver_too() -> None:
    patient = Patient()
    patient.stopping.set()
    with pytest.raises(StopAsked):
        patient.patience.through(failing(9, StoreError("")))
    patient = Patient()

    def overtaken() -> None:
        raise Fenced("newer")

    patient.patience._check = overtaken
    with pytest.raises(Fenced):
        patient.patience.through(failing(9, StoreError("")))


# Whole runs, with things really away ----------------------------------------


_SHORT = {"retry_quick_s": 0.002, "retry_slow_s": 0.02, "retry_slowest_s": 0.05}
QUICK = limited(**_SHORT, log_puts_max=2)
"""Waits are short, so that outages can be."""
QUICK_FILES = limited(**_SHORT, log_puts_max=2, ride_bytes_max=0)
"""The same where nothing rides in commits."""


class Told:
    """Notices as they come."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def __call__(self, notice: Notice) -> None:
        self.notices.append(notice)

    @property
    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.notices]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def job_of(topology, store, told: Told, **options: object) -> Job:
    return Job(follower_of(topology, store, give_up_s=None, on_notice=told, **options))


@pytest.mark.parametrize("where", ["before-commit-write", "before-job", "before-plan-write"])
def test_a_checkpoint_that_is_moved_away_and_back_is_waited_for(tmp_path: Path, where: str) -> None:
    from headrace import failpoints

    here, there = tmp_path / "checkpoint", tmp_path / "elsewhere"
    diary, told, reached = Diary(), Told(), [0]

    def vanish() -> None:
        reached[0] += 1
        if reached[0] == (1 if "plan" in where else 4):
            here.rename(there)

    failpoints.arm(where, vanish)
    try:
        job = job_of(counting(VALUES, diary), DiskStore(here, QUICK), told)
        until(lambda: job.status().phase == "waiting")
        outage = job.status().outage
        assert outage.part == "checkpoint" and str(here) in outage.error
        assert not here.exists(), "nothing is made anew in its place"
        there.rename(here)
        summary = job.wait(60)
    finally:
        failpoints.disarm()
    assert summary.reason == "end"
    assert told.kinds == ["away", "back"]
    assert epochs_of(diary) == list(range(1, summary.epochs + 1))
    assert sum(rows for _, rows in diary.delivered) == len(VALUES)
    calm = Diary()
    run_loop(follower_of(counting(VALUES, calm)))
    assert diary.delivered == calm.delivered, "no plan was voided or cut otherwise"


def test_a_sink_whose_directory_vanishes_is_waited_for_and_loses_nothing(tmp_path: Path) -> None:
    out, told = tmp_path / "out", Told()

    def vanish(progress) -> None:
        if progress.epoch == 5:
            out.rename(tmp_path / "elsewhere")

    job = job_of(counting(VALUES, jsonl(out)), MemoryStore(QUICK), told, on_epoch=vanish)
    until(lambda: job.status().phase == "waiting")
    assert job.status().outage.part == "sink"
    assert job.status().epoch == 6, "the epoch is committed, and the next does not begin"
    (tmp_path / "elsewhere").rename(out)
    assert job.wait(60).reason == "end"
    assert told.kinds == ["away", "back"]
    lines = [line for path in sorted(out.glob("epoch=*/*")) for line in path.open()]
    assert len(lines) == len(VALUES)


def test_a_function_that_cannot_reach_its_system_is_called_again_until_it_can(
    tmp_path: Path,
) -> None:
    told, seen, refusals = Told(), [], [0]

    def send(rows, epoch: int) -> None:
        if epoch == 4 and refusals[0] < 12:
            refusals[0] += 1
            raise ConnectionRefusedError(f"nobody listens ({refusals[0]})")
        seen.append((epoch, rows.num_rows))

    job = job_of(counting(VALUES, foreach(send)), DiskStore(tmp_path, QUICK), told)
    assert job.wait(60).reason == "end"
    assert told.kinds == ["away", "back"]
    assert "nobody listens" in told.notices[0].text
    assert [epoch for epoch, _ in seen] == list(range(1, 21)), "each once, in order"
    assert sum(rows for _, rows in seen) == len(VALUES)


def test_a_function_that_is_wrong_stops_the_run_at_once(tmp_path: Path) -> None:
    def wrong(rows, epoch: int) -> None:
        raise KeyError("column")

    job = job_of(counting(VALUES, foreach(wrong)), DiskStore(tmp_path, QUICK), Told())
    with pytest.raises(SinkError, match="KeyError"):
        job.wait(60)


class Full(MemoryStore):
    """A store that is full for some writes: of segments, from tasks, too."""

    def __init__(self) -> None:
        super().__init__(QUICK_FILES)
        self.full = 0
        self.refused: list[str] = []

    def write(self, name: str, data: bytes) -> None:
        if self.full and name.startswith("state/"):
            self.full -= 1
            self.refused.append(name)
            raise StoreError(f"cannot write {name}: the disk is full")
        super().write(name, data)


def test_a_task_that_cannot_write_is_run_again_by_the_same_plan() -> None:
    store, told, diary = Full(), Told(), Diary()

    def fill(progress) -> None:
        if progress.epoch == 3:
            store.full = 20

    job = job_of(counting(VALUES, diary), store, told, on_epoch=fill)
    assert job.wait(60).reason == "end"
    assert len(store.refused) == 20 and told.kinds == ["away", "back"]
    assert {name.split("/")[2][:12] for name in store.refused} == {"000000000004"}
    kinds = [b'"kind":"void"' in data for name, data in store.files.items() if "log/" in name]
    assert kinds and not any(kinds)
    assert epochs_of(diary) == list(range(1, 22))


def test_a_refusal_that_a_task_could_not_report_is_found_in_what_spark_says() -> None:
    told, diary, store = Told(), Diary(), MemoryStore(QUICK)
    follower = follower_of(counting(VALUES, diary), store, give_up_s=None, on_notice=told)
    left = [10]

    def disturb(task, reports):
        if task.plan.epoch == 2 and left[0]:
            left[0] -= 1
            raise RuntimeError(
                "Job aborted: Traceback (most recent call last): ...\n"
                "headrace.errors.StoreError: cannot read work/2-order: stale file handle\n\tat x"
            )
        return reports

    follower.substrate.disturb = disturb
    assert Job(follower).wait(60).reason == "end"
    assert told.kinds == ["away", "back"] and "stale file handle" in told.notices[0].text
    assert epochs_of(diary) == list(range(1, 22))


def test_a_stop_during_an_outage_ends_the_run_cleanly_and_the_next_goes_on(tmp_path: Path) -> None:
    here, there = tmp_path / "checkpoint", tmp_path / "elsewhere"
    diary, told = Diary(), Told()

    def vanish(progress) -> None:
        if progress.epoch == 4:
            here.rename(there)

    job = job_of(counting(VALUES, diary), DiskStore(here, QUICK), told, on_epoch=vanish)
    until(lambda: job.status().phase == "waiting")
    summary = job.stop()
    assert summary is not None and summary.reason == "stopped"
    there.rename(here)
    assert job_of(counting(VALUES, diary), DiskStore(here, QUICK), Told()).wait(60).reason == "end"
    assert epochs_of(diary) == list(range(1, 22))
    assert sum(rows for _, rows in diary.delivered) == len(VALUES)


def test_a_driver_overtaken_while_its_sink_is_away_notices_and_stops() -> None:
    diary, store = Diary(), MemoryStore(QUICK)

    class Gone(Diary):
        def deliver(self, delivery) -> None:
            raise SinkError("away") from ConnectionError("away")

    gone = Gone()
    job = job_of(counting(VALUES, gone), store, Told())
    until(lambda: job.status().phase == "waiting")
    driver_of(counting(VALUES, diary), store)
    with pytest.raises(Fenced):
        job.wait(60)


def test_a_run_that_somebody_pauses_holds_after_its_epoch_and_goes_on_when_asked() -> None:
    told, diary = Told(), Diary()
    holder: list[Job] = []
    ready = threading.Event()

    def pause(progress) -> None:
        ready.wait(60)
        if progress.epoch == 3:
            holder[0].pause()

    job = job_of(counting(VALUES, diary), MemoryStore(), told, on_epoch=pause)
    holder.append(job)
    ready.set()
    until(lambda: job.status().phase == "paused")
    assert epochs_of(diary) == [1, 2, 3]
    time.sleep(0.05)
    assert epochs_of(diary) == [1, 2, 3]
    job.resume()
    assert job.wait(60).reason == "end"
    assert epochs_of(diary) == list(range(1, 22))
    assert told.kinds == ["paused", "resumed"]


def test_opening_fails_at_once_whatever_the_patience(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("mine")
    job = job_of(counting(VALUES), DiskStore(tmp_path / "checkpoint"), Told())
    with pytest.raises((StoreError, OSError)):
        job.wait(60)
