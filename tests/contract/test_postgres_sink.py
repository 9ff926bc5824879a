"""`sinks.postgres` on a real server: types, keys, zombies, outages, crashes, secrets."""

from __future__ import annotations

import json
import random
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.servers.postgres import PASSWORD, PostgresServer, postgres
from tests.spark.support import run_local

from headrace import Pipeline, failpoints, sinks, sources
from headrace.errors import Fenced, InvalidPipeline, SinkError, SinkUnavailable
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.codec import decode_value, packed
from headrace.model.values.rows import Rows
from headrace.sinks.tables.server import Database
from headrace.store.memory import MemoryStore

BIG = 2**70 + 1


class Table:
    """A table in a schema of its own."""

    def __init__(self) -> None:
        self.server: PostgresServer = postgres()
        self.schema = f"s{random.randrange(2**48):012x}"
        self.name = f"{self.schema}.t"
        self.asked(f"CREATE SCHEMA {self.schema}")

    def asked(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def sink(self, **options: Any) -> Sink:
        return sinks.postgres(self.server.dsn(), self.name, **options)

    def open(self, generation: int = 1, **options: Any) -> Sink:
        sink = self.sink(**options)
        sink.open(Opening("checkpoint-1", generation, 0, MemoryStore(), {}, "/checkpoint"))
        return sink

    def rows(self, what: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.asked(f"SELECT {what} FROM {self.name}"))

    def types(self) -> dict[str, str]:
        return dict(
            self.asked(
                "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
                f"WHERE attrelid = '{self.name}'::regclass AND attnum > 0"
            )
        )


@pytest.fixture
def table() -> Iterator[Table]:
    yield Table()
    failpoints.disarm()


def epoch(number: int, *values: Any, sink: Sink | None = None, commit: str = "") -> Delivery:
    rows = Rows.of(list(values), [1_000_000 * n for n in range(len(values))])
    data = (sink or sinks.memory()).encode(rows)
    return Delivery(number, "checkpoint-1", [Part("C/0", "d", lambda: data)], commit=commit)


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


def test_a_table_is_created_from_rows_and_keeps_every_kind_of_value(table) -> None:
    at = datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    values = {
        "i": 2**63 - 1, "f": float("nan"), "t": "na\tï\\ve\n€", "b": b"\x00\xff", "yes": True,
        "big": BIG, "at": at, "nested": {"a": [1, None, {"b": "x"}]}, "items": [1, 2], "mixed": 1,
    }  # fmt: skip
    sink = table.open(timestamp="seen")
    sink.deliver(epoch(1, values, {"i": None, "mixed": "text"}))
    assert table.types() == {
        "i": "bigint", "f": "double precision", "t": "text", "b": "bytea", "yes": "boolean",
        "big": "numeric", "at": "timestamp with time zone", "nested": "jsonb", "items": "jsonb",
        "mixed": "jsonb", "seen": "timestamp with time zone",
    }  # fmt: skip
    [row] = table.asked(f"SELECT i, t, b, yes, big, at, nested, items FROM {table.name} WHERE yes")
    assert row == (2**63 - 1, values["t"], b"\x00\xff", True, BIG, at, values["nested"], [1, 2])
    empty = (
        f"SELECT count(*) FROM {table.name} WHERE i IS NULL AND t IS NULL AND mixed = '\"text\"'"
    )
    assert table.asked(empty) == [(1,)]


def test_a_table_is_created_from_a_schema(table) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("at", pa.timestamp("us", tz="UTC")),
            ("day", pa.date32()),
            ("amount", pa.decimal128(10, 2)),
            ("tags", pa.list_(pa.string())),
            ("huge", pa.uint64()),
        ]
    )
    sink = table.open(schema=schema, mode="upsert", key="id")
    sink.deliver(epoch(1, {"id": 1, "at": 1_700_000_000_000_000, "day": date(2024, 5, 1)}))
    assert table.types() == {
        "id": "integer", "at": "timestamp with time zone", "day": "date", "tags": "jsonb",
        "amount": "numeric(10,2)", "huge": "numeric(20,0)",
    }  # fmt: skip
    [(at,)] = table.rows("at")
    assert at == datetime.fromtimestamp(1_700_000_000, UTC)


