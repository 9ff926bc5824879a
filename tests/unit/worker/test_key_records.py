"""What hooks get of their records: real values, made anew for every pass, whoever asks first."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, Pipeline, UserCodeError, sources, state, to
from headrace.model.record import Record
from headrace.model.values.codec import packed
from headrace.model.values.keys import decode_key, encode_key
from headrace.model.values.rows import Rows
from headrace.model.values.schema import Schema
from headrace.plan.parcel import Parcel
from headrace.testing import Harness
from headrace.worker.records import sorted_cells
from headrace.worker.records.arrivals import Grouped
from headrace.worker.records.key_records import KeyRecords, OrderedRecords
from headrace.worker.slot_run import Arrival


def rows_of(count: int) -> list[dict[str, Any]]:
    """Values of many kinds, with and without nulls, and one column that is the time."""
    return [
        {
            "ts": 1_000 + i,
            "n": i,
            "gap": None if i % 3 else i,
            "text": f"text {i}",
            "flag": bool(i % 2),
            "price": Decimal(i) / 4,
            "at": datetime(2026, 1, 1, tzinfo=UTC).replace(microsecond=i),
            "tags": [i, i + 1],
            "inner": {"deep": [i]},
            "nothing": None,
        }
        for i in range(count)
    ]


def grouped(
    values: list[dict[str, Any]], codes: list[int], names: list[str], *, form: str = "columns"
) -> Grouped:
    """Records of a few keys, as they arrive in a slot."""
    keys = [encode_key(f"k{code}") for code in range(max(codes) + 1)]
    times = np.arange(1_000, 1_000 + len(values))
    chosen = [{name: value[name] for name in names} for value in values]
    if form == "packed":
        cells = pa.array([packed(value) for value in chosen], pa.binary())
        rows = Rows(times, packed=cells)
    else:
        rows = Rows(times, columns=pa.RecordBatch.from_pylist(chosen))
    parcel = Parcel(keys, np.array(codes, np.int32), rows)
    if form == "travelled":
        parcel = Parcel.merge([Parcel.read(blob) for blob in parcel.blobs()])
    return Grouped(Arrival(0, "in", parcel))


def records_of(group: Grouped, key: bytes, before: int = 0) -> KeyRecords:
    return KeyRecords([group.part(key, decode_key(key), before)])


ALL = list(rows_of(1)[0])
SIMPLE = ["ts", "n", "gap", "text", "flag"]


@pytest.mark.parametrize("names", [ALL, SIMPLE, *[ALL[: n + 1] for n in range(5)]])
@pytest.mark.parametrize("form", ["columns", "travelled"])
def test_every_key_gets_its_values_in_order_whatever_their_columns(names, form):
    count = 333
    dice = random.Random(len(names))
    codes = [dice.choice([0, 0, 0, 0, 1, 2]) for _ in range(count)]
    values = rows_of(count)
    group = grouped(values, codes, names, form=form)
    for key in group.spans:
        wanted = [v for v, c in zip(values, codes, strict=True) if f"k{c}" == decode_key(key)]
        found = list(records_of(group, key))
        assert [r.value for r in found] == [{n: v[n] for n in names} for v in wanted]
        assert [r.timestamp for r in found] == [v["ts"] for v in wanted]
        assert [type(cell) for r in found for cell in r.value.values()] == [
            type(v[n]) for v in wanted for n in names
        ]


@pytest.mark.parametrize("form", ["columns", "packed"])
def test_a_second_pass_sees_nothing_of_what_hooks_did_to_values(form):
    names = ["n", "tags", "inner"]
    group = grouped(rows_of(200), [0] * 200, names, form=form)
    records = records_of(group, encode_key("k0"))
    for record in records:
        record.value["tags"].append("spoiled")
        record.value["inner"]["deep"].clear()
        del record.value["n"]
    assert [r.value for r in records] == [{n: v[n] for n in names} for v in rows_of(200)]


@pytest.mark.parametrize("ahead", [1, 7, 50, 10_000])
@pytest.mark.parametrize("way", ["in order", "backwards", "shuffled", "repeated"])
def test_cells_are_the_same_whoever_asks_in_whichever_order(monkeypatch, ahead, way):
    monkeypatch.setattr(sorted_cells, "CELLS_AHEAD", ahead)
    dice = random.Random(ahead)
    codes = [min(int(dice.expovariate(0.3)), 12) for _ in range(300)]
    values = rows_of(300)
    group = grouped(values, codes, SIMPLE)
    keys = list(group.spans)
    match way:
        case "backwards":
            keys.reverse()
        case "shuffled":
            dice.shuffle(keys)
        case "repeated":
            keys = [key for key in keys for _ in range(2)]
    for key in keys:
        wanted = [v for v, c in zip(values, codes, strict=True) if f"k{c}" == decode_key(key)]
        found = list(records_of(group, key))
        assert [r.value["n"] for r in found] == [v["n"] for v in wanted]
        assert group.times(key) == [v["ts"] for v in wanted]


def test_records_of_two_inputs_come_input_by_input_and_know_their_stream():
    key = encode_key("k0")
    first, second = grouped(rows_of(3), [0, 0, 0], ["n"]), grouped(rows_of(2), [0, 0], ["text"])
    second.arrival.stream = "other"
    records = KeyRecords([g.part(key, "k0", 1_001) for g in (first, second)])
    assert [(r.stream, r.late) for r in records] == [
        ("in", True), ("in", False), ("in", False), ("other", True), ("other", False)
    ]  # fmt: skip
    assert [records.stream_of(i) for i in range(len(records))] == [r.stream for r in records]
    assert records.times == [1_000, 1_001, 1_002, 1_000, 1_001]


def test_records_in_time_order_can_be_had_again_as_they_were():
    made = [Record({"tags": [n]}, n, "k", "in", False) for n in range(3)]
    records = OrderedRecords(made, again=True)
    for record in records:
        record.value["tags"].append("spoiled")
    assert [r.value for r in records] == [{"tags": [n]} for n in range(3)]
    assert records.times == [0, 1, 2] and records.stream_of(1) == "in"


@dataclass
class Letter:
    to: str
    n: int
    tags: list[str] = field(default_factory=list)


class Parcelled(msgspec.Struct):
    to: str
    n: int
    tags: list[str] = []  # msgspec copies it


@pytest.mark.parametrize("given", [Letter, Parcelled])
def test_values_of_a_class_are_made_anew_too(given):
    batch = pa.RecordBatch.from_pylist([{"to": "a", "n": n, "tags": ["x"]} for n in range(100)])
    rows = Rows(np.arange(100), columns=batch, schema=Schema(given, where="a test"))
    parcel = Parcel([encode_key("a")], np.zeros(100, np.int32), rows)
    records = records_of(Grouped(Arrival(0, "in", parcel)), encode_key("a"))
    for record in records:
        record.value.tags.append("spoiled")
        record.value.n = -1
    assert [r.value for r in records] == [given("a", n, ["x"]) for n in range(100)]


class Curious(Computation):
    """Looks at values in every way but the plain one."""

    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += locals()["record"].value["n"]
        self.total += (lambda: record.value["n"])()
        self.total += getattr(record, "value")["n"]  # noqa: B009
        self.total += self.of(record)

    def of(self, record):
        return vars_of(record)["value"]["n"]


def vars_of(record: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(record)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_hook_finds_the_value_however_it_looks(concurrency):
    p = Pipeline("curious")
    p.read("in", sources.memory([]))
    p.compute(Curious, inputs={"in": "k"}, concurrency=concurrency)
    with Harness(p) as h:
        h.send("in", *({"k": n % 3, "n": n} for n in range(300)))
        for key in range(3):
            assert h.state("Curious", key).total == 4 * sum(range(key, 300, 3))


class Spoiler(Computation):
    """Spoils its record, and fails at some."""

    total: int = state(0)

    def process_record(self, record, ctx):
        n = record.value.n
        record.value.tags.append("spoiled")
        record.value.n = None
        self.total += n
        if n % 5 == 0:
            record.timestamp = record.stream = None
            raise ValueError("five")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dead_letter_shows_the_record_as_it_came_and_the_others_count(ordered):
    p = Pipeline("spoiled")
    p.read("in", sources.memory([], timestamp="n"), schema=Letter)
    p.compute(
        type("Spoiler", (Spoiler,), {"__module__": __name__}, ordered=True) if ordered else Spoiler,
        inputs={"in": "to"},
        errors=to("dead"),
        name="spoiler",
    )
    with Harness(p, picklable=not ordered) as h:
        h.send("in", *({"to": "a", "n": n, "tags": ["x"]} for n in range(1, 200)))
        h.end()
        dead = h.read("dead")
        assert [letter["value"] for letter in dead] == [
            {"to": "a", "n": n, "tags": ["x"]} for n in range(5, 200, 5)
        ]
        assert [(d["stream"], d["timestamp"]) for d in dead] == [
            ("in", n) for n in range(5, 200, 5)
        ]
        assert h.state("spoiler", "a").total == sum(n for n in range(200) if n % 5)


def test_an_error_that_stops_the_run_names_the_record():
    class Fragile(Computation):
        """Fails at its third record without having looked at any."""

        seen: int = state(0)

        def process_record(self, record, ctx):
            self.seen += 1
            if self.seen == 3:
                raise RuntimeError("enough")

    with Harness(one(Fragile)) as h, pytest.raises(UserCodeError, match=r"record \{.*'n': 2\}"):
        h.send("in", *(at(n, n=n) for n in range(4)))
        h.settle()
