"""Slots with a limit: what is carried over, what is dropped, and what hooks see meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.support import driver_of, run

from headrace import Computation, Pipeline, agg, session, shed, sinks, sources, state, to, tumbling
from headrace.cli.status import lines_of
from headrace.engine.commands import Remote
from headrace.engine.driver.driver import Driver
from headrace.engine.overview import overview
from headrace.errors import IncompatibleState, InvalidPipeline, UserCodeError
from headrace.observe.progress import RecentRate, progress_line
from headrace.plan.decisions.next_step import Finish
from headrace.plan.options import check_options
from headrace.plan.progress import EpochProgress
from headrace.plan.summary import carried_rows
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


class See(Computation):
    """Writes down what it sees."""

    count: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.count += 1
        SEEN.append((record.value["n"], record.late, ctx.watermark))
        ctx.produce(record.value)

    def process_timer(self, timer: Any, ctx: Any) -> None:
        SEEN.append(("timer", timer.timestamp, ctx.final))


class Timed(See):
    """Also sets a timer."""

    def process_record(self, record: Any, ctx: Any) -> None:
        super().process_record(record, ctx)
        ctx.set_timer("t", at=record.timestamp + 1)


def numbers(times: list[int], **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "k": "k", "at": at, **more} for n, at in enumerate(times)]


def pipeline(
    records: list[Any],
    computation: type[Computation] = See,
    *,
    key: Any = "k",
    lateness: str = "0s",
    **options: Any,
) -> Pipeline:
    p = Pipeline("limits")
    p.read("in", sources.memory(records, timestamp="at", lateness=lateness))
    p.compute(computation, inputs={"in": key}, outputs="out", name="C", **options)
    p.stream("out").write(sinks.memory())
    return p


def started(p: Pipeline, limit: int | None = 1, **options: Any) -> Driver:
    """A driver whose only slot of C has this limit, if any."""
    given = {"slots": 1, "epoch_records": 1000, **options}
    driver = driver_of(p.freeze(), **given)
    limited = {} if limit is None else {"C/0": limit}
    driver.settings = msgspec.structs.replace(driver.settings, limited=limited)
    return driver


def steps(driver: Driver) -> list[list[Any]]:
    """What hooks see, epoch by epoch, to the end."""
    found = []
    for _ in range(200):
        before = len(SEEN)
        if isinstance(driver.step(), Finish):
            return found
        found.append(SEEN[before:])
    raise AssertionError("no end")


def test_a_slot_processes_the_first_records_and_the_next_epochs_the_rest() -> None:
    seen = steps(started(pipeline(numbers([10, 30, 20, 40, 50])), 2))
    assert [[n for n, *_ in epoch] for epoch in seen if epoch] == [[0, 1], [2, 3], [4]]
    assert not any(late for epoch in seen for _, late, _ in epoch)


def test_a_slot_with_the_limit_zero_waits() -> None:
    driver = started(pipeline(numbers([10, 20])), 0)
    driver.step()
    driver.step()
    assert SEEN == [] and carried_rows(driver.ledger) == 2
    driver.settings = msgspec.structs.replace(driver.settings, limited={})
    steps(driver)
    assert [n for n, *_ in SEEN] == [0, 1]


def test_a_timer_waits_for_older_records_that_wait() -> None:
    seen = steps(started(pipeline(numbers([10, 5, 7, 20]), Timed)))
    shown = [[s[0] if s[0] != "timer" else f"timer {s[1]}" for s in epoch] for epoch in seen]
    assert [epoch for epoch in shown if epoch] == [
        [0], [1, "timer 6"], [2, "timer 8"], [3], ["timer 21"],
    ]  # fmt: skip


def test_a_key_sees_its_own_watermark_while_records_of_it_wait() -> None:
    records = [*numbers([100, 110, 120]), {"n": 9, "k": "other", "at": 130}]
    driver = started(pipeline(records, key=lambda v: v["k"]), 1)
    seen = steps(driver)
    watermarks = [(n, watermark) for epoch in seen for n, _, watermark in epoch]
    # Each record of k waits for the ones before it; its key's time stands at the oldest of them.
    assert watermarks[:3] == [(0, 0), (1, 110), (2, 120)]
    assert watermarks[3][1] >= 130


def test_only_the_last_timer_of_a_key_sees_the_end() -> None:
    seen = steps(started(pipeline(numbers([10, 20, 30]), Timed)))
    timers = [s[1:] for epoch in seen for s in epoch if s[0] == "timer"]
    assert timers == [(11, False), (21, False), (31, True)]


@pytest.mark.parametrize(("late", "kept", "aside"), [("drop", [0, 1, 3], []), (None, None, [2])])
def test_what_to_do_with_late_records_is_decided_when_they_arrive(
    late: str | None, kept: list[int] | None, aside: list[int]
) -> None:
    p = Pipeline("limits")
    source = sources.memory(numbers([100, 110, 5, 120]), timestamp="at")
    p.read("in", source)
    policy = late or to("aside")
    p.compute(See, inputs={"in": "k"}, outputs="out", name="C", late=policy)
    p.stream("out").write(sinks.memory())
    if late is None:
        p.compute(See, inputs={"aside": "k"}, outputs="odd", name="Aside")
    driver = started(p, 0, epoch_records=2)
    for _ in range(3):
        driver.step()
    early = [n for n, *_ in SEEN]
    driver.settings = msgspec.structs.replace(driver.settings, limited={})
    steps(driver)
    if kept is not None:
        assert early == [] and [n for n, *_ in SEEN] == kept
    else:
        assert early == aside, "it goes aside at once"


def test_a_limit_counts_for_each_slot_alone() -> None:
    records = [{"n": n, "k": n % 7, "at": n} for n in range(40)]
    driver = started(pipeline(records), 1, slots=2)
    steps(driver)
    assert sorted(n for n, *_ in SEEN) == list(range(40))
    for key in range(7):
        mine = [n for n, *_ in SEEN if n % 7 == key]
        assert mine == sorted(mine)


def test_records_that_feed_back_wait_too() -> None:
    class Loop(Computation):
        rounds: int = state(0)

        def process_record(self, record: Any, ctx: Any) -> None:
            self.rounds += 1
            SEEN.append((record.value["n"], record.value["round"]))
            if record.value["round"] < 3:
                ctx.produce({**record.value, "round": record.value["round"] + 1})

    p = Pipeline("limits")
    p.read("in", sources.memory(numbers([10, 20, 30], round=1), timestamp="at"))
    p.stream("again", feedback=True)
    p.compute(Loop, inputs={"in": "k", "again": "k"}, outputs="again", name="C")
    steps(started(p, 1))
    assert sorted(SEEN) == [(n, r) for n in range(3) for r in (1, 2, 3)]


def test_a_percentile_watermark_counts_records_that_wait() -> None:
    """[Without them, the records of the next epoch alone decide: the watermark jumps to 1000, and
    those that wait for their turn hold nothing.]"""
    records = numbers([*range(100, 109), 1000])

    def after(limit: int | None) -> list[int]:
        p = pipeline(records, watermark=0.5, lateness="1s")
        driver = started(p, limit, epoch_records=9)
        found = []
        for _ in range(2):
            driver.step()
            found.append(driver.ledger.ins["C"])
        return found

    with_limit = after(0)
    assert with_limit[0] == after(None)[0] == 104
    assert after(None)[1] == 1000 and with_limit[1] < 1000


# Dropping ------------------------------------------------------------------


def test_shedding_drops_the_oldest_and_keeps_the_order() -> None:
    records = numbers([50, 10, 40, 20, 30])
    driver = started(pipeline(records, overload="shed"), 3)
    steps(driver)
    assert [n for n, *_ in SEEN] == [0, 2, 4]
    assert driver.ledger.counters.shed_of == {"in": 2}
    assert "2 of 'in'" in str(driver.summary("end"))


def test_a_function_says_what_is_kept() -> None:
    records = [{"n": n, "k": "k", "at": n, "score": s} for n, s in enumerate([3, 1, 2, 1, 3])]
    driver = started(pipeline(records, overload=shed(priority=lambda v: v["score"])), 3)
    steps(driver)
    assert [n for n, *_ in SEEN] == [0, 2, 4]


def test_of_equal_records_the_last_to_arrive_are_kept() -> None:
    driver = started(pipeline(numbers([7, 7, 7, 7]), overload="shed"), 2)
    steps(driver)
    assert [n for n, *_ in SEEN] == [2, 3]


def test_a_priority_function_that_fails_names_the_record() -> None:
    driver = started(pipeline(numbers([1, 2]), overload=shed(priority=lambda v: v["no"])), 1)
    with pytest.raises(UserCodeError, match=r"shed\(priority=\) of record .*'n': 0"):
        driver.step()


def test_a_run_may_shed_for_all_computations_that_say_nothing() -> None:
    records = numbers([1, 2, 3])
    driver = started(pipeline(records), 1, overload="shed")
    steps(driver)
    assert [n for n, *_ in SEEN] == [2]
    SEEN.clear()
    steps(started(pipeline(records, overload="carry"), 1, overload="shed"))
    assert [n for n, *_ in SEEN] == [0, 1, 2]


def test_dropped_records_of_windows_are_counted_one_by_one() -> None:
    p = Pipeline("limits")
    rows = [{"k": n % 3, "at": n} for n in range(30)]
    read = p.read("in", sources.memory(rows, timestamp="at"))
    read.key_by("k").window(tumbling("1s")).aggregate(n=agg.count()).named("sums")
    driver = started(p, None, overload="shed")
    name = next(iter(driver.topology.keyed))
    driver.settings = msgspec.structs.replace(driver.settings, limited={f"{name}/0": 1})
    run(driver)
    assert driver.ledger.counters.shed_of == {"in": 20}


# Operators ------------------------------------------------------------------


@pytest.mark.parametrize("window", [tumbling("20us"), session("7us")], ids=["tumbling", "session"])
@pytest.mark.parametrize("grace", ["0us", "15us"])
def test_windows_give_the_same_rows_with_limits(window: Any, grace: str) -> None:
    rows = [{"k": n * 7 % 4, "at": 3 * n + (n % 5), "n": n} for n in range(60)]

    def result(limit: int | None) -> list[Any]:
        p = Pipeline("limits")
        read = p.read("in", sources.memory(rows, timestamp="at", lateness="6us"))
        sums = read.key_by("k").window(window, grace=grace).aggregate(n=agg.count(), s=agg.sum("n"))
        sink = sinks.memory()
        sums.named("sums").write(sink)
        driver = started(p, None, epoch_records=9, slots=2)
        name = next(iter(driver.topology.keyed))
        if limit is not None:
            limited = {f"{name}/0": limit, f"{name}/1": limit + 1}
            driver.settings = msgspec.structs.replace(driver.settings, limited=limited)
        run(driver)
        driver.close()
        return sorted(map(repr, sink.rows))

    assert len(result(None)) > 8
    assert result(1) == result(2) == result(None)


# What users see -------------------------------------------------------------


@pytest.mark.parametrize(("name", "key"), [("Other", "k"), ("C", "n")])
def test_records_that_wait_are_not_lost_to_other_code(name: str, key: str) -> None:
    store = MemoryStore()
    driver = started(pipeline(numbers([1, 2, 3])), 1, store=store)
    driver.step()
    driver.close()
    p = Pipeline("limits")
    p.read("in", sources.memory(numbers([1, 2, 3]), timestamp="at"))
    p.compute(See, inputs={"in": key}, outputs="out", name=name)
    with pytest.raises(IncompatibleState, match="2 carried records of 'in' wait"):
        driver_of(p.freeze(), store, slots=1)


def test_options_of_overload_are_checked() -> None:
    with pytest.raises(InvalidPipeline, match='overload= is "carry", "shed" or shed'):
        pipeline([], overload="drop")
    with pytest.raises(InvalidPipeline, match="overload= is about slots"):
        pipeline([], key=None, overload="shed")
    with pytest.raises(InvalidPipeline, match="is a function of a value, not 3"):
        shed(priority=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidPipeline, match='overload= of a run is "carry" or "shed"'):
        check_options({"overload": "drop"})


def test_slow_slots_are_looked_for_after_twice_the_target_by_default() -> None:
    assert check_options({"epoch_target": "4s"}).straggler_s == 8.0
    assert check_options({"straggler_after": "3s"}).straggler_s == 3.0
    assert check_options({"straggler_after": None}).straggler_s is None


def test_status_and_progress_show_what_waits_and_what_was_dropped(tmp_path: Path) -> None:
    progress: list[EpochProgress] = []
    store = DiskStore(tmp_path / "carries")
    driver = started(pipeline(numbers([1, 2, 3])), 1, store=store, on_epoch=progress.append)
    driver.step()
    assert progress[0].carried == 2
    assert progress_line(progress[0], RecentRate(0.0)).endswith("| carried 2")
    driver.close()
    shown = "\n".join(lines_of(overview(Remote(str(tmp_path / "carries")), None)))
    assert "  carried     2 records, into the next epoch" in shown
    store = DiskStore(tmp_path / "sheds")
    steps(started(pipeline(numbers([1, 2, 3]), overload="shed"), 1, store=store))
    found = overview(Remote(str(tmp_path / "sheds")), None)
    lines = lines_of(msgspec.structs.replace(found, limits={"C/0": 1}))
    assert "  shed        2 records of 'in'" in lines
    assert "  limit       slot C/0: 1 record per epoch" in lines