def test_with_a_schema_rows_that_do_not_fit_are_refused_before_the_commit(table) -> None:
    sink = table.sink(schema=pa.schema([("n", pa.int64())]))
    for value, said in (({"n": "x"}, "'n'"), ({"n": 1, "m": 2}, "'m'"), ({"n": BIG}, "'n'")):
        with pytest.raises(SinkError, match=said):
            sink.encode(Rows.of([value], [0]))


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("integer", 2**31, "out of range"),
        ("bigint", 1.5, "a float"),
        ("bigint", True, "truth value"),
        ("bigint", "1", "text"),
        ("double precision", 2**53 + 1, "rounded"),
        ("text", 7, "an integer"),
        ("text", "a\0b", "NUL"),
        ("varchar(3)", "long", "too long"),
        ("boolean", 1, "an integer"),
        ("timestamptz", 10**18, "year 9999"),
        ("date", "May", "no date"),
        ("numeric(5,2)", 1.005, "rounded"),
        ("numeric(5,2)", "1.239", "rounded"),
        ("numeric(5,2)", "1_0", "no number"),
        ("numeric(5,-2)", 12345, "rounded"),
        ("numeric(4,2)[]", [1.25, 1.255], "rounded"),
        ("real", 16777217, "rounded"),
        ("real", 1 / 3, "rounded"),
        ("real", 1e300, "rounded"),
        ("timestamp(0)", 1_700_000_000_600_000, "0 digits of a second"),
        ("timestamptz(3)", "2024-05-01T12:00:00.1234+02:00", "3 digits of a second"),
        ("timestamptz", "2024-05-01T12:00:00.1234567Z", "more than six digits"),
        ("timestamp", "now", "no time"),
        ("timestamptz", "0001-01-01T00:00:00+02:00", "year 9999"),
        ("date", "2024-05-01T23:59:59-11:00", "no date"),
        ("date", "today", "no date"),
        ("time", "12:00:00+02:00", "zone"),
        ("time(0)", "12:00:00.5", "0 digits of a second"),
        ("interval(0)", "PT0.5S", "0 digits of a second"),
        ("interval day", "P1DT1S", "cut off"),
        ("interval hour to minute", "PT1S", "cut off"),
        ("interval year", "P1D", "cut off"),
        ("interval(2)", "1 year", "no duration"),
        ("varchar(2)", "ab   ", "too long"),
        ("name", "n" * 64, "too long"),
        ("uuid", "x", "invalid input syntax"),
        ("jsonb", "a\0b", "unsupported Unicode"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row_and_column(
    table, kind, value, why
) -> None:
    table.asked(f"CREATE TABLE {table.name} (n bigint, x {kind})")
    sink = table.open()
    with pytest.raises(SinkError, match="row 2 of the epoch") as raised:
        sink.deliver(epoch(1, {"n": 1}, {"n": 2, "x": value}, {"n": 3}))
    assert why in str(raised.value) and "column 'x'" in str(raised.value), str(raised.value)
    assert table.rows() == [] and sink.high_water() == 0
    table.asked(f"ALTER TABLE {table.name} ALTER COLUMN x TYPE jsonb USING to_jsonb(x)")
    if "\0" not in str(value):
        sink.deliver(epoch(1, {"n": 1}, {"n": 2, "x": value}, {"n": 3}))
        assert [n for (n,) in table.rows("n")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("numeric(5,2)", 1.25, "1.25"),
        ("numeric(5,2)", "1.2300", "1.23"),
        ("numeric(5,2)", "1E+2", "100.00"),
        ("numeric(5,-2)", 12300, "12300"),
        ("numeric", "NaN", "NaN"),
        ("numeric", BIG, str(BIG)),
        ("real", 0.1, "0.1"),
        ("real", 0.10000000149011612, "0.1"),
        ("real", 2**25, "3.3554432e+07"),
        ("real", float("-inf"), "-Infinity"),
        ("timestamp(0)", 1_700_000_000_000_000, "2023-11-14 22:13:20"),
        ("timestamptz(3)", "2024-05-01T12:00:00.123+02:00", "2024-05-01 10:00:00.123+00"),
        ("timestamptz", "2024-05-01T12:00:00", "2024-05-01 12:00:00+00"),
        ("timestamp", "2024-05-01T12:00:00+02:00", "2024-05-01 10:00:00"),
        ("timestamp", "2024-05-01T12:00:00.12345600", "2024-05-01 12:00:00.123456"),
        ("timestamp", "infinity", "infinity"),
        ("date", "2024-05-01", "2024-05-01"),
        ("time(1)", "12:30:00.5", "12:30:00.5"),
        ("interval(0)", "P1DT2S", "1 day 00:00:02"),
        ("interval", "1 year 2 days", "1 year 2 days"),
        ("interval", "PT0.000001S", "00:00:00.000001"),
        ("interval hour to minute", "P1DT90M", "1 day 01:30:00"),
        ("interval day", "P2D", "2 days"),
        ("varchar(2)", "ab", "ab"),
        ("numeric(4,2)[]", ["1.5", 2], "{1.50,2.00}"),
        ("jsonb", {"x": float("nan"), "y": b"abc"}, '{"x": null, "y": "YWJj"}'),
    ],
)
def test_a_value_that_fits_stays_what_it_is(table, kind, value, shown) -> None:
    table.asked(f"CREATE DOMAIN {table.schema}.d AS {kind}")
    table.asked(f"CREATE TABLE {table.name} (x {kind}, y {table.schema}.d)")
    table.open().deliver(epoch(1, {"x": value, "y": value}))
    table.asked("ALTER ROLE postgres SET TIME ZONE 'UTC'")
    assert table.asked(f"SELECT x::text, y::text FROM {table.name}") == [(shown, shown)]


