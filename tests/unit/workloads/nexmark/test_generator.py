"""Generated events: the same in every range, and in the proportions of Nexmark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.errors import HeadraceError, SourceError
from headrace.model.source import Range
from headrace.workloads.nexmark.events.columns import EVENT_COLUMNS
from headrace.workloads.nexmark.events.generated import SPLIT, GeneratedEvents
from headrace.workloads.nexmark.events.generator import FIRST_ID, LEAD, Generator, write_events

COUNT = 20_000


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return pa.Table.from_batches([Generator().events(0, COUNT)])


def of_kind(events: pa.Table, kind: str) -> pa.Table:
    return events.filter(pc.field("kind") == kind)


@pytest.mark.parametrize("first, end", [(0, 1), (7, 7), (49, 51), (1_234, 5_678), (19_999, 20_000)])
def test_any_range_can_be_made_alone(events: pa.Table, first: int, end: int) -> None:
    made = pa.Table.from_batches([Generator().events(first, end)])
    assert made.equals(events.slice(first, end - first))


def test_another_seed_makes_other_events_and_far_numbers_can_be_made(events: pa.Table) -> None:
    other = Generator(seed=2).events(0, 50)
    assert other.column("extra") != events.slice(0, 50).column("extra").chunk(0)
    far = Generator().events(10**12, 10**12 + 50).to_pylist()
    assert far[0]["id"] == FIRST_ID + 10**12 // 50


def test_kinds_come_in_their_proportion_and_times_rise(events: pa.Table) -> None:
    kinds = events.column("kind").to_pylist()
    assert Counter(kinds) == {"person": COUNT // 50, "auction": COUNT // 50 * 3, "bid": 18_400}
    assert kinds[:5] == ["person", "auction", "auction", "auction", "bid"]
    times = events.column("date_time").to_numpy()
    assert (np.diff(times) == 100).all()
    assert events.schema.names == EVENT_COLUMNS.names


def test_ids_are_those_of_people_and_auctions_around_the_event(events: pa.Table) -> None:
    people = of_kind(events, "person").column("id").to_pylist()
    assert people == list(range(FIRST_ID, FIRST_ID + COUNT // 50))
    opened = of_kind(events, "auction").column("id").to_pylist()
    assert opened == list(range(FIRST_ID, FIRST_ID + COUNT // 50 * 3))
    rows = [(n, row) for n, row in enumerate(events.to_pylist()) if row["kind"] == "bid"]
    leads = [row["auction"] - FIRST_ID - (n // 50 * 3 + 2) for n, row in rows]
    assert 0 < max(leads) <= LEAD
    assert min(leads) >= -200  # in flight, or the hot one of the hundred before
    assert max(row["bidder"] - FIRST_ID - n // 50 for n, row in rows) <= LEAD


def test_half_of_the_bids_are_hot_and_three_quarters_of_bidders_and_sellers(
    events: pa.Table,
) -> None:
    bids, auctions = of_kind(events, "bid"), of_kind(events, "auction")
    hot = {
        "auction": bids.column("auction").to_numpy() % 100 == 0,
        "bidder": bids.column("bidder").to_numpy() % 100 == 0,
        "seller": auctions.column("seller").to_numpy() % 100 == 0,
    }
    shares = {name: float(of.mean()) for name, of in hot.items()}
    assert shares == pytest.approx({"auction": 0.5, "bidder": 0.75, "seller": 0.75}, abs=0.03)
    assert set(auctions.column("category").to_pylist()) == {10, 11, 12, 13, 14}


def test_prices_channels_and_sizes_are_those_of_nexmark(events: pa.Table) -> None:
    bids = of_kind(events, "bid")
    prices = bids.column("price").to_numpy()
    assert prices.min() >= 100 and prices.max() <= 100_000_000
    assert np.median(np.log10(prices)) == pytest.approx(5, abs=0.1)
    channels = bids.column("channel").to_pylist()
    named = [c for c in channels if c in ("Google", "Facebook", "Baidu", "Apple")]
    assert len(named) / len(channels) == pytest.approx(0.5, abs=0.02)
    urls = [u for u, c in zip(bids.column("url").to_pylist(), channels) if c not in named]
    carried = [url for url in urls if "&channel_id=" in url]
    assert len(carried) / len(urls) == pytest.approx(0.9, abs=0.02)
    assert all(url.startswith("https://www.nexmark.com/") for url in urls)
    for kind, size in (("person", 200), ("auction", 500), ("bid", 130)):
        table = of_kind(events, kind)
        used = [sum(len(v) if isinstance(v, str) else 8 for v in row.values() if v is not None)
                - len(kind) for row in table.slice(0, 400).to_pylist()]  # fmt: skip
        assert sum(used) / len(used) == pytest.approx(size, rel=0.1)


def test_the_source_plans_reads_and_refuses_other_events() -> None:
    source = GeneratedEvents(Generator(), 100)
    plan = source.plan(SPLIT, 90, 1_000)
    assert plan is not None and (plan.start, plan.end, plan.last) == (90, 100, True)
    assert source.read(SPLIT, plan).columns.num_rows == 10
    with pytest.raises(SourceError, match="give the old seed and rate"):
        GeneratedEvents(Generator(seed=9), 100).read(SPLIT, plan)
    source.cut_from = 10
    parts = source.parallel(SPLIT, Range(0, 100, 100, True, plan.fingerprint), 3)
    assert [(part.start, part.end, part.last) for part in parts] == [
        (0, 33, False), (33, 66, False), (66, 100, True),
    ]  # fmt: skip


def test_a_rate_or_count_without_sense_is_refused() -> None:
    with pytest.raises(HeadraceError, match="the rate is above 0"):
        Generator(rate=0)
    with pytest.raises(HeadraceError, match="cannot be negative"):
        GeneratedEvents(Generator(), -1)


def test_written_events_are_those_that_are_generated(tmp_path: Path) -> None:
    file = tmp_path / "new" / "events.jsonl"
    write_events(file, Generator(), 120)
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written == list(Generator().rows(0, 120))
    assert [path.name for path in file.parent.iterdir()] == ["events.jsonl"]
