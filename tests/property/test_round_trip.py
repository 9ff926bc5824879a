"""What is exported and imported again is what was there: for all keys and types of fields."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace import Checkpoint, Computation, Map, Pipeline, sources, state
from headrace.engine.primitives.imports.importing import import_state
from headrace.store.memory import MemoryStore
from headrace.testing import Harness


class Color(Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Item:
    a: int = 0
    when: datetime | None = None
    more: dict[str, int] | None = None


class Point(msgspec.Struct):
    x: float = 0.0
    names: tuple[str, int | None] | None = None


class All(Computation):
    user: str = state("")  # as the column by which it is keyed
    key: int = state(0)
    anything: Any = state(None)
    anything_else: Any = state(0)
    number: int = state(0)
    share: float = state(0.0)
    raw: bytes = state(b"")
    flag: bool = state(False)
    some: int | None = state(5)
    mixed: int | str | None = state(5)
    when: datetime | None = state(None)
    day: date | None = state(None)
    at: time | None = state(None)
    span: timedelta = state(timedelta(0))
    exact: Decimal = state(Decimal(0))
    id: UUID | None = state(None)
    color: Color = state(Color.RED)
    tags: set[bytes] = state()
    pair: tuple[int, str] = state((0, ""))
    item: Item | None = state(None)
    point: Point | None = state(None)
    items: list[Item] = state()
    shares: list[float] = state()
    by_pair: dict[tuple[int, str | None], str] = state()
    by_share: dict[float, int] = state()
    by_both: dict[int | str, int] = state()
    by_time: dict[datetime, bool] = state()
    by_bytes: dict[bytes, dict[str, int | None]] = state()
    m_pair: Map[tuple[str, int], Any] = state()
    m_same: Map[tuple[str, str], int | None] = state()
    m_any_length: Map[tuple[str, ...], None] = state()
    m_nested: Map[tuple[tuple[int, bytes], int | None], str] = state()
    m_bytes: Map[bytes, list[int]] = state()
    m_number: Map[int, dict[str, int]] = state()
    m_text: Map[str, None] = state()
    m_text_or_none: Map[str, int | None] = state()
    m_any: Map = state()

    def process_record(self, record, ctx):
        for name, value in GIVEN[record.value["n"]][1].items():
            if name.startswith("m_"):
                for entry, cell in value.items():
                    getattr(self, name)[entry] = cell
            else:
                setattr(self, name, value)


GIVEN: list[tuple[Any, dict[str, Any]]] = []
"""The keys and their fields, of one example."""

texts = st.text(st.characters(codec="utf-8"), max_size=3)
wholes = st.integers(-(2**63), 2**63 - 1)
raws = st.binary(max_size=2)
nones = st.none()
instants = st.datetimes(timezones=st.just(UTC)).map(lambda each: each.replace(fold=0))
sizes: dict[str, Any] = {"max_size": 3}
anything = st.recursive(
    st.one_of(nones, st.booleans(), st.integers(), st.floats(), texts, raws, instants),
    lambda inner: st.one_of(
        st.lists(inner, **sizes),
        st.dictionaries(texts, inner, **sizes),
        st.dictionaries(st.one_of(texts, wholes, raws, nones), inner, **sizes),
        st.fixed_dictionaries({"bytes": inner}),
    ),
    max_leaves=4,
)
key_parts = st.recursive(
    st.one_of(nones, texts, raws, st.integers(-(2**63), 2**64 - 1)),
    lambda inner: st.lists(inner, **sizes).map(tuple),
    max_leaves=4,
)
keys = st.one_of(
    key_parts.filter(lambda key: key not in (None, "", b"")),
    st.tuples(texts, wholes),
    st.text(min_size=1, max_size=2),
)
items = st.builds(Item, wholes, nones | instants, nones | st.dictionaries(texts, wholes, **sizes))
points = st.builds(Point, st.floats(), nones | st.tuples(texts, nones | wholes))
fields: dict[str, Any] = {
    "user": texts,
    "key": wholes,
    "anything": anything,
    "anything_else": anything,
    "number": wholes,
    "share": st.floats(),
    "raw": raws,
    "flag": st.booleans(),
    "some": nones | wholes,
    "mixed": st.one_of(nones, wholes, texts),
    "when": nones | instants,
    "day": nones | st.dates(),
    "at": nones | st.times().map(lambda each: each.replace(fold=0)),
    "span": st.timedeltas(timedelta(-9), timedelta(9)),
    "exact": st.decimals(allow_nan=False, allow_infinity=False, places=2),
    "id": nones | st.uuids(),
    "color": st.sampled_from(Color),
    "tags": st.sets(raws, **sizes),
    "pair": st.tuples(wholes, texts),
    "item": nones | items,
    "point": nones | points,
    "items": st.lists(items, max_size=2),
    "shares": st.lists(st.floats(), **sizes),
    "by_pair": st.dictionaries(st.tuples(wholes, nones | texts), texts, **sizes),
    "by_share": st.dictionaries(st.floats(allow_nan=False), wholes, **sizes),
    "by_both": st.dictionaries(wholes | texts, wholes, **sizes),
    "by_time": st.dictionaries(instants, st.booleans(), **sizes),
    "by_bytes": st.dictionaries(raws, st.dictionaries(texts, nones | wholes, **sizes), **sizes),
    "m_pair": st.dictionaries(st.tuples(texts, wholes), anything, **sizes),
    "m_same": st.dictionaries(st.tuples(texts, texts), nones | wholes, **sizes),
    "m_any_length": st.dictionaries(st.lists(texts, **sizes).map(tuple), nones, **sizes),
    "m_nested": st.dictionaries(st.tuples(st.tuples(wholes, raws), nones | wholes), texts, **sizes),
    "m_bytes": st.dictionaries(raws, st.lists(wholes, **sizes), **sizes),
    "m_number": st.dictionaries(wholes, st.dictionaries(texts, wholes, **sizes), **sizes),
    "m_text": st.dictionaries(texts, nones, **sizes),
    "m_text_or_none": st.dictionaries(st.sampled_from("ab"), nones | wholes, **sizes),
    "m_any": st.dictionaries(key_parts, anything, **sizes),
}
states = st.sets(st.sampled_from(sorted(fields)), max_size=6).flatmap(
    lambda names: st.fixed_dictionaries({name: fields[name] for name in sorted(names)})
)
tables = st.lists(
    st.tuples(keys, states), min_size=1, max_size=4, unique_by=lambda row: repr(row[0])
)


def pipeline() -> Pipeline:
    p = Pipeline("all")
    given_keys = p.read("in", sources.memory([], timestamp="n"))
    p.compute(All, inputs={given_keys: lambda value: GIVEN[value["n"]][0]}, name="C")
    return p


def by_column() -> Pipeline:
    """The same computation, keyed by a column that has the name of a field."""
    p = Pipeline("all")
    p.compute(All, inputs={p.read("in", sources.memory([], timestamp="n")): "user"}, name="C")
    return p


@settings(max_examples=60, deadline=None)
@given(tables)
@example([("a", {"some": 7}), ("b", {"some": None}), ("c", {"number": 1})])
@example([("a", {"some": None}), ("b", {"some": None})])
@example([(17, {"key": 1}), ("17", {"key": 2}), (b"17", {"key": 3}), ((17, b"17"), {"key": 4})])
@example([((), {"key": 1}), (((),), {"key": 2}), (("a", None), {"key": 3})])
@example([(("a", 1), {"user": "x"}), (("a", 2), {"user": "y"})])
@example([("a", {"m_any": {None: 1, "x": 2}, "m_any_length": {(): None, ("a",): None}})])
@example([("a", {"anything": {"bytes": "x"}, "m_pair": {("p", 0): b"\xff", ("p", 1): "/w=="}})])
@example([("a", {"anything": 2**63}), ("b", {"anything": -1}), ("c", {"anything": 2**200})])
def test_an_export_that_is_imported_is_what_was_there(rows: list[tuple[Any, Any]]) -> None:
    GIVEN[:] = rows
    with Harness(pipeline(), twice=False) as h:
        h.send("in", *({"n": number} for number in range(len(rows))))
        h.settle()
        before = Checkpoint(h.store)
        expected = comparable(dict(before.scan("C")))
        if "C" not in before.computations:
            return
        with tempfile.TemporaryDirectory() as place:
            before.export("C", place)
            for again in (pipeline(), by_column()):
                store = MemoryStore()
                import_state(again.freeze(), store, "C", place)
                assert comparable(dict(Checkpoint(store).scan("C"))) == expected
            assert pq.read_table(place).column("key_").null_count == 0


def comparable(value: Any) -> Any:
    """A value as text, where 1, 1.0 and True differ, NaN is itself, and dicts have no order."""
    if isinstance(value, dict):
        return sorted((comparable(key), comparable(cell)) for key, cell in value.items())
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(str(comparable(each)) for each in value)})"
    return repr(value)