def test_a_domain_is_as_exact_as_its_type(table) -> None:
    table.asked(f"CREATE DOMAIN {table.schema}.money2 AS numeric(5,2)")
    table.asked(f"CREATE TABLE {table.name} (x {table.schema}.money2)")
    with pytest.raises(SinkError, match="rounded"):
        table.open().deliver(epoch(1, {"x": "1.239"}))


def test_a_domain_of_a_domain_is_as_exact_as_its_type_and_has_its_default(table) -> None:
    table.asked(f"CREATE DOMAIN {table.schema}.money2 AS numeric(5,2) NOT NULL DEFAULT 7")
    table.asked(f"CREATE DOMAIN {table.schema}.price AS {table.schema}.money2 CHECK (value > 0)")
    table.asked(f"CREATE TABLE {table.name} (n int, x {table.schema}.price)")
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1, "x": 1.25}, {"n": 2}))
    assert table.rows() == [(1, Decimal("1.25")), (2, Decimal("7.00"))]
    with pytest.raises(SinkError, match="column 'x', row 1.*rounded"):
        sink.deliver(epoch(2, {"n": 3, "x": "1.239"}))


@pytest.mark.parametrize("name", ["n" * 64, "ä" * 32, "", "a\0b"])
def test_a_name_that_no_column_can_have_is_refused_before_the_commit(table, name) -> None:
    with pytest.raises(SinkError, match="1 to 63 bytes"):
        table.sink().encode(Rows.of([{"n": 1, name: 2}], [0]))


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")]
)
def test_nanoseconds_inside_of_structs_and_lists_are_not_cut_off(table, kind) -> None:
    def rows(nanos: int) -> Rows:
        inside = pa.array([nanos], pa.int64()).cast(kind)
        struct = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], inside)], names=["a"])
        return Rows([0], columns=pa.RecordBatch.from_pydict({"x": struct}))

    sink = table.open()
    with pytest.raises(SinkError, match="column 'x' .*would be rounded"):
        sink.encode(rows(1_001))
    data = sink.encode(rows(1_000))
    sink.deliver(Delivery(1, "checkpoint-1", [Part("C/0", "d", lambda: data)]))
    [(stored,)] = table.rows()
    assert "00:00:00.000001" in stored["a"][0] or stored == {"a": ["PT0.000001S"]}


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")]
)
def test_nanoseconds_of_arrow_columns_are_not_cut_off(table, kind) -> None:
    def rows(nanos: int) -> Rows:
        cells = {"x": pa.array([None, nanos], kind)}
        return Rows([0, 0], columns=pa.RecordBatch.from_pydict(cells))

    with pytest.raises(SinkError, match="column 'x' .*would be rounded"):
        table.sink().encode(rows(1_001))
    table.sink().encode(rows(1_000))


