"""A step that comes back changed: state that means something else now is refused, never misread."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import IncompatibleState, Pipeline, agg, hopping, session, sliding, sources, tumbling
from headrace.testing import Harness


def begun(build: Any) -> Harness:
    p = Pipeline("changed")
    build(p.read("in", sources.memory([], timestamp="t"))).named("w")
    return Harness(p)


def continued(first: Any, then: Any) -> list[dict[str, Any]]:
    """What `then` gives on the checkpoint that `first` has left."""
    old = begun(first)
    old.send("in", {"k": "a", "t": 1, "v": 3}, {"k": "a", "t": 2, "v": 4})
    old.settle()
    new = begun(then)
    new._runtime.store, new._sources["in"]._items = old._runtime.store, old._sources["in"]._items
    new._sources["in"]._floors = old._sources["in"]._floors
    new.send("in", {"k": "a", "t": 3, "v": 5})
    new.end()
    return new.read("w")


def windowed(window: Any = None, emit: Any = "final", **aggregates: Any) -> Any:
    chosen = aggregates or {"n": agg.max("v")}
    cut = tumbling("10us") if window is None else window
    return lambda s: s.key_by("k").window(cut, emit=emit).aggregate(**chosen)


def test_a_renamed_column_or_another_way_to_emit_goes_on() -> None:
    (row,) = continued(windowed(n=agg.sum("v")), windowed(total=agg.sum("v")))
    assert row["total"] == 12
    assert continued(windowed(), windowed(emit="changes"))[-1]["n"] == 5


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (windowed(), windowed(n=agg.max("v"), more=agg.count())),
        (windowed(n=agg.max("v"), more=agg.count()), windowed()),
        (windowed(), windowed(n=agg.min("v"))),
        (windowed(), windowed(n=agg.max("t"))),
        (windowed(n=agg.top(1, "v")), windowed(n=agg.top(2, "v"))),
        (windowed(), windowed(tumbling("20us"))),
        (windowed(), windowed(session("5us"))),
        (windowed(session("5us")), windowed(session("5us"), emit="changes")),
        (windowed(hopping("9us", every="3us")), windowed(hopping("9us", every="3us"), "changes")),
        (windowed(sliding("9us")), windowed(sliding("5us"))),
    ],
)
def test_open_windows_of_another_meaning_are_refused(first: Any, then: Any) -> None:
    with pytest.raises(IncompatibleState, match=r"computation 'w'.*until they have closed.*named"):
        continued(first, then)


def test_a_list_that_was_ranked_otherwise_is_refused() -> None:
    def top(n: int, by: str) -> Any:
        return lambda s: s.key_by().top(n, by=by, id="k")

    assert continued(top(1, "v"), top(1, "v"))[-1]["v"] == 5
    for then in (top(2, "v"), top(1, "t")):
        with pytest.raises(IncompatibleState, match=r"computation 'w.best'.*ranked by another"):
            continued(top(1, "v"), then)
