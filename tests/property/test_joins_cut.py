"""Joins of records of all forms: the same rows and dead letters however the input is cut.

There is no oracle here: SQL has no rows of several forms. The answer of one epoch is compared
with that of many; whether it is right is asked in `test_joins_oracle`.
"""

import os
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Computation, Pipeline, hopping, interval, sources, to
from headrace.testing import CRASH, Harness

CELLS: Any = st.sampled_from([0, 1, 2, 2.0, 0.5, None, True, "x", [1], {"y": None}, 2**63])
KINDS: Any = st.sampled_from(
    [
        {},
        {"within": interval("-3us", "4us")},
        {"window": hopping("6us", every="3us"), "grace": "1us"},
        {"asof": None},
        {"asof": "3us"},
    ]
)
KEYS: Any = st.sampled_from([("k",), ("k", "j")])


class InOrder(Computation, ordered=True):
    """Somebody who sees the order of what has one time."""

    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.produce(record.value)


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    made = []
    for i in range(draw(st.integers(0, 10))):
        side = draw(st.sampled_from(["left", "right"]))
        row: dict[str, Any] = {f"{side}_t": i // 2 + draw(st.integers(0, 3))}
        row["k"] = draw(st.sampled_from(["a", "a", 1]))
        row["j"] = draw(st.sampled_from([0, 0, None]))
        for column in draw(st.sets(st.sampled_from("xy"))):
            row[f"{side}_{column}"] = draw(CELLS)
        made.append((side, row))
    return made


def divided(left: Any, right: Any) -> Any:
    """Fails for some pairs, and spoils what it was given."""
    found = [left and left.pop("left_x", 1), right and right.pop("right_x", 1)]
    return {"k": (left or right)["k"], "found": found, "ratio": 1 // (found[0] or 0)}


def answer(
    given: list[tuple[str, Any]], cuts: list[int], options: Any, key: Any, how: str, select: Any
) -> tuple[Any, ...]:
    p = Pipeline("cut")
    left, right = (
        p.read(name, sources.memory([], timestamp=f"{name}_t", lateness="1s")).key_by(*key)
        for name in ("left", "right")
    )
    policies = {"select": select, "errors": to("dead")}
    if "asof" in options:
        how = "left" if how == "full" else how
        left.join_asof(right, within=options["asof"], how=how, **policies).named("out")
    else:
        left.join(right, how=how, **options, **policies).named("out")
    p.compute(InOrder, inputs={"out": ()}, outputs="ordered")
    with Harness(p) as h:
        start = 0
        for end in [*cuts, len(given)]:
            for stream in ("left", "right"):
                values = [value for side, value in given[start:end] if side == stream]
                if values:
                    h.send(stream, *values, *([CRASH] if end % 2 else []))
            start = max(start, end)
        h.end()
        letters = Counter(repr((d["key"], d["value"], d["error"])) for d in h.read("dead"))
        found = Counter(repr(record) for record in h.records("out"))
        assert h.counts["late"] == 0
        return found, letters, [repr(value) for value in h.read("ordered")]


def both(left: Any, right: Any) -> Any:
    """The columns of both sides, where a column of the other side is not part of the key."""
    return {**(left or {}), **(right or {})}


@settings(max_examples=int(os.environ.get("HEADRACE_JOIN_EXAMPLES", "25")))
@given(
    rows(),
    st.lists(st.integers(0, 10), max_size=4),
    KINDS,
    KEYS,
    st.sampled_from(["inner", "left", "full"]),
    st.sampled_from([None, divided]),
)
def test_rows_of_all_forms_join_alike_however_the_input_is_cut(
    given: list[tuple[str, Any]], cuts: list[int], options: Any, key: Any, how: str, select: Any
) -> None:
    if select is None and key == ("k",):
        select = both
    whole = answer(given, [], options, key, how, select)
    assert answer(given, sorted(cuts), options, key, how, select) == whole