def test_rows_without_columns_make_no_table(table) -> None:
    with pytest.raises(SinkError, match="have no columns: give the sink a schema="):
        table.open().deliver(epoch(1, {}, {}))


def test_produced_decimals_and_times_fit_a_schema(table) -> None:
    at = datetime(2024, 5, 1, 12, 30, 0, 5)
    types = {"amount": pa.decimal128(10, 2), "day": pa.date32(), "at": pa.timestamp("us")}
    sink = table.open(schema=pa.schema(list(types.items())))
    row = {"amount": Decimal("1.25"), "day": at.date(), "at": at}
    sink.deliver(epoch(1, decode_value(packed(row)), sink=sink))
    assert table.rows() == [tuple(row.values())]
    with pytest.raises(SinkError, match="column 'amount', row 1.*rounded"):
        sink.encode(Rows.of([{**row, "amount": Decimal("1.255")}], [0]))


@pytest.mark.parametrize(
    ("columns", "kind", "said"),
    [
        ("x text", pa.int64(), "is text, but schema= says int64"),
        ("x bigint", pa.float64(), "is bigint, but schema= says double"),
        ("x text", pa.list_(pa.int64()), "is text, but schema= says list"),
        ("x int[]", pa.struct([("a", pa.int64())]), "is integer\\[\\], but schema= says struct"),
        ("x text", pa.binary(), "is text, but schema= says binary"),
        ("x bigint, y int NOT NULL", pa.int64(), "'y' is NOT NULL and has no default"),
    ],
)
def test_a_table_that_cannot_hold_a_schema_is_refused_when_it_opens(
    table, columns, kind, said
) -> None:
    table.asked(f"CREATE TABLE {table.name} ({columns})")
    with pytest.raises(SinkError, match=said):
        table.open(schema=pa.schema([("x", kind)]))


def test_a_trigger_may_fill_what_the_schema_lacks(table) -> None:
    table.asked(f"CREATE TABLE {table.name} (x int PRIMARY KEY, y int NOT NULL)")
    table.asked(
        f"CREATE FUNCTION {table.schema}.fill() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.y = 7; RETURN NEW; END'"
    )
    table.asked(
        f"CREATE TRIGGER fill BEFORE INSERT ON {table.name} FOR EACH ROW "
        f"EXECUTE FUNCTION {table.schema}.fill()"
    )
    schema = pa.schema([("x", pa.int64())])
    table.open(schema=schema).deliver(epoch(1, {"x": 1}))
    table.open(schema=schema, mode="upsert", key="x").deliver(epoch(2, {"x": 1}, {"x": 2}))
    assert table.rows() == [(1, 7), (2, 7)]
    table.asked(f"ALTER TABLE {table.name} DISABLE TRIGGER fill")
    with pytest.raises(SinkError, match="'y' is NOT NULL and has no default"):
        table.open(schema=schema)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.string_view(),
        pa.list_(pa.string()),
        pa.struct([("b", pa.large_string())]),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_nul_in_text_is_refused_before_the_commit_by_a_schema(table, kind) -> None:
    sink = table.sink(schema=pa.schema([("x", kind)]))
    for text, fits in (("a0", True), (None, True), ("a\0", False)):
        value = {"list": [text], "struct": {"b": text}}.get(str(kind).partition("<")[0], text)
        if fits:
            sink.encode(Rows.of([{"x": value}], [0]))
        else:
            with pytest.raises(SinkError, match="column 'x' has text with the character NUL"):
                sink.encode(Rows.of([{"x": value}], [0]))


