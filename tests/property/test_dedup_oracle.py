"""`dedup` against a loop over the records, however the input is cut, with crashes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace import Pipeline, sources
from headrace.testing import CRASH, Harness

LATENESS_US = 20
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["hot", "hot", "a", "b", ("c", None)]),
        st.sampled_from([0, 0, 1, 4, 11, 60]),
        st.integers(0, LATENESS_US),
    ),
    max_size=40,
)


def first_ones(records: list[dict[str, Any]], within: int) -> list[int]:
    """The first to arrive passes, and again one that is further than that from all that passed."""
    passed: dict[Any, list[int]] = {}
    chosen = []
    for record in records:
        known = passed.setdefault((record["k"], record["j"]), [])
        if all(abs(record["t"] - other) > within for other in known):
            known.append(record["t"])
            chosen.append(record["n"])
    return chosen


def deduplicated(
    records: list[dict[str, Any]], within: int, cuts: list[int], crashes: bool = False
) -> list[int]:
    p = Pipeline("dedup")
    s = p.read("in", sources.memory([], timestamp="t", lateness=f"{LATENESS_US}us"))
    s.dedup(("k", "j"), within=f"{within}us")
    with Harness(p, slots=2) as h:
        marks = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
        for start, end in pairwise(marks):
            h.send("in", *records[start:end])
            if crashes and start % 2:
                h.send("in", CRASH)
        h.end()
        assert h.keys("in.dedup") == []
        assert h.counts.get("in.dedup.late", 0) == 0
        return sorted(row["n"] for row in h.read("in.dedup"))


@settings(max_examples=15, phases=(Phase.explicit, Phase.generate))
@given(
    given_records=RECORDS,
    cuts=st.lists(st.integers(0, 40), max_size=10),
    within=st.sampled_from([0, 3, 10, 100]),
    crashes=st.booleans(),
)
def test_dedup_agrees_with_a_loop_however_the_input_is_cut(
    given_records: list[Any], cuts: list[int], within: int, crashes: bool
) -> None:
    now, records = 0, []
    for n, (name, step, jitter) in enumerate(given_records):
        now += step
        k, j = name if isinstance(name, tuple) else (name, "x")
        records.append({"n": n, "k": k, "j": j, "t": now + jitter})
    wanted = first_ones(records, within)
    assert deduplicated(records, within, []) == wanted
    assert deduplicated(records, within, cuts, crashes) == wanted


@pytest.mark.parametrize("cuts", [[], [50, 100, 101]])
def test_an_id_that_passes_again_and_again_in_one_epoch(cuts: list[int]) -> None:
    times = [(n * 37) % 200 * 5 + 1000 * (n // 60) for n in range(200)]
    records = [{"n": n, "k": "hot", "j": None, "t": t} for n, t in enumerate(sorted(times))]
    assert deduplicated(records, 12, cuts) == first_ones(records, 12)
