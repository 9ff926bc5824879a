"""Every primitive on state round-trips: over random histories of writes, moves, merges and TTLs."""

from __future__ import annotations

import copy
import json
import math
import random
from datetime import UTC
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from tests.property.slots import KEYS, NAME, Slots

from headrace import StatePart
from headrace.engine.primitives.columns import (
    array_of,
    field_of,
    is_json,
    kind_of_all,
)
from headrace.engine.primitives.diff import applied, diff
from headrace.engine.primitives.epoch_state import EpochState
from headrace.engine.primitives.export import export
from headrace.engine.primitives.json_form import exact_json, from_exact_json
from headrace.engine.primitives.sql import query, rows_of
from headrace.errors import InvalidPipeline
from headrace.model.values.codec import encode_value
from headrace.model.values.keys import HASH_SPACE, decode_key, encode_part, hash_key
from headrace.model.values.time import END
from headrace.plan.rings.ring import KeyInterval
from headrace.state.segment import ENTRY, FIELD, TIMER
from headrace.store.memory import MemoryStore


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 3 else {"a": value}
    return value


VALUES: list[Any] = [
    nested(12), nested(20), nested(199),
    0, 1, -(2**63), 2**53 + 1, 2**63, 2**64 - 1, 1.5, math.inf, None, True, "", "text", "1", "\0",
    b"", b"bytes", [], [1, None], ["a", 1], {}, {"a": 1}, {"a": "x"}, {"a": {"b": [1.5]}},
]  # fmt: skip

seeds = st.integers(0, 2**32)


def random_changes(dice: random.Random, slots: Slots, clock: int) -> dict[Any, Any]:
    """Fields and entries with real values, timers, deletions, and TTLs."""
    found: dict[Any, Any] = {}
    for _ in range(dice.randrange(7)):
        kind = dice.choice((FIELD, FIELD, ENTRY, ENTRY, TIMER))
        field = "event" if kind == TIMER else dice.choice("fgh" if kind == FIELD else "mn")
        entry = encode_part(dice.choice((1, "e", ("t", 2)))) if kind != FIELD else b""
        identity = (dice.choice(KEYS), kind, field, entry)
        if dice.random() < 0.4:
            if identity in slots.truth:
                found[identity] = None
        elif kind == TIMER:
            found[identity] = (b"", clock + 5, clock + 5)
        else:
            expires = END if dice.random() < 0.6 else clock + dice.randrange(1, 6)
            found[identity] = (encode_value(dice.choice(VALUES)), 0, expires)
    return found


def history(seed: int, epochs: int = 9, kept: int = 3) -> list[EpochState]:
    """The states of a computation after some of its epochs, the last one included."""
    dice = random.Random(seed)
    slots = Slots(dice.randrange(1, 4))
    keeps = {*dice.sample(range(epochs), kept), epochs - 1}
    found = []
    for clock in range(epochs):
        adoptions = []
        if dice.random() < 0.2:
            slots.move(dice)
        elif dice.random() < 0.4:
            adoptions = slots.merge(dice, expired_before=clock - 1)
        slots.commit(random_changes(dice, slots, clock), adoptions)
        slots.ledger.ins = {NAME: clock}
        if clock in keeps:
            found.append(EpochState(slots.store, copy.deepcopy(slots.ledger)))
    return found


def everything(state: EpochState | StatePart) -> dict[Any, Any]:
    rows = state.scan() if isinstance(state, StatePart) else state.scan(NAME)
    return dict(rows)


def part_of(state: EpochState) -> StatePart:
    return StatePart(NAME, state.epoch, state.clock(NAME), state.segments(NAME))


def shown(value: Any) -> str:
    """A value so that 1, 1.0 and True differ, and NaN is itself."""
    return repr(value)


# diff --------------------------------------------------------------------


@settings(max_examples=25)
@given(seeds)
def test_a_diff_applied_to_the_first_state_gives_the_second(seed: int) -> None:
    states = history(seed)
    for before, after in ((states[0], states[-1]), (states[-1], states[1])):
        found = everything(before)
        for change in diff(before, after, NAME):
            assert change.added == (change.key not in found)
            now = applied(found.pop(change.key, None), change)
            assert change.removed == (now is None)
            if now is not None:
                found[change.key] = now
        expected = everything(after)
        assert {shown(k): sorted(map(shown, s.items())) for k, s in normal(found).items()} == {
            shown(k): sorted(map(shown, s.items())) for k, s in normal(expected).items()
        }


def normal(states: dict[Any, Any]) -> dict[Any, Any]:
    """Maps with their entries in one order."""
    return {
        key: {
            name: sorted(value.items(), key=repr) if name in "mn" else value
            for name, value in state.items()
        }
        for key, state in states.items()
    }