def test_a_table_may_hold_a_schema_in_wider_types(table) -> None:
    table.asked(
        f"CREATE TABLE {table.name} (i numeric, f numeric(4,1), s jsonb, l int[], t timestamptz, "
        "d text, n serial NOT NULL)"
    )
    schema = pa.schema(
        {
            "i": pa.int8(), "f": pa.float64(), "s": pa.struct([("a", pa.int64())]),
            "l": pa.list_(pa.int64()), "t": pa.int64(), "d": pa.date32(),
        }
    )  # fmt: skip
    row = {"i": 1, "f": 1.5, "s": {"a": 1}, "l": [1], "t": 5, "d": "2024-05-01"}
    sink = table.open(schema=schema)
    sink.deliver(epoch(1, row, sink=sink))
    assert table.rows("i, f, s, l, d, n") == [
        (Decimal(1), Decimal("1.5"), {"a": 1}, [1], "2024-05-01", 1)
    ]


def test_a_float_that_a_schema_would_round_is_refused_before_the_commit(table) -> None:
    sink = table.open(schema=pa.schema([("x", pa.float32())]))
    with pytest.raises(
        SinkError, match="column 'x', row 2.*does not fit float, the type of schema="
    ):
        sink.encode(Rows.of([{"x": 0.1}, {"x": 1 / 3}], [0, 0]))
    sink.deliver(epoch(1, {"x": 0.1}, sink=sink))
    assert table.rows("x::text") == [("0.1",)]


def test_a_column_that_the_table_lacks_is_named_and_can_be_added_later(table) -> None:
    table.asked(f"CREATE TABLE {table.name} (n bigint)")
    sink = table.open()
    with pytest.raises(SinkError, match="no column 'm'.*ALTER TABLE"):
        sink.deliver(epoch(1, {"n": 1}, {"n": 2, "m": 3}))
    table.asked(f"ALTER TABLE {table.name} ADD COLUMN m bigint")
    sink.deliver(epoch(1, {"n": 1}, {"n": 2, "m": 3}))
    assert sorted(table.asked(f"SELECT n, coalesce(m, 0) FROM {table.name}")) == [(1, 0), (2, 3)]


def test_the_first_epoch_must_say_the_type_of_each_column(table) -> None:
    with pytest.raises(SinkError, match="'x' is None in every row"):
        table.open().deliver(epoch(1, {"n": 1, "x": None}))
    with pytest.raises(SinkError, match="there is no table"):
        table.open(create=False)


def test_arrays_and_columns_with_defaults_are_filled(table) -> None:
    table.asked(
        f"CREATE TABLE {table.name} (id bigserial, n int, tags text[], note text DEFAULT 'none')"
    )
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1, "tags": ['a"b', "c\\d", None]}, {"n": 2, "note": None}))
    sink.deliver(epoch(2, {"n": 3, "note": "x", "id": 99}))
    found = table.asked(f"SELECT n, tags, note, id FROM {table.name} ORDER BY n")
    assert found == [(1, ['a"b', "c\\d", None], "none", 1), (2, None, None, 2), (3, None, "x", 99)]


