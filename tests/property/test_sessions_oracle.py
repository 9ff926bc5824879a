"""Sessions that are emitted early, and sessions with late records aside, against oracles.

The rows of a session are known by key, start and end. Whoever keeps the newest row of each,
and drops those that are withdrawn, must hold exactly the sessions that DuckDB finds. And
every record is in one session or in the stream of late ones, however the input is cut.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from headrace import Pipeline, agg, every, session, sources, to
from headrace.testing import CRASH, Harness

PHASES = (Phase.explicit, Phase.generate)
EXAMPLES = int(os.environ.get("HEADRACE_STEP_EXAMPLES", "6"))
GAP_US = 5
TIMES = st.lists(st.integers(0, 60), max_size=30)
CUTS = st.lists(st.integers(0, 30), max_size=8)
MODES = {"on_time": "on_time", "changes": "changes", "records": every(3), "time": every("4us")}


def records_of(times: list[int]) -> list[dict[str, Any]]:
    return [{"id": i, "k": "ab"[i % 3 == 0], "t": t} for i, t in enumerate(times)]


def epochs(records: list[dict[str, Any]], cuts: list[int]) -> list[list[dict[str, Any]]]:
    marks = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    return [records[start:end] for start, end in pairwise(marks) if start < end]


def sessions(records: list[dict[str, Any]]) -> dict[tuple[str, int, int], list[int]]:
    """What SQL says: who follows whom within less than the gap is in one session."""
    connection = duckdb.connect()
    kinds = pa.schema([("id", pa.int64()), ("k", pa.string()), ("t", pa.int64())])
    connection.register("r", pa.Table.from_pylist(records, kinds))
    found = connection.execute(
        "SELECT k, min(t), max(t) + $1, list(id ORDER BY id) FROM (SELECT *, sum(b) OVER "
        "(PARTITION BY k ORDER BY t RANGE UNBOUNDED PRECEDING) AS g FROM (SELECT *, "
        "CASE WHEN t - lag(t) OVER (PARTITION BY k ORDER BY t) < $1 THEN 0 ELSE 1 END AS b "
        "FROM r)) GROUP BY k, g",
        [GAP_US],
    )
    return {(k, start, end): ids for k, start, end, ids in found.fetchall()}


def standing(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], list[int]]:
    """What somebody holds who keeps the newest row of each session and drops withdrawn ones."""
    held: dict[tuple[str, int, int], list[int]] = {}
    for row in rows:
        window = (row["k"], row["window_start"], row["window_end"])
        if row["withdrawn"]:
            assert row["ids"] is None
            del held[window]  # only what stood is withdrawn, and only once
        else:
            held[window] = sorted(row["ids"])
    return held


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=EXAMPLES, phases=PHASES)
@given(times=TIMES, cuts=CUTS, crashes=st.booleans())
@example(times=[1, 14, 8, 25, 30, 3, 40], cuts=[1, 2, 3, 4, 5, 6], crashes=True)
def test_rows_that_stand_are_the_sessions_of_duckdb(
    mode: str, times: list[int], cuts: list[int], crashes: bool
) -> None:
    p = Pipeline("early")
    stream = p.read("in", sources.memory([], timestamp="t"))
    window = stream.key_by("k").window(session(f"{GAP_US}us"), grace="1s", emit=MODES[mode])
    window.aggregate(ids=agg.collect("id"))
    records, seen = records_of(times), 0
    with Harness(p) as h:
        for part in epochs(records, cuts):
            h.send("in", *part)
            if crashes and seen % 2:
                h.send("in", CRASH)
            seen += len(part)
            if mode == "changes":
                assert standing(h.read("in.aggregate")) == sessions(records[:seen])
        h.end()
        assert standing(h.read("in.aggregate")) == sessions(records)
        assert h.counts.get("in.aggregate.late", 0) == 0


def judged(
    parts: list[list[dict[str, Any]]], grace: int
) -> tuple[list[tuple[str, int, int, list[int]]], list[int]]:
    """Sessions and late records by the rule: an epoch's records are merged with the open sessions
    of their key, and what is then over by the watermark of the epoch before is late."""
    before, late = 0, []
    open_sessions: list[tuple[str, int, int, list[int]]] = []
    closed: list[tuple[str, int, int, list[int]]] = []
    for part in parts:
        loose = [(r["k"], r["t"], r["t"] + GAP_US, [r["id"]]) for r in part]
        fresh = {r["id"] for r in part}
        merged: list[tuple[str, int, int, list[int]]] = []
        for k, start, end, ids in sorted([*open_sessions, *loose], key=lambda s: s[:3]):
            if merged and merged[-1][0] == k and start < merged[-1][2]:
                _, first, last, others = merged.pop()
                start, end, ids = first, max(last, end), others + ids
            merged.append((k, start, end, ids))
        open_sessions = []
        for one in merged:
            if one[2] + grace <= before:
                assert fresh.issuperset(one[3])
                late += one[3]
            else:
                open_sessions.append(one)
        before = max([before, *(r["t"] for r in part)])
        closed += [s for s in open_sessions if s[2] + grace <= before]
        open_sessions = [s for s in open_sessions if s[2] + grace > before]
    return closed + open_sessions, late


@settings(max_examples=2 * EXAMPLES, phases=PHASES)
@given(times=TIMES, cuts=CUTS, grace=st.sampled_from([0, 3, 20]), crashes=st.booleans())
@example(times=[1, 40, 2, 37, 33, 3], cuts=[2, 3, 4, 5], grace=0, crashes=True)
def test_a_late_record_is_in_one_session_or_aside_and_never_in_both(
    times: list[int], cuts: list[int], grace: int, crashes: bool
) -> None:
    records = records_of(times)
    parts = epochs(records, cuts)
    wanted, wanted_late = judged(parts, grace)
    for late in (to("aside"), "drop"):
        p = Pipeline("late")
        stream = p.read("in", sources.memory([], timestamp="t"))
        window = stream.key_by("k").window(session(f"{GAP_US}us"), grace=f"{grace}us", late=late)
        window.aggregate(ids=agg.collect("id"))
        with Harness(p) as h:
            for i, part in enumerate(parts):
                h.send("in", *part)
                if crashes and i % 2:
                    h.send("in", CRASH)
            h.end()
            rows = h.read("in.aggregate")
            found = [(r["k"], r["window_start"], r["window_end"], sorted(r["ids"])) for r in rows]
            assert sorted(found) == sorted((k, s, e, sorted(ids)) for k, s, e, ids in wanted)
            assert h.counts.get("in.aggregate.late", 0) == len(wanted_late)
            if late == "drop":
                continue
            aside = [r["id"] for r in h.read("aside")]
            assert sorted(aside) == sorted(wanted_late)
            everywhere = Counter(aside) + Counter(i for row in rows for i in row["ids"])
            assert everywhere == Counter(r["id"] for r in records)
