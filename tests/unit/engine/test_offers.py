"""What sources offer: shares, waiting splits, the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.engine.driver.injectors import Injectors
from headrace.model.source import Range, Reading, Source, Timing
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.epoch import SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.watermarks import Mark
from headrace.store.memory import MemoryStore

NOW = 10**9


class Splits(Source):
    """Splits with so many records each; None: nothing now."""

    def __init__(self, available: dict[str, int | None], **timing) -> None:
        self.timing = Timing(**timing)
        self.available = available
        self.settled: list[tuple[str, int]] = []

    def splits(self) -> Sequence[str]:
        return list(self.available)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        count = self.available[split]
        return None if count is None else Range(start, start + min(count, records), records)

    def read(self, split: str, range: Range) -> Reading:
        raise AssertionError("planning reads nothing")

    def settle(self, split: str, position: int) -> None:
        self.settled.append((split, position))


def sources_of(source: Source) -> Injectors:
    pipeline = PipelineBuilder("p")
    pipeline.read("s", source)
    return Injectors(pipeline.freeze(), MemoryStore(), None)


def offered(source: Source, known: dict[str, SplitState] | None = None, wall: int = NOW):
    ledger = Ledger(splits={"s": known or {}})
    return sources_of(source).offers(ledger, 100, 2, wall)["s"]


def at(mark: int, *, finished: bool = False, news: int = NOW) -> SplitState:
    return SplitState(7, Mark(None if finished else mark, mark), finished, news)


def test_splits_share_an_epoch_and_go_on_where_they_were() -> None:
    offer = offered(Splits({"a": 1000, "b": 1000, "c": None}), {"a": at(5)})
    assert {s: r[0].end - r[0].start for s, r in offer.ranges.items()} == {"a": 33, "b": 33}
    assert offer.ranges["a"][0].start == 7 and offer.ranges["b"][0].start == 0
    assert not offer.ended


class Known(Splits):
    """It can say how far its splits reach."""

    def reaches(self, split: str) -> int | None:
        return self.available[split]


def test_an_offer_says_about_how_many_records_it_leaves() -> None:
    assert offered(Splits({"a": 1000})).left is None
    assert offered(Known({"a": 1000, "b": 30, "c": None})).left == 1000 - 33
    assert offered(Known({"a": 1000}), {"a": at(5)}).left == 1000 - 7 - 100
    assert offered(Known({"a": 100})).left == 0
    assert offered(Known({})).left == 0


def test_a_bounded_source_has_ended_when_all_its_splits_are_finished() -> None:
    source = Splits({"a": None, "b": None})
    assert not offered(source, {"a": at(5, finished=True)}).ended
    offer = offered(source, {"a": at(5, finished=True), "b": at(6, finished=True)})
    assert offer.ended and offer.splits == {}


def test_a_source_with_an_expected_split_that_never_came_has_not_ended() -> None:
    source = Splits({"a": None}, expected=["b"])
    known = {"a": at(5, finished=True)}
    assert not offered(source, known).ended
    assert not offered(source, {**known, "b": at(3)}).ended
    assert offered(source, {**known, "b": at(3, finished=True)}).ended


def test_an_unbounded_source_never_ends() -> None:
    source = Splits({})
    source.bounded = False
    assert not offered(source).ended


def test_splits_too_far_ahead_wait_and_the_slowest_never_does() -> None:
    source = Splits({"slow": 10, "near": 10, "far": 10}, max_skew="1s")
    known = {"slow": at(0), "near": at(1_000_000), "far": at(1_000_001)}
    assert set(offered(source, known).ranges) == {"slow", "near"}
    everyone_far = {"slow": at(5 * 10**6), "near": at(9 * 10**6), "far": at(9 * 10**6)}
    assert set(offered(source, everyone_far).ranges) == {"slow"}


def test_a_split_that_has_not_begun_counts_with_its_lower_bound() -> None:
    class Bounded(Splits):
        def low_watermark(self, split: str, position: int) -> int | None:
            return 8_000_000 if split == "new" else None

    source = Bounded({"new": None, "old": 10}, max_skew="1s")
    assert set(offered(source, {"old": at(8_500_000)}).ranges) == {"old"}
    assert set(offered(source, {"old": at(9_500_000)}).ranges) == set()


@pytest.mark.parametrize("begun", [True, False])
def test_an_idle_split_holds_nobody_back(begun: bool) -> None:
    source = Splits({"idle": None, "far": 10}, max_skew="1s", idle="1s")
    known = {"far": at(9_000_000, news=NOW)}
    if begun:
        known["idle"] = at(0, news=NOW)
    sources = sources_of(source)
    ledger = Ledger(splits={"s": known})
    assert set(sources.offers(ledger, 100, 2, NOW)["s"].ranges) == set()
    ledger.splits["s"]["far"] = at(9_000_000, news=NOW + 10**6)
    assert set(sources.offers(ledger, 100, 2, NOW + 10**6)["s"].ranges) == {"far"}


def test_sources_hear_of_every_committed_position_once() -> None:
    source = Splits({"a": 10})
    sources = sources_of(source)
    sources.settle(Ledger(splits={"s": {"a": at(5)}}))
    sources.settle(Ledger(splits={"s": {"a": at(5)}}))
    sources.settle(Ledger(splits={"s": {"a": SplitState(9, Mark(5, 5))}}))
    assert source.settled == [("a", 7), ("a", 9)]


class Honest(Splits):
    """Its ranges say how many records they have."""

    def plan(self, split: str, start: int, records: int) -> Range | None:
        count = self.available[split]
        return (
            None
            if count is None
            else Range(start, start + min(count, records), min(count, records))
        )


@pytest.mark.parametrize(
    ("available", "fills", "read"),
    [
        ({"a": 1000, "b": None, "c": None, "d": 2}, True, {"a": 98, "d": 2}),
        ({"a": 1000, "b": None, "c": None, "d": 2}, False, {"a": 25, "d": 2}),
        ({"a": 1000, "b": 1000, "c": None, "d": None}, True, {"a": 50, "b": 50}),
        ({"a": 1000, "b": 1000, "c": 1000, "d": None}, True, {"a": 25, "b": 25, "c": 25}),
        ({"a": 10, "b": 10, "c": None, "d": None}, True, {"a": 10, "b": 10}),
    ],
)
def test_busy_splits_read_what_quiet_ones_leave_of_an_epoch(available, fills, read) -> None:
    pipeline = PipelineBuilder("p")
    pipeline.read("s", Honest(available))
    injectors = Injectors(pipeline.freeze(), MemoryStore(), None, fills=fills)
    offer = injectors.offers(Ledger(splits={"s": {}}), 100, 1, NOW)["s"]
    assert {s: sum(r.records for r in parts) for s, parts in offer.ranges.items()} == read


def test_a_busy_source_reads_what_quiet_ones_leave_of_an_epoch() -> None:
    pipeline = PipelineBuilder("p")
    for name, count in (("busy", 1000), ("quiet", None), ("done", None)):
        pipeline.read(name, Honest({"0": count}))
    injectors = Injectors(pipeline.freeze(), MemoryStore(), None, fills=True)
    offers = injectors.offers(Ledger(), 90, 1, NOW)
    assert [r.records for r in offers["busy"].ranges["0"]] == [90]