def test_uuids_of_arrow_columns_are_uuids(table) -> None:
    value = UUID(int=7)
    columns = {n: pa.array([value.bytes], pa.uuid()) for n in ("u", "t")}
    rows = Rows([0], columns=pa.RecordBatch.from_pydict(columns))
    table.asked(f"CREATE TABLE {table.name} (u uuid, t text)")
    sink = table.open(schema=pa.schema([("u", pa.uuid()), ("t", pa.uuid())]))
    data = sink.encode(rows)
    sink.deliver(Delivery(1, "checkpoint-1", [Part("C/0", "d", lambda: data)]))
    assert table.rows() == [(value, str(value))]


def test_lists_are_items_of_arrays_of_json_and_dimensions_of_others(table) -> None:
    table.asked(f"CREATE TABLE {table.name} (j jsonb[], i int[])")
    table.open().deliver(epoch(1, {"j": [[1, 2], [], {"a": [3]}, None], "i": [[1, 2], [3, 4]]}))
    assert table.rows("j[1], j[2], j[3], j[4], i") == [
        ([1, 2], [], {"a": [3]}, None, [[1, 2], [3, 4]])
    ]


def test_an_upsert_keeps_the_last_row_of_each_key_also_within_an_epoch(table) -> None:
    sink = table.open(mode="upsert", key=["k", "day"])
    sink.deliver(epoch(1, *({"k": "a", "day": 1, "n": n, "x": n} for n in (3, 1, 2))))
    sink.deliver(epoch(2, {"k": "b", "day": 1, "n": 5, "x": 5}, {"k": "a", "day": 1, "n": 9}))
    assert table.asked(f"SELECT k, n, x FROM {table.name} ORDER BY k") == [
        ("a", 9, None),
        ("b", 5, 5),
    ]
    with pytest.raises(SinkError, match="no 'day', which is part of its key"):
        sink.encode(Rows.of([{"k": "a", "n": 1}], [0]))


def test_an_upsert_leaves_columns_with_a_default_to_the_database(table) -> None:
    table.asked(f"CREATE TABLE {table.name} (k text PRIMARY KEY, n int, made int DEFAULT 7)")
    sink = table.open(mode="upsert", key="k")
    sink.deliver(epoch(1, {"k": "a", "n": 1}, {"k": "b", "n": 1, "made": 8}, {"k": "b", "n": 2}))
    sink.deliver(epoch(2, {"k": "a", "n": 3, "made": 1}, {"k": "c", "n": 4}))
    sink.deliver(epoch(3, {"k": "a", "n": 5}))
    assert table.rows() == [("a", 5, 1), ("b", 2, 7), ("c", 4, 7)]


def test_an_upsert_without_a_unique_index_is_refused_when_it_opens(table) -> None:
    table.asked(f"CREATE TABLE {table.name} (k text, n int)")
    with pytest.raises(SinkError, match="no unique index on exactly"):
        table.open(mode="upsert", key="k")
    table.asked(f"ALTER TABLE {table.name} ADD CONSTRAINT late UNIQUE (k) DEFERRABLE")
    with pytest.raises(SinkError, match="that is not deferrable"):
        table.open(mode="upsert", key="k")
    table.asked(f"ALTER TABLE {table.name} DROP CONSTRAINT late")
    table.asked(f"CREATE UNIQUE INDEX ON {table.name} (k)")
    table.open(mode="upsert", key="k").deliver(epoch(1, {"k": "a", "n": 1}))
    assert table.rows() == [("a", 1)]


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": "n"}], ids=["append", "upsert"])
def test_a_crash_inside_the_transaction_leaves_nothing(table, options) -> None:
    table.open(**options).deliver(epoch(1, {"n": 1}))
    failpoints.arm("after-claim", crash)
    with pytest.raises(Crash):
        table.open(2, **options).deliver(epoch(2, {"n": 2}))
    failpoints.disarm()
    sink = table.open(3, **options)
    assert sink.high_water() == 1 and table.rows() == [(1,)]
    sink.deliver(epoch(2, {"n": 2}))
    assert table.rows() == [(1,), (2,)]


