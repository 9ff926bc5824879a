"""Every query of Nexmark gives the answer of DuckDB, however its input is cut and whatever dies.

`HEADRACE_NEXMARK_EVENTS=200000 pytest tests/unit/workloads/nexmark/test_queries.py` asks them of so
many events; each epoch then runs once and not twice, to save time.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.unit.workloads.nexmark.events import awkward, generated, write_events
from tests.unit.workloads.nexmark.oracle import SQL, Oracle, comparable

from headrace import Pipeline
from headrace.testing import Harness
from headrace.workloads.nexmark.events.reader import event_files, read_foreign
from headrace.workloads.nexmark.registry import QUERIES, pipeline
from headrace.workloads.nexmark.streams import Auction

SMALL = 1_200
EVENTS = int(os.environ.get("HEADRACE_NEXMARK_EVENTS", SMALL))
RATE = 60.0 if EVENTS == SMALL else 10_000.0
EPOCHS = 6

# Epoch -> slots. The driver that brings the first of them dies before its first commit.
RESCALES = {3: 5, 4: 3}
# Where drivers die, one after the other.
DEATHS = ("after-commit-write", "after-plan-write", "after-segment-write", "before-commit-write")

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    return [*generated(EVENTS, RATE), *awkward()]


@pytest.fixture(scope="module")
def oracle(events: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    file = tmp_path_factory.mktemp("nexmark") / "events.jsonl"
    write_events(file, events)
    return Oracle(file)


def asked(query: str, *, slots: int = 2) -> Harness:
    def auction(p: Pipeline) -> Auction:
        return Auction.of_events(p, read_foreign(p, event_files("events.jsonl")))

    return Harness(pipeline(query, auction), slots=slots, twice=EVENTS == SMALL, streams=[query])


def answer(query: str, h: Harness) -> Rows:
    """All rows or, if rows replace each other, the last of each key."""
    about = QUERIES[query]
    rows = h.read(query)
    assert all(tuple(row) == about.columns for row in rows)
    if about.key:
        rows = list({tuple(row[name] for name in about.key): row for row in rows}.values())
    return comparable([tuple(row.values()) for row in rows])


def test_every_query_but_the_one_by_the_clock_has_an_oracle() -> None:
    assert set(QUERIES) == {f"q{n}" for n in range(23)}
    assert set(SQL) == set(QUERIES) - {"q12"}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("query", SQL)
def test_in_one_epoch(query: str, events: list[dict[str, Any]], oracle: Oracle) -> None:
    with asked(query) as h:
        h.send("read", *events)
        h.end()
        found = answer(query, h)
    assert h.crashes == 0
    assert found == oracle.rows(query)
    assert found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("query", SQL)
def test_in_many_epochs_with_crashes_and_other_slots(
    query: str, events: list[dict[str, Any]], oracle: Oracle
) -> None:
    size = len(events) // EPOCHS + 1
    with asked(query) as h:
        for number, start in enumerate(range(0, len(events), size)):
            if number in RESCALES:
                h.rescale(RESCALES[number])
            h.send("read", *events[start : start + size])
            if number % 3 != 1:
                h.crash(at=DEATHS[number % len(DEATHS)])
        h.end()
        found = answer(query, h)
        assert h.epoch >= EPOCHS
    assert h.crashes >= 4
    assert found == oracle.rows(query)