@settings(max_examples=25)
@given(seeds)
def test_a_state_does_not_differ_from_itself_whatever_was_merged_or_moved(seed: int) -> None:
    state = history(seed, kept=1)[-1]
    assert list(diff(state, state)) == []


@settings(max_examples=25)
@given(seeds)
def test_epochs_that_only_merge_or_move_make_no_difference(seed: int) -> None:
    dice = random.Random(seed)
    slots = Slots(2)
    for clock in range(8):
        slots.commit(random_changes(dice, slots, clock))
    before = EpochState(slots.store, copy.deepcopy(slots.ledger))
    for _ in range(4):
        if dice.random() < 0.5:
            slots.move(dice)
            slots.commit({})
        else:
            slots.commit({}, slots.merge(dice))
    assert list(diff(before, EpochState(slots.store, slots.ledger))) == []


# partition, merge, spill, trim --------------------------------------------


@settings(max_examples=25)
@given(seeds, st.integers(1, 9))
def test_partition_then_merge_is_the_identity(seed: int, count: int) -> None:
    part = part_of(history(seed, kept=1)[-1])
    cut = part.partition(count)
    assert len(cut) == count
    assert cut[0].intervals[0].low == 0 and cut[-1].intervals[-1].high == HASH_SPACE
    random.Random(seed).shuffle(cut)
    merged = StatePart.merge(cut)
    assert merged.intervals == part.intervals
    assert list(merged.cells()) == list(part.cells())
    assert shown(everything(merged)) == shown(everything(part))
    for key, _ in part.scan():
        assert [each.get(key) is not None for each in cut].count(True) == 1


@settings(max_examples=25)
@given(seeds)
def test_parts_of_parts_of_any_intervals_merge_to_what_they_cover(seed: int) -> None:
    dice = random.Random(seed)
    part = part_of(history(seed, kept=1)[-1])
    hashes = sorted({hash_key(dice.choice(KEYS)) for _ in range(3)})
    cuts = [0, *hashes, HASH_SPACE]
    chosen = [KeyInterval.between(a, b) for a, b in pairwise(cuts) if a < b]
    kept = [each for each in chosen if dice.random() < 0.6] or chosen[:1]
    merged = StatePart.merge([p for one in part.partition(kept) for p in one.partition(2)])
    inside = [c for c in part.cells() if any(i.low <= c.hash < i.high for i in kept)]
    assert sorted(merged.cells()) == sorted(inside)


def test_parts_that_overlap_or_belong_to_other_states_are_refused() -> None:
    first, *_, last = (part_of(state) for state in history(3))
    one, two = last.partition(2)
    with pytest.raises(InvalidPipeline, match="overlap"):
        StatePart.merge([one, two, two])
    with pytest.raises(InvalidPipeline, match="cannot be merged"):
        StatePart.merge([one, first])
    with pytest.raises(InvalidPipeline, match="not 0"):
        last.partition(0)
    with pytest.raises(InvalidPipeline, match="overlap"):
        last.partition([KeyInterval(0, 10), KeyInterval(5, 20)])
    with pytest.raises(InvalidPipeline, match="not none"):
        StatePart.merge([])


@settings(max_examples=25)
@given(seeds)
def test_what_is_spilled_is_what_was_there_and_what_is_trimmed_reads_the_same(seed: int) -> None:
    part = part_of(history(seed, kept=1)[-1])
    place = MemoryStore()
    spilled = part.spill(place)
    assert list(spilled.cells()) == list(part.cells()) == list(StatePart.open(place).cells())
    assert shown(everything(spilled)) == shown(everything(part))
    assert spilled.intervals == part.intervals
    trimmed = part.trim()
    assert shown(everything(trimmed)) == shown(everything(part))
    assert trimmed.rows <= spilled.rows <= part.rows
    live = [c for c in part.cells() if c.kind > ENTRY or c.expires > part.clock]
    assert list(trimmed.cells()) == live
    assert trimmed.rows == len(live), "no old version, tombstone or expired cell is left"
    with pytest.raises(InvalidPipeline, match="not empty"):
        part.spill(place)


# export -------------------------------------------------------------------


@settings(max_examples=25)
@given(seeds)
def test_an_export_read_back_is_the_scan(seed: int) -> None:
    state = history(seed, kept=1)[-1]
    place = MemoryStore()
    told = export(state, NAME, place)
    table = pa.concat_tables(pq.read_table(pa.BufferReader(place.read(f))) for f in told.files)
    expected = everything(state)
    assert told.rows == table.num_rows == len(expected)
    read = [row_of(table, number) for number in range(table.num_rows)]
    assert {key for key, _ in read} == set(expected)
    for key, found in read:
        was = {
            n: v
            for n, v in expected[key].items()
            if v is not None or is_json(table.schema.field(n))  # JSON has a null of its own
        }
        assert set(found) == set(was)
        for name, value in found.items():
            assert same(value, was[name], table.schema.field(name)), (key, name)