@pytest.mark.parametrize("failpoint", ["before-claim", "after-claim"])
def test_a_driver_that_was_replaced_changes_nothing_and_holds_nobody_up(table, failpoint) -> None:
    table.asked(f"CREATE TABLE {table.name} (n int)")
    paused, resume = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def pause_first() -> None:
        if not paused.is_set():
            paused.set()
            resume.wait(30)

    def drive(sink: Sink, given: Delivery) -> None:
        try:
            sink.deliver(given)
        except BaseException as error:
            errors.append(error)

    zombie = table.open(1)
    failpoints.arm(failpoint, pause_first)
    slow = threading.Thread(target=drive, args=[zombie, epoch(5, {"n": -5})])
    slow.start()
    assert paused.wait(10)
    successor = table.open(2)
    successor.deliver(epoch(1, {"n": 1}))
    resume.set()
    slow.join(30)
    with pytest.raises(Fenced, match="generation 2"):
        zombie.deliver(epoch(6, {"n": -6}))
    # The successor has ended its session; its next try finds the newer generation.
    assert [type(error) for error in errors] == [SinkUnavailable]
    successor.deliver(epoch(2, {"n": 2}))
    assert table.rows() == [(1,), (2,)]
    with pytest.raises(Fenced, match="generation 2"):
        table.open(1)


def test_an_open_sink_knows_its_table_under_all_names(table) -> None:
    short = sinks.postgres(f"{table.server.dsn()}?options=-csearch_path%3D{table.schema}", "t")
    full = table.open()
    other = sinks.postgres(table.server.dsn().replace("127.0.0.1", "localhost"), table.name)
    for sink in (short, other):
        sink.open(Opening("checkpoint-1", 1, 0, MemoryStore(), {}, "/checkpoint"))
        assert sink.target() == full.target() and sink.identity() != full.identity()


def test_pipelines_may_share_a_table_if_all_say_so(table) -> None:
    for checkpoint in ("a", "b"):
        sink = table.sink(shared=True)
        sink.open(Opening(checkpoint, 1, 0, MemoryStore()))
        part = Part("C/0", "d", lambda: sinks.memory().encode(Rows.of([{"n": 1}], [0])))
        for _ in range(2):
            sink.deliver(Delivery(1, checkpoint, [part]))
    assert table.rows() == [(1,), (1,)]
    sole = table.sink()
    with pytest.raises(SinkError, match="belongs to the checkpoint"):
        sole.open(Opening("c", 1, 0, MemoryStore()))


@contextmanager
def away(table: Table) -> Iterator[None]:
    table.server.process.kill()
    try:
        yield
    finally:
        table.server.process.start()


def test_a_server_that_is_away_is_an_outage_and_the_next_try_succeeds(table) -> None:
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1}))
    with away(table):
        with pytest.raises(SinkUnavailable, match="127.0.0.1"):
            sink.deliver(epoch(2, {"n": 2}))
        with pytest.raises(SinkUnavailable):
            sink.high_water()
        with pytest.raises(SinkUnavailable):
            table.open(2)
    sink.deliver(epoch(2, {"n": 2}))
    sink.deliver(epoch(2, {"n": 2}))
    assert table.rows() == [(1,), (2,)]


def random_text(length: int) -> str:
    """Text that does not become shorter when it is compressed."""
    return "".join(random.Random(1).choices(string.ascii_letters, k=length))


@pytest.mark.parametrize(
    ("options", "row", "said"),
    [
        ({"mode": "upsert", "key": "k"}, {"k": random_text(9_000)}, "maximum size is 8191"),
        ({}, {f"c{n}": n for n in range(1_700)}, "tables can have at most 1600 columns"),
    ],
    ids=["a-long-key", "many-columns"],
)
def test_a_limit_of_the_server_stops_the_run_and_is_no_outage(table, options, row, said) -> None:
    sink = table.open(**options)
    with pytest.raises(SinkError, match=said):
        sink.deliver(epoch(1, row))
    sink.deliver(epoch(1, {"k": "short"}))
    assert table.rows() == [("short",)]


