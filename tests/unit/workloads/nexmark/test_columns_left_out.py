"""Queries over Parquet files give the same rows whether unread columns are decoded or not."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import sinks, sources
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.plan.decisions.next_step import Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.worker.runtime import Runtime
from headrace.workloads.nexmark.events.generated import GeneratedEvents
from headrace.workloads.nexmark.events.generator import Generator
from headrace.workloads.nexmark.registry import QUERIES, pipeline
from headrace.workloads.nexmark.streams import Auction, read_events

EVENTS = 2_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated events in a Parquet file."""
    source = GeneratedEvents(Generator(1, 100.0), EVENTS)
    [split] = source.splits()
    planned = source.plan(split, 0, EVENTS)
    assert planned is not None
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    pq.write_table(pa.Table.from_batches([source.read(split, planned).columns]), path)
    return path


def rows_of(query: str, events: Path, *, whole: bool) -> list[str]:
    sink = sinks.memory()
    files = sources.parquet(str(events), timestamp="date_time", lateness="10s")
    made = pipeline(query, lambda p: Auction.of_events(p, read_events(p, files)), sink)
    topology, store = made.freeze(), MemoryStore()
    assert "events" in topology.columns_read
    if whole:
        topology.columns_read = {}
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    options: Any = Options(slots=1, background=False, until="end", epoch_records=700)
    driver = Follower(
        Setup(topology, fingerprint(topology.graph), store, substrate, options)
    ).take_over()
    while isinstance(driver.step(), Run):
        pass
    driver.close()
    return sorted(map(repr, sink.rows))


@pytest.mark.parametrize("query", sorted(set(QUERIES) - {"q12"}))  # q12 is by the wall clock
def test_rows_are_the_same(query: str, events: Path) -> None:
    rows = rows_of(query, events, whole=False)
    assert rows and rows == rows_of(query, events, whole=True)
