"""A hook that runs too long is stopped, and is then a hook that raised."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headrace import Computation, InvalidPipeline, Pipeline, UserCodeError, sources, state, to
from headrace.testing import Harness
from headrace.worker.watching import watchdog
from headrace.worker.watching.watchdog import HookWatch, Interrupt, blamed, error_of, watching

LONG_S = 60.0


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def swallow(seconds: float) -> None:
    """Code that catches whatever comes."""
    try:
        busy(seconds)
    except Exception:
        busy(seconds)


class Slow(Computation):
    """Counts; a record may tell it to take its time."""

    count: int = state(0)

    def process_record(self, record, ctx):
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count})
        if record.value.get("sleep"):
            time.sleep(LONG_S)
        if record.value.get("busy"):
            busy(LONG_S)
        if record.value.get("swallow"):
            swallow(LONG_S)
        if record.value.get("timer"):
            ctx.set_timer("t", after="1m")

    def process_timer(self, timer, ctx):
        time.sleep(LONG_S)


class Table(Computation):
    def process_table(self, table, ctx):
        time.sleep(LONG_S)


class Keyless(Computation):
    def process_record(self, record, ctx):
        if record.value.get("sleep"):
            time.sleep(LONG_S)
        ctx.produce(record.value)


class Setup(Computation):
    def setup(self):
        time.sleep(LONG_S)

    def process_record(self, record, ctx):
        pass


def pipeline(computation: type[Computation], key: Any = "key", **options: Any) -> Pipeline:
    p = Pipeline("slow")
    p.read("in", sources.memory([]))
    options = {"timeout": "300ms", **options}
    p.compute(computation, inputs={"in": key}, outputs="out", **options)
    return p


def quick(key: str) -> dict[str, Any]:
    return {"key": key}


@pytest.mark.parametrize("how", ["sleep", "busy", "swallow"])
def test_a_hook_that_hangs_stops_the_pipeline_with_computation_key_and_record(how: str) -> None:
    began = time.monotonic()
    with (
        pytest.raises(UserCodeError) as stopped,
        Harness(pipeline(Slow), slots=1, twice=False) as h,
    ):
        h.send("in", quick("a"), {"key": "b", how: True})
    said = str(stopped.value)
    assert "computation 'Slow', key 'b', record {'key': 'b'" in said
    assert "the hook ran longer than timeout=0.3s" in said
    assert f"in {'busy' if how != 'sleep' else 'process_record'}" in said, "where it was"
    assert time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize("how", ["sleep", "busy"])
def test_with_errors_to_a_stream_the_record_goes_there_and_all_others_count(how: str) -> None:
    with Harness(pipeline(Slow, errors=to("dead")), slots=1) as h:
        h.send("in", quick("a"), quick("b"), {"key": "b", how: True}, quick("b"), quick("c"))
        (dead,) = h.read("dead")
        assert (dead["key"], dead["value"]) == ("b", {"key": "b", how: True})
        assert dead["error"] == "HookTimeout: the hook ran longer than timeout=0.3s"
        assert dead["traceback"] == "", "nothing that would differ from try to try"
        assert h.state("Slow", "b").count == 2
        counts = sorted((row["key"], row["count"]) for row in h.read("out"))
        assert counts == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]


def test_only_can_choose_timeouts() -> None:
    with Harness(pipeline(Slow, errors=to("dead", only=TimeoutError)), slots=1, twice=False) as h:
        h.send("in", {"key": "b", "sleep": True})
        assert len(h.read("dead")) == 1


def test_a_timer_that_hangs_is_stopped_too() -> None:
    with Harness(pipeline(Slow, errors=to("dead")), slots=1, twice=False) as h:
        h.send("in", {"key": "a", "timer": True})
        h.advance("2m")
        (dead,) = h.read("dead")
        assert (dead["key"], "timeout=0.3s" in dead["error"]) == ("a", True)


def test_a_table_a_keyless_hook_and_setup_are_stopped_too() -> None:
    with (
        pytest.raises(UserCodeError, match=r"process_table ran longer than timeout=0.3s"),
        Harness(pipeline(Table), twice=False) as h,
    ):
        h.send("in", quick("a"))
    with Harness(pipeline(Keyless, None, errors=to("dead")), twice=False) as h:
        h.send("in", quick("a"), {"key": "b", "sleep": True}, quick("c"))
        assert [row["key"] for row in h.read("out")] == ["a", "c"]
        assert [row["value"]["key"] for row in h.read("dead")] == ["b"]
    with (
        pytest.raises(UserCodeError, match=r"setup\(\) of computation 'Setup' failed.*timeout"),
        Harness(pipeline(Setup), twice=False) as h,
    ):
        h.send("in", quick("a"))


def test_keys_that_run_at_once_in_threads_are_stopped_one_by_one() -> None:
    with Harness(pipeline(Slow, errors=to("dead"), concurrency=3), slots=1, twice=False) as h:
        h.send("in", quick("a"), {"key": "b", "busy": True}, {"key": "c", "busy": True}, quick("d"))
        assert sorted(row["key"] for row in h.read("dead")) == ["b", "c"]
        assert sorted(row["key"] for row in h.read("out")) == ["a", "d"]


def test_many_short_hooks_are_never_stopped_however_long_they_take_together() -> None:
    class Short(Computation):
        count: int = state(0)

        def process_record(self, record, ctx):
            busy(0.02)
            self.count += 1

    with Harness(pipeline(Short, timeout="200ms"), slots=1, twice=False) as h:
        h.send("in", *[quick("a")] * 30, *[quick("b")] * 5)
        assert (h.state("Short", "a").count, h.state("Short", "b").count) == (30, 5)


def test_time_outside_of_hooks_does_not_count() -> None:
    node = pipeline(Slow).catalog.nodes["Slow"]
    with watching(HookWatch(node)) as watch:
        watch.begin()
        watch.turn = None
        time.sleep(1.0)
    assert not watch.told_to_stop


def test_a_watch_counts_looks_and_so_a_process_that_was_suspended_is_not_blamed() -> None:
    watch = HookWatch(pipeline(Slow).catalog.nodes["Slow"])
    watch.begin()
    assert not watch.looked(0.1), "the first look sees it for the first time"
    assert not watch.looked(0.1)
    assert not watch.looked(0.1)
    assert watch.looked(0.11)
    watch.begin()
    assert not watch.looked(0.1), "another hook"


def test_what_is_told_of_other_errors_is_the_error_itself() -> None:
    watch = HookWatch(pipeline(Slow).catalog.nodes["Slow"])
    error = ValueError("no")
    assert error_of(error, watch) is error
    assert isinstance(error_of(Interrupt(), watch), TimeoutError)
    with pytest.raises(KeyboardInterrupt):
        error_of(KeyboardInterrupt(), watch)


def test_a_pipeline_without_timeouts_has_no_watchdog() -> None:
    with Harness(pipeline(Slow, timeout=None)) as h:
        before = watchdog._dog._watches
        h.send("in", quick("a"))
        assert h.read("out") and before == []


def test_a_worker_that_had_to_end_is_blamed_on_its_hook() -> None:
    crashed = "Python worker exited unexpectedly (crashed): "
    assert blamed(f"{crashed}{watchdog.STUCK} computation 'A', key 1: long\n at x") == (
        "computation 'A', key 1: long"
    )
    by_timer = f"{crashed}{watchdog.RUNNING} computation 'A'\nTimeout (0:00:14)!\n Thread 0x1"
    assert blamed(by_timer).startswith("computation 'A'")  # type: ignore[union-attr]
    assert blamed(f"{crashed}{watchdog.RUNNING} computation 'A'\nSegmentation fault") is None
    assert blamed("executor lost") is None


@pytest.mark.parametrize("timeout", ["1ms", "0s"])
def test_a_timeout_too_short_to_be_kept_is_refused(timeout: str) -> None:
    with pytest.raises(InvalidPipeline, match="at least 50ms"):
        pipeline(Slow, timeout=timeout)


def test_the_watchdog_lets_go_of_threads_that_have_ended() -> None:
    assert watchdog._dog._watches == []
    assert threading.active_count() < 50