def test_a_row_that_an_index_cannot_hold_is_named(table) -> None:
    table.asked(f"CREATE TABLE {table.name} (k text UNIQUE)")
    with pytest.raises(SinkError, match="row 2 of the epoch: index row requires"):
        table.open().deliver(epoch(1, {"k": "a"}, {"k": random_text(9_000)}))
    assert table.rows() == []


@pytest.mark.parametrize(
    ("state", "is_outage"),
    [
        (None, True), ("08006", True), ("25P03", True), ("40001", True), ("40P01", True),
        ("53100", True), ("53200", True), ("53300", True), ("55006", True), ("55P03", True),
        ("57014", True), ("57P01", True), ("57P03", True), ("58030", True), ("HV00N", True),
        ("27000", False), ("28P01", False), ("2F002", False), ("38000", False), ("39P01", False),
        ("40002", False), ("53400", False), ("54000", False), ("54011", False), ("55000", False),
        ("57P04", False), ("58P01", False), ("F0000", False), ("HV00R", False), ("22003", False),
        ("25006", False), ("42703", False), ("XX000", False),
    ],
)  # fmt: skip
def test_only_what_may_end_by_itself_is_an_outage(state, is_outage) -> None:
    psycopg = pytest.importorskip("psycopg")
    error = psycopg.OperationalError if state is None else psycopg.errors.lookup(state)
    database = Database("host=127.0.0.1 dbname=d")
    expected = SinkUnavailable if is_outage else SinkError
    with pytest.raises(expected, match="cannot take an epoch: it said so"):
        with database.explained("take an epoch"):
            raise error("it said so")


def test_no_password_is_shown_or_sent(table) -> None:
    sink = table.sink()
    assert PASSWORD not in repr(sink) + str(sink.identity()) + repr(vars(sink))
    assert PASSWORD.encode() not in cloudpickle.dumps(sink)
    wrong = sinks.postgres(table.server.dsn(password="top-secret"), table.name)
    with pytest.raises(SinkError, match="authentication failed") as raised:
        wrong.open(Opening("c", 1, 0, MemoryStore()))
    assert "top-secret" not in str(raised.value) and raised.value.__cause__ is None
    with pytest.raises(InvalidPipeline) as refused:
        sinks.postgres("postgresql://me:top-secret@[host/db", "t")
    assert "top-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "replace"}, "append or upsert"),
        ({"mode": "upsert"}, "needs key="),
        ({"key": "k"}, "needs key="),
        ({"mode": "upsert", "key": ["k", "k"]}, "different columns"),
        ({"table": "a.b.c"}, "not a table"),
        ({"table": "x" * 64}, "not a table"),
        ({"mode": "upsert", "key": "k", "schema": pa.schema([("n", pa.int64())])}, "'k' of key="),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, said) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidPipeline, match=said):
        sinks.postgres("host=127.0.0.1", **{"table": "t", **options})


@pytest.mark.parametrize(
    "failpoint",
    ["after-commit-write", "before-delivery", "before-claim", "after-claim", "after-publish"],
)
def test_a_run_that_dies_at_each_step_of_a_delivery_writes_every_row_once(
    table, failpoint, tmp_path: Path
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(40)))

    def pipeline() -> Pipeline:
        p = Pipeline("numbers")
        p.read("numbers", sources.jsonl(str(lines))).write(table.sink())
        return p

    for times in (1, 2, 2):
        left = [times]

        def die(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Crash

        failpoints.arm(failpoint, die)
        with pytest.raises(Crash):
            run_local(pipeline(), tmp_path / "state", slots=1, epoch_records=5)
        failpoints.disarm()
    run_local(pipeline(), tmp_path / "state", slots=1, epoch_records=5)
    assert table.rows() == [(n,) for n in range(40)]