@pytest.mark.parametrize("depth", [1, 12, 16, 17, 60, 200])
@pytest.mark.parametrize("kind", ["lists", "structs", "maps"])
def test_deep_values_are_exported_so_that_parquet_and_duckdb_read_them(
    depth: int, kind: str
) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "lists" else {"a": value} if kind == "structs" else {7: value}
    slots = Slots(1)
    identity = (KEYS[0], FIELD, "deep", b"")
    slots.commit({identity: (encode_value(value), 0, END)})
    state, place = EpochState(slots.store, slots.ledger), MemoryStore()
    [file] = export(state, NAME, place).files
    table = pq.read_table(pa.BufferReader(place.read(file)))
    assert same(table.column("deep")[0].as_py(), value, table.schema.field("deep"))
    assert (table.schema.field("deep").type == pa.string()) == (
        depth > (8 if kind == "maps" else 16)
    )
    with query(state, f'SELECT deep IS NULL AS gone FROM "{NAME}"') as found:
        assert list(rows_of(found)) == [{"gone": False}]


def row_of(table: pa.Table, number: int) -> tuple[Any, dict[str, Any]]:
    row = {n: table.column(n)[number].as_py() for n in table.column_names}
    return row.pop("key"), {name: value for name, value in row.items() if value is not None}


def same(read: Any, value: Any, field: pa.Field) -> bool:
    if is_json(field):
        return shown(from_exact_json(read)) == shown(value)
    return shown(restored(read, field.type)) == shown(value)


def restored(read: Any, kind: pa.DataType) -> Any:
    """A value of a column as it was: Arrow gives maps as pairs."""
    if read is None or not pa.types.is_nested(kind):
        return int(read) if pa.types.is_decimal(kind) and read is not None else read
    if pa.types.is_map(kind):
        return {name_of(entry): restored(value, kind.item_type) for entry, value in read}
    if pa.types.is_struct(kind):
        return {f.name: restored(read[f.name], f.type) for f in kind}
    return [restored(value, kind.value_type) for value in read]


def name_of(entry: Any) -> Any:
    """The key of a map: a struct of `part_0`, `part_1` was a tuple."""
    return tuple(map(name_of, entry.values())) if isinstance(entry, dict) else entry


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=4),
    st.binary(max_size=4),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
alike = st.one_of(
    st.lists(st.integers(-(2**64), 2**64), max_size=5),
    st.lists(st.one_of(st.none(), st.floats()), max_size=5),
    st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=4),
    st.lists(st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text(max_size=1)}), max_size=4),
    st.lists(st.dictionaries(st.text(max_size=2), st.booleans(), max_size=3), max_size=4),
    st.lists(values, max_size=5),
)


@given(alike)
def test_a_column_gives_every_value_back_as_it_was(found: list[Any]) -> None:
    field = field_of("x", kind_of_all(found))
    column = array_of(field, found)
    for value, read in zip(found, column.to_pylist(), strict=True):
        assert (value is None and read is None) or same(read, value, field), (field, value, read)


instants = st.datetimes(timezones=st.just(UTC)).map(lambda each: each.replace(fold=0))
anything = st.recursive(
    st.one_of(scalars, instants, st.integers()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(("bytes", "pairs", "float", "1", 1)),
                scalars,
                st.tuples(st.binary(max_size=1), st.tuples(st.none(), st.integers(0, 1))),
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


@given(anything)
def test_json_gives_every_value_back_as_it_was(value: Any) -> None:
    text = exact_json(value)
    json.loads(text, parse_constant=pytest.fail)
    assert encode_exactly(from_exact_json(text)) == encode_exactly(value)


def test_json_gives_long_integers_and_extensions_back() -> None:
    value = [2**20_000, -(2**20_000), {"extension": 1}, Ext(5, b"raw")]
    found = from_exact_json(exact_json(value))
    assert found[:3] == value[:3]
    assert (found[3].code, found[3].data) == (5, b"raw")
    with pytest.raises(ValueError, match="cannot be read back"):
        from_exact_json(exact_json(Decimal("1.10")))


def encode_exactly(value: Any) -> str:
    """A value so that 1, 1.0 and True differ, and long integers have a form."""
    if isinstance(value, dict):
        return f"dict({', '.join(map(encode_exactly, value.items()))})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(encode_exactly, value))})"
    return hex(value) if type(value) is int else repr(value)


def test_the_keys_of_these_tests_are_texts() -> None:
    assert all(isinstance(decode_key(key), str) for key in KEYS)
