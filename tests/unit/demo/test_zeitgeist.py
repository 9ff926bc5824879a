"""Zeitgeist's computations, driven by hand: what each does with records, timers and the end."""

from collections.abc import Iterable
from typing import Any

from headrace import Computation
from headrace.demo.model import BUCKET, BUCKETS_PER_DAY, SPREAD_MIN, root, spike_limit
from headrace.demo.zeitgeist import DipDetector, SpikeDetector, WindowCounter
from headrace.model.record import Record, Timer

Row = dict[str, Any]


class Desk:
    """A stand-in for `ctx` and for the worker that calls the hooks of one key, in order."""

    key = "tea"

    def __init__(self, computation: Computation, **fields: Any) -> None:
        self.computation = computation
        self.final = False
        self.timers: dict[Any, int] = {}
        self.rows: list[tuple[str | None, Row, int | None]] = []
        for name, value in fields.items():
            setattr(computation, name, value)

    def produce(self, value: Row, *, to: str | None = None, timestamp: int | None = None) -> None:
        self.rows.append((to, value, timestamp))

    def set_timer(self, tag: Any = "", *, at: int) -> None:
        self.timers[tag] = at

    def record(self, timestamp: int, value: Row | None = None, stream: str = "queries") -> None:
        self.watermark(timestamp)
        self.computation.process_record(Record(value or {}, timestamp, self.key, stream), self)

    def watermark(self, timestamp: int) -> None:
        """Fires what is due, in time order."""
        while due := min(
            ((at, tag) for tag, at in self.timers.items() if at <= timestamp), default=None
        ):
            del self.timers[due[1]]
            self.computation.process_timer(Timer(due[1], due[0], "event"), self)

    def end(self) -> None:
        """The final watermark: timers that timers set no longer fire."""
        self.final = True
        for tag, at in sorted(self.timers.items(), key=lambda item: item[1]):
            self.computation.process_timer(Timer(tag, at, "event"), self)

    def values(self, to: str | None = None) -> list[Row]:
        return [value for port, value, _ in self.rows if port == to]


def counter() -> Desk:
    return Desk(WindowCounter(column="query"), bucket=None, count=0)


def counts(desk: Desk) -> list[tuple[int, int]]:
    return [(row["bucket"], row["count"]) for row in desk.values()]


def feed(desk: Desk, buckets: Iterable[tuple[int, int]]) -> None:
    """Gives a DipDetector (bucket, count) windows."""
    for bucket, count in buckets:
        value = {"query": "tea", "bucket": bucket, "count": count}
        desk.record((bucket + 1) * BUCKET - 1, value, "windows")


def test_a_bucket_is_told_when_the_watermark_passes_it_and_not_before() -> None:
    desk = counter()
    desk.record(5 * BUCKET)
    desk.record(6 * BUCKET - 1)
    desk.watermark(6 * BUCKET - 1)
    assert desk.rows == []
    desk.watermark(6 * BUCKET)
    assert desk.rows == [(None, {"query": "tea", "bucket": 5, "count": 2}, 6 * BUCKET - 1)]


def test_empty_buckets_are_told_while_a_key_is_known() -> None:
    desk = counter()
    desk.record(5 * BUCKET)
    desk.record(8 * BUCKET + 1)
    desk.watermark(10 * BUCKET)
    assert counts(desk) == [(5, 1), (6, 0), (7, 0), (8, 1), (9, 0)]


def test_the_end_of_the_input_tells_what_was_counted_but_proves_no_silence() -> None:
    desk = counter()
    desk.record(5 * BUCKET)
    desk.watermark(6 * BUCKET)
    desk.end()
    assert counts(desk) == [(5, 1)]

    desk = counter()
    desk.record(5 * BUCKET)
    desk.end()
    assert counts(desk) == [(5, 1)]


def test_records_that_wait_for_the_end_still_close_the_buckets_between_them() -> None:
    desk = counter()
    desk.record(5 * BUCKET)
    desk.final = True
    desk.timers.clear()
    desk.record(8 * BUCKET)
    desk.end()
    assert counts(desk) == [(5, 1), (6, 0), (7, 0), (8, 1)]


def test_the_same_class_counts_by_any_column() -> None:
    desk = Desk(WindowCounter(column="region"), bucket=None, count=0)
    desk.record(5 * BUCKET)
    desk.watermark(6 * BUCKET)
    assert desk.values() == [{"region": "tea", "bucket": 5, "count": 1}]


def test_a_day_is_learned_before_anything_is_reported() -> None:
    desk = Desk(DipDetector(), levels={}, spread=SPREAD_MIN)
    feed(desk, [(bucket, 40 if bucket % 2 else 0) for bucket in range(BUCKETS_PER_DAY)])
    assert desk.values("dips") == []
    assert len(desk.computation.levels) == BUCKETS_PER_DAY


def test_silence_where_yesterday_was_busy_is_a_dip() -> None:
    desk = Desk(DipDetector(), levels={}, spread=SPREAD_MIN)
    feed(desk, [(3, 40), (27, 0)])
    (dip,) = desk.values("dips")
    assert (dip["kind"], dip["query"], dip["start"]) == ("dip", "tea", 27 * BUCKET)
    assert dip["seen"] == 28 * BUCKET


def test_a_quiet_night_is_no_dip_if_nights_are_quiet() -> None:
    desk = Desk(DipDetector(), levels={}, spread=SPREAD_MIN)
    feed(desk, [(3, 2), (15, 90), (27, 0), (39, 85)])
    assert desk.values("dips") == []


def test_what_was_learned_is_expected_of_tomorrow() -> None:
    desk = Desk(DipDetector(), levels={}, spread=SPREAD_MIN)
    feed(desk, [(3, 40)])
    limit = spike_limit(root(40), SPREAD_MIN)
    assert desk.values("expectations") == [{"query": "tea", "bucket": 27, "limit": limit}]


def detector(limit: int) -> Desk:
    desk = Desk(SpikeDetector(), counts={}, limits={})
    desk.record(4 * BUCKET - 1, {"query": "tea", "bucket": 27, "limit": limit}, "expectations")
    return desk


def test_a_spike_is_reported_with_the_record_that_makes_it_one_and_only_once() -> None:
    desk = detector(limit=3)
    for second in range(10):
        desk.record(27 * BUCKET + second)
        assert len(desk.rows) == (second >= 3)
    (spike,) = desk.values()
    assert (spike["kind"], spike["start"], spike["limit"]) == ("spike", 27 * BUCKET, 3)
    assert spike["seen"] == 27 * BUCKET + 3


def test_an_expectation_that_comes_after_the_records_is_judged_as_well() -> None:
    desk = Desk(SpikeDetector(), counts={}, limits={})
    for second in range(10):
        desk.record(27 * BUCKET + second)
    desk.record(27 * BUCKET + 9, {"query": "tea", "bucket": 27, "limit": 3}, "expectations")
    assert [spike["start"] for spike in desk.values()] == [27 * BUCKET]


def test_without_an_expectation_nothing_is_a_spike() -> None:
    desk = Desk(SpikeDetector(), counts={}, limits={})
    for second in range(1_000):
        desk.record(27 * BUCKET + second)
    assert desk.rows == []


def test_a_bucket_leaves_nothing_behind() -> None:
    desk = detector(limit=3)
    desk.record(27 * BUCKET)
    desk.watermark(28 * BUCKET)
    assert (desk.computation.counts, desk.computation.limits) == ({}, {})
