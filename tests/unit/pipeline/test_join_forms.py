"""Joins and look-ups: joined rows depend on their own records only, whoever else is there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace import InvalidPipeline, Pipeline, interval, same_window, sources, to, tumbling
from headrace.testing import Harness

KINDS: list[Any] = [
    None, True, 3, 2**53 + 1, 2**63, 2**70, 0.5, 3.0, "text", b"bytes", [1, "a"], {"a": 1}, {},
]  # fmt: skip
E: dict[str, Any] = {"errors": to("dead")}
JOINS: dict[str, Callable[..., Any]] = {
    "join": lambda a, b, **o: a.join(b, **o),
    "join left": lambda a, b, **o: a.join(b, how="left", **o),
    "join full": lambda a, b, **o: a.join(b, how="full", **o),
    "within": lambda a, b, **o: a.join(b, within=interval("-5us", "5us"), how="full", **o),
    "window": lambda a, b, **o: a.join(b, window=tumbling("50us"), how="full", **o),
    "asof": lambda a, b, **o: a.join_asof(b, **o),
}


def outcome(
    join: Callable[..., Any],
    records: list[tuple[str, dict[str, Any]]],
    *,
    cut: bool,
    slots: int = 1,
    **options: Any,
) -> tuple[list[str], list[str]]:
    """Rows and letters, as a bag."""
    p = Pipeline("joins")
    left = p.read("left", sources.memory([], timestamp="t")).key_by("k")
    right = p.read("right", sources.memory([], timestamp="t")).key_by("k")
    join(left, right, **E, **options).named("out")
    with Harness(p, slots=slots) as h:
        if cut:
            for stream, record in records:
                h.send(stream, record)
                h.settle()
        else:
            for stream in ("left", "right"):
                h.send(stream, *(record for name, record in records if name == stream))
        h.end()
        rows = sorted(map(repr, h.read("out")))
        letters = [(d["key"], d["error"]) for d in h.read("dead")] if "dead" in h._outputs else []
        return rows, sorted(map(repr, letters))


def records_of(cells: list[Any], keys: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for i, cell in enumerate(cells):
        key = keys[i % len(keys)]
        found.append(("left", {"k": key, "t": i + 1, "n": i, "x": cell}))
        found.append(("right", {"k": key, "t": i + 1, "m": cell, "y": i}))
    found.append(("left", {"k": keys[0], "t": len(cells) + 1}))
    found.append(("right", {"k": "alone", "t": len(cells) + 1, "m": 5}))
    return found


SELECT = {"select": {"k": "left.k", "x": "left.x", "m": "right.m"}}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("options", [SELECT, {}], ids=["select", "clash"])
def test_rows_of_several_forms_and_keys_of_several_kinds_join_alike_however_cut(
    name: str, options: dict[str, Any]
) -> None:
    records = records_of(KINDS, [5, "text", 2**63, -1, b"text", "5"])
    together = outcome(JOINS[name], records, cut=False, **options)
    assert together == outcome(JOINS[name], records, cut=True, **options)
    assert together == outcome(JOINS[name], records, cut=False, slots=4, **options)
    # Without select= both sides have a column t: each pair fails, and no row without a partner.
    clash = [letter for letter in together[1] if "both sides have a column" in letter]
    assert bool(clash) == (not options)


@pytest.mark.parametrize(
    "keys", [[5, "text"], ["1", 1], [-1, 2**63], [2**64 - 1], [b"x", "x"], [b"x", 1]], ids=repr
)
@pytest.mark.parametrize("name", JOINS)
def test_keys_of_two_kinds_do_not_stop_a_join(name: str, keys: list[Any]) -> None:
    p = Pipeline("joins")
    s = p.read("in", sources.memory([], timestamp="t")).key_by("k")
    JOINS[name](s, s, select={"n": "left.n", "m": "right.n"}, **E).named("out")
    with Harness(p, slots=1) as h:
        h.send("in", *({"k": key, "t": i + 1, "n": i} for i, key in enumerate(keys)))
        h.end()
        found = sorted((row["n"], row["m"]) for row in h.read("out"))
        assert found == [(i, i) for i in range(len(keys))]


def test_a_clash_is_of_the_pair_that_has_it() -> None:
    p = Pipeline("joins")
    a = p.read("a", sources.memory([], timestamp=lambda v: 1)).key_by("k")
    b = p.read("b", sources.memory([], timestamp=lambda v: 1)).key_by("k")
    a.join(b, **E).named("out")
    with Harness(p) as h:
        h.send("a", {"k": 1, "x": 1}, {"k": 1, "y": 2})
        h.send("b", {"k": 1, "x": 3})
        h.end()
        assert h.read("out") == [{"k": 1, "y": 2, "x": 3}]
        (letter,) = h.read("dead")
        assert letter["value"] == {"left": {"k": 1, "x": 1}, "right": {"k": 1, "x": 3}}


def columns(table: pa.Table) -> pa.Table:
    return pa.table({
        "k": ["a"] * table.num_rows, "d": [Decimal("1.50")] * table.num_rows,
        "day": [date(2024, 1, 1)] * table.num_rows, "timestamp": table["timestamp"],
    })  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_decimals_and_dates_of_columns_come_out_of_joins_as_they_went_in(name: str) -> None:
    p = Pipeline("joins")
    s = p.read("in", sources.memory([], timestamp="t"))
    typed = s.filter(pc.field("n") == 0).map_table(columns)
    mixed = typed.union(s.filter(pc.field("n") != 0).named("others")).named("mixed")
    right = p.read("right", sources.memory([], timestamp="t")).select("k", "m")
    JOINS[name](mixed.key_by("k"), right.key_by("k"), **E).named("out")
    with Harness(p) as h:
        h.send("in", {"t": 1, "n": 0}, {"t": 2, "n": 1, "k": "a", "x": [2**70]})
        h.settle()
        h.send("right", {"t": 1, "k": "a", "m": 2**64})
        h.end()
        found = [row for row in h.read("out") if "d" in row]
        assert found[0]["d"] == Decimal("1.50") and found[0]["day"] == date(2024, 1, 1)
        assert str(found[0]["d"]) == "1.50" and found[0].get("m") == 2**64


def test_windows_that_no_clock_has_are_that_records_error() -> None:
    p = Pipeline("joins")
    s = p.read("in", sources.memory([], timestamp="t")).key_by("k")
    other = p.read("other", sources.memory([], timestamp="t")).key_by("k")
    s.join(other, window=same_window(), select={"n": "left.n"}, **E).named("out")
    with Harness(p) as h:
        good = {"k": 1, "t": 1, "n": 1, "window_start": 0, "window_end": 10}
        h.send("in", good, *({**good, "window_end": end} for end in (2**70, 10.0, "10", True)))
        h.send("other", {"k": 1, "t": 1, "window_start": 0, "window_end": 10})
        h.end()
        assert [row["n"] for row in h.read("out")] == [1]
        assert len(h.read("dead")) == 4


# Look-ups -----------------------------------------------------------------


def looked_up(records: list[Any], side: Any, *, cut: bool, **options: Any) -> Any:
    p = Pipeline("looked up")
    s = p.read("in", sources.memory([], timestamp=lambda v: 1))
    s.lookup(side, **{"on": "k", **options}, **E).named("out")
    with Harness(p) as h:
        for batch in [[r] for r in records] if cut else [records]:
            h.send("in", *batch)
        h.end()
        dead = h.read("dead") if "dead" in h._outputs else []
        return repr(h.read("out")), [(d["value"], d["error"]) for d in dead]


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(
    "side", [{"a": {"y": 1}, "b": {"y": 0.5}}, {0.0: "zero", 3: "three"}, {b"a": {"y": [1]}}]
)
def test_a_look_up_gives_each_record_the_same_whoever_else_is_there(how: str, side: Any) -> None:
    keys = ["a", "b", "c", None, 3, 3.0, -0.0, 2**70, True, b"a", [1]]
    records: list[Any] = [{"k": key, "x": x} for key in keys for x in (1, None, 2**63)]
    records += [{"x": 1}, {"k": "a", "y": "clash"}, {"k": 3, "value": 1}, 5]
    assert looked_up(records, side, cut=False, how=how) == looked_up(
        records, side, cut=True, how=how
    )


def test_columns_of_a_side_input_keep_cells_of_several_kinds() -> None:
    cells = [1, 0.5, 2**53 + 1, 2**70, "text", True, None, [1, "a"], {"a": 1}, {"b": 2}, b"x"]
    side = [{"k": str(i), "y": cell, "z": i} for i, cell in enumerate(cells)]
    found, dead = looked_up([{"k": str(i)} for i in range(len(cells))], side, cut=False)
    assert found == repr([{"k": str(i), "y": cell, "z": i} for i, cell in enumerate(cells)])
    assert not dead


def test_a_column_that_is_looked_up_by_has_one_kind() -> None:
    for side in ([{"k": 1}, {"k": "x"}], [{"k": 2**70}], {1: "a", "1": "b"}):
        with pytest.raises(InvalidPipeline, match="no table: column 'k'"):
            looked_up([], side, cut=False)
    assert looked_up([{"k": 2.5}, {"k": 1}], {1: "one", 2.5: "more"}, cut=False) == (
        repr([{"k": 2.5, "value": "more"}, {"k": 1, "value": "one"}]),
        [],
    )
