"""`sinks.postgres` on a real server: types, keys, zombies, outages, crashes, secrets."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.servers.postgres import PASSWORD, PostgresServer, postgres
from tests.spark.support import run_local

from headrace import Pipeline, failpoints, sinks, sources
from headrace.errors import Fenced, InvalidPipeline, SinkError, SinkUnavailable
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.rows import Rows
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
        ("date", "May", "invalid input syntax"),
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
