"""`sinks.delta` and `sinks.iceberg` with the real libraries: types, foreign commits, zombies."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.spark.support import run_local

from headrace import Pipeline, failpoints, sinks, sources
from headrace.errors import IncompatibleState, InvalidPipeline, SinkError, SinkUnavailable
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.codec import decode_value, packed
from headrace.model.values.rows import Rows
from headrace.store.disk import DiskStore


class Crash(BaseException):
    pass


class Table:
    """A table of some format, and the checkpoint that writes to it."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "table"

    def sink(self, **options: Any) -> Sink:
        raise NotImplementedError

    def read(self) -> pa.Table:
        raise NotImplementedError

    def version(self) -> int:
        """How many versions the table has."""
        raise NotImplementedError

    def exists(self) -> bool:
        raise NotImplementedError

    def append(self, table: pa.Table) -> None:
        """Somebody else writes."""
        raise NotImplementedError

    def open(self, generation: int = 1, commits: Any = None, **options: Any) -> Sink:
        sink = self.sink(**options)
        store = DiskStore(self.root / "checkpoint")
        sink.open(Opening("checkpoint-1", generation, 0, store, commits or {}, "/checkpoint"))
        return sink

    def numbers(self) -> list[int]:
        return sorted(self.read()["n"].to_pylist())


class DeltaTable(Table):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.library = pytest.importorskip("deltalake")

    def sink(self, **options: Any) -> Sink:
        return sinks.delta(self.path, **options)

    def read(self) -> pa.Table:
        return self.library.DeltaTable(str(self.path)).to_pyarrow_table()

    def version(self) -> int:
        return self.library.DeltaTable(str(self.path)).version()

    def exists(self) -> bool:
        return self.library.DeltaTable.is_deltatable(str(self.path))

    def append(self, table: pa.Table) -> None:
        self.library.write_deltalake(str(self.path), table, mode="append")


class IcebergTable(Table):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.library = pytest.importorskip("pyiceberg.catalog")
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}/warehouse",
        }

    def sink(self, **options: Any) -> Sink:
        return sinks.iceberg("shop.numbers", properties=self.properties, **options)

    def loaded(self) -> Any:
        return self.library.load_catalog("default", **self.properties).load_table("shop.numbers")

    def read(self) -> pa.Table:
        return self.loaded().scan().to_arrow()

    def version(self) -> int:
        return len(self.loaded().snapshots())

    def exists(self) -> bool:
        catalog = self.library.load_catalog("default", **self.properties)
        return catalog.table_exists("shop.numbers")

    def append(self, table: pa.Table) -> None:
        self.loaded().append(table)


@pytest.fixture(params=[DeltaTable, IcebergTable], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    yield request.param(tmp_path)
    failpoints.disarm()


def epoch(number: int, *values: Any, commit: str = "") -> Delivery:
    data = sinks.memory().encode(Rows.of(list(values), [1_000_000] * len(values)))
    return Delivery(number, "checkpoint-1", [Part("C/0", "d", lambda: data)], commit=commit)


def test_a_table_is_created_from_rows_and_keeps_every_kind_of_value(table) -> None:
    at = datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    values = {
        "i": 2**63 - 1, "f": 1.5, "t": "naïve", "b": b"\x00\xff", "yes": True, "big": 2**70,
        "at": at, "nested": {"a": [1, None], "b": {"c": "x"}},
    }  # fmt: skip
    table.open(timestamp="seen").deliver(epoch(1, values, {"i": 1, "gone": None}))
    found = table.read()
    assert found.to_pylist()[0] == {
        **values, "big": Decimal(2**70), "seen": datetime.fromtimestamp(1, UTC),
    }  # fmt: skip
    assert found.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert "gone" not in found.schema.names


def test_uuids_become_text_whatever_they_were_given_as(table) -> None:
    value = UUID(int=7)
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1, "u": value}))
    columns = {"n": pa.array([2]), "u": pa.array([value.bytes], pa.uuid())}
    data = sink.encode(Rows([0], columns=pa.RecordBatch.from_pydict(columns)))
    sink.deliver(Delivery(2, "checkpoint-1", [Part("C/0", "d", lambda: data)]))
    sink.deliver(epoch(3, decode_value(packed({"n": 3, "u": value}))))
    assert table.read()["u"].to_pylist() == [str(value)] * 3


def test_arrow_types_that_tables_lack_become_wider_ones_or_are_refused(table) -> None:
    schema = pa.schema([("u", pa.uint64()), ("h", pa.float16()), ("at", pa.timestamp("ns", "UTC"))])
    sink = table.open(schema=schema)
    sink.deliver(epoch(1, {"u": 2**64 - 1, "h": 0.5, "at": 1_000_000}))
    [row] = table.read().to_pylist()
    assert row == {"u": Decimal(2**64 - 1), "h": 0.5, "at": datetime.fromtimestamp(1, UTC)}
    with pytest.raises(SinkError, match="'t' is of type time64.*such tables do not have"):
        table.sink(schema=pa.schema([("t", pa.time64("us"))]))


def test_rows_that_fit_no_column_are_refused_before_the_commit_with_a_schema(table) -> None:
    sink = table.sink(schema=pa.schema([("n", pa.int64())]))
    for value, said in (
        ({"n": "x"}, "'n', row 1"),
        ({"m": 2}, "'m'"),
        ({"n": 2**70}, "'n', row 1"),
    ):
        with pytest.raises(SinkError, match=said):
            sink.encode(Rows.of([value], [0]))


@pytest.mark.parametrize(
    ("value", "why"),
    [(1.5, "a float"), (True, "truth value"), ("1", "text"), (2**63, "too big|too large|int")],
)
def test_a_value_that_does_not_fit_is_named_with_its_row_and_column(table, value, why) -> None:
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1}))
    with pytest.raises(SinkError, match=f"column 'n', row 2 of the epoch.*({why})"):
        sink.deliver(epoch(2, {"n": 2}, {"n": value}))
    assert table.numbers() == [1] and sink.high_water() == 1


def test_a_column_that_takes_no_none_is_named_with_its_row(table) -> None:
    given = {"schema": pa.schema([pa.field("n", pa.int64(), nullable=False), ("t", pa.string())])}
    sink = table.open(**given)
    with pytest.raises(SinkError, match="column 'n', row 1 of the epoch: it is None"):
        sink.encode(Rows.of([{"t": "x"}], [0]))
    sink.deliver(epoch(1, {"n": 1, "t": "x"}))
    with pytest.raises(SinkError, match="column 'n', row 2 of the epoch: it is None"):
        table.open().deliver(epoch(2, {"n": 2}, {"t": "x"}))
    assert table.numbers() == [1]
    with pytest.raises(SinkError, match="'n' takes no None, and schema= does not name it"):
        table.open(schema=pa.schema([("t", pa.string())]))


def test_a_new_column_is_refused_or_added_and_new_names_inside_are_never_dropped(table) -> None:
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1, "x": {"a": 1}}))
    with pytest.raises(SinkError, match=r"no column 'm' \(string\).*evolve=True"):
        sink.deliver(epoch(2, {"n": 2, "m": "new"}))
    with pytest.raises(SinkError, match="no 'b' inside"):
        sink.deliver(epoch(2, {"n": 2, "x": {"a": 1, "b": 2}}))
    evolving = table.open(evolve=True)
    evolving.deliver(epoch(2, {"n": 2, "m": "new"}))
    evolving.deliver(epoch(3, {"n": 3}))
    found = {row["n"]: row["m"] for row in table.read().to_pylist()}
    assert found == {1: None, 2: "new", 3: None}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"a": None, "b": 1}, {"b": 1}),
        ({"a": {"c": None}, "b": 1}, {"b": 1}),
        ({"a": [], "b": [{"c": None, "d": 1}]}, {"b": [{"d": 1}]}),
        ([{"a": None}], None),
        ([None], None),
        ([], None),
        ({}, None),
    ],
)
def test_what_shows_no_type_is_left_out_of_a_new_table(table, given, found) -> None:
    sink = table.open()
    sink.encode(Rows.of([{"n": 1, "v": given}], [0]))
    sink.deliver(epoch(1, {"n": 1, "v": given}))
    sink.deliver(epoch(2, {"n": 2, "v": given}))
    [first, second] = sorted(table.read().to_pylist(), key=lambda row: row["n"])
    assert first == ({"n": 1} if found is None else {"n": 1, "v": found})
    assert second == {**first, "n": 2}


def test_what_shows_no_type_comes_with_its_first_value_where_the_table_may_grow(table) -> None:
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1, "v": {"a": None, "b": 1}, "w": [], "x": [{"c": 1}]}))
    later = [
        {"n": 2, "v": {"a": "now", "b": 2}},
        {"n": 3, "w": ["now"]},
        {"n": 4, "x": [{"c": 1, "d": {"e": 1.5}}, {"c": 2}]},
    ]
    for row, said in zip(later, ("no 'a' inside", "no column 'w'", "no 'd' inside"), strict=True):
        with pytest.raises(SinkError, match=said) as raised:
            sink.deliver(epoch(2, row))
        assert "evolve=True" in str(raised.value)
    evolving = table.open(evolve=True)
    evolving.deliver(epoch(2, *later))
    evolving.deliver(epoch(3, {"n": 5, "v": {"a": None, "b": 5}, "w": [], "x": [{"d": {}}]}))
    rows = sorted(table.read().to_pylist(), key=lambda row: row["n"])
    assert [row["v"] for row in rows[:2]] == [{"b": 1, "a": None}, {"b": 2, "a": "now"}]
    assert [row["w"] for row in rows] == [None, None, ["now"], None, []]
    assert rows[0]["x"] == [{"c": 1, "d": None}]
    assert rows[3]["x"] == [{"c": 1, "d": {"e": 1.5}}, {"c": 2, "d": None}]
    assert rows[4]["v"] == {"b": 5, "a": None}


def test_parts_of_an_epoch_that_show_different_names_make_one_column(table) -> None:
    parts = [{"a": None, "b": 1}, {"a": "x", "b": None}, {"a": [], "b": None}]
    data = [sinks.memory().encode(Rows.of([{"n": n, "v": v}], [0])) for n, v in enumerate(parts)]
    given = [Part(f"C/{n}", "d", lambda n=n: data[n]) for n in range(2)]
    table.open().deliver(Delivery(1, "checkpoint-1", given))
    rows = sorted(table.read().to_pylist(), key=lambda row: row["n"])
    assert [row["v"] for row in rows] == [{"a": None, "b": 1}, {"a": "x", "b": None}]


def test_an_epoch_that_shows_no_type_at_all_asks_for_a_schema(table) -> None:
    with pytest.raises(SinkError, match="no column of its first epoch.*schema="):
        table.open().deliver(epoch(1, {"v": []}))
    sink = table.open(schema=pa.schema([("v", pa.list_(pa.string()))]))
    sink.deliver(epoch(1, {"v": []}))
    assert table.read().to_pylist() == [{"v": []}]


def test_produced_decimals_and_times_fit_columns_of_their_type(table) -> None:
    at = datetime(2024, 5, 1, 12, 30, 0, 5)
    row = {
        "amount": Decimal("1.25"),
        "day": at.date(),
        "at": at,
        "items": [{"net": Decimal("0.5")}],
    }
    schema = pa.schema(
        [
            ("amount", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("items", pa.list_(pa.struct([("net", pa.decimal128(10, 2))]))),
        ]
    )
    sink = table.open(schema=schema)
    data = sink.encode(Rows.of([decode_value(packed(row))], [0]))
    sink.deliver(Delivery(1, "checkpoint-1", [Part("C/0", "d", lambda: data)]))
    assert table.read().to_pylist() == [row]
    with pytest.raises(SinkError, match="column 'amount', row 1.*rounded"):
        sink.encode(Rows.of([{**row, "amount": Decimal("1.255")}], [0]))
    # Without a schema=, into a table that is there.
    table.open().deliver(epoch(2, row))
    assert table.read().to_pylist() == [row, row]


def test_epochs_without_rows_make_no_version_of_the_table_and_are_remembered(table) -> None:
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1}))
    version = table.version()
    for number in range(2, 6):
        sink.deliver(epoch(number))
    assert table.version() == version
    again = table.open()
    assert again.high_water() == 5
    again.deliver(epoch(6, {"n": 6}))
    assert table.numbers() == [1, 6]


def test_commits_of_others_neither_stop_nor_repeat_an_epoch(table) -> None:
    sink = table.open()
    sink.deliver(epoch(1, {"n": 1}))
    left = [2]

    def other() -> None:
        if left[0]:
            left[0] -= 1
            table.append(pa.table({"n": pa.array([-left[0] - 1])}))

    failpoints.arm("before-claim", other)
    sink.deliver(epoch(2, {"n": 2}))
    assert table.numbers() == [-2, -1, 1, 2]


def test_a_driver_that_sleeps_before_its_commit_changes_nothing(table) -> None:
    paused, resume = threading.Event(), threading.Event()

    def pause_first() -> None:
        if not paused.is_set():
            paused.set()
            resume.wait(60)

    zombie = table.open()
    zombie.deliver(epoch(1, {"n": 1}))
    failpoints.arm("before-claim", pause_first)
    slow = threading.Thread(target=zombie.deliver, args=[epoch(2, {"n": 2})])
    slow.start()
    assert paused.wait(60)
    successor = table.open(2)
    successor.deliver(epoch(2, {"n": 2}))
    successor.deliver(epoch(3, {"n": 3}))
    resume.set()
    slow.join(60)
    assert table.numbers() == [1, 2, 3] and successor.high_water() == 3


def test_a_driver_that_creates_the_table_does_not_repeat_an_epoch_of_who_sees_it_first(
    table,
) -> None:
    slow, other = table.open(), table.open()
    read, left = slow._table.refresh, [1]

    def refresh() -> bool:
        if slow._table.is_there() is False and table.exists() and left[0]:
            left[0] -= 1
            other.deliver(epoch(1, {"n": 1}))
        return read()

    slow._table.refresh = refresh
    slow.deliver(epoch(1, {"n": 1}))
    assert left == [0] and table.numbers() == [1]


def test_a_zombie_is_refused_by_a_table_that_somebody_else_has_made(table) -> None:
    """Such a table says nothing of retries: the library would rebase what comes too late."""
    maker = table.open(shared=True)
    maker.deliver(epoch(1, {"n": 1}))
    if isinstance(table, IcebergTable):
        with table.loaded().transaction() as made:
            made.remove_properties("commit.retry.num-retries")
    zombie, left = table.open(shared=True), [1]

    def overtaken() -> None:
        if left[0]:
            left[0] -= 1
            table.open(2, shared=True).deliver(epoch(2, {"n": 2}))

    failpoints.arm("before-claim", overtaken)
    zombie.deliver(epoch(2, {"n": 2}))
    assert table.numbers() == [1, 2] and left == [0]


def test_a_copy_of_the_checkpoint_that_wrote_before_is_found_though_epochs_were_empty(
    table, tmp_path: Path
) -> None:
    """Epoch 2 was empty here, and has rows in the copy."""
    first = table.open()
    first.deliver(epoch(1, {"n": 1}, commit="a1"))
    first.deliver(epoch(2, commit="a2"))
    copy = table.sink()
    copy.open(Opening("checkpoint-1", 2, 1, DiskStore(tmp_path / "copy"), {1: "a1"}, "/copy"))
    copy.deliver(epoch(2, {"n": -2}, commit="b2"))
    with pytest.raises(IncompatibleState, match="has epoch 2 from another copy"):
        first.deliver(epoch(3, {"n": 3}, commit="a3"))
    assert table.numbers() == [-2, 1]


def test_credentials_are_neither_shown_nor_sent(tmp_path: Path) -> None:
    options = {"aws_secret_access_key": "top-secret"}
    sink = sinks.delta("s3://bucket/t?region=eu-west-1", storage_options=options)
    assert "top-secret" not in f"{sink!r} {sink.identity()} {vars(sink)}"
    assert b"top-secret" not in cloudpickle.dumps(sink)
    with pytest.raises(InvalidPipeline, match="there is append"):
        sinks.delta(tmp_path, mode="overwrite")
    with pytest.raises(InvalidPipeline, match="a directory, s3://"):
        sinks.delta("hdfs://host/t")


def test_credentials_of_a_catalog_are_neither_shown_nor_sent(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    sink = sinks.iceberg("shop.t", properties={"type": "rest", "token": "top-secret"})
    assert "top-secret" not in f"{sink!r} {sink.identity()} {vars(sink)}"
    assert b"top-secret" not in cloudpickle.dumps(sink)
    with pytest.raises(InvalidPipeline, match="has no namespace"):
        sinks.iceberg("t")


def test_an_iceberg_table_refuses_times_that_its_library_cannot_hold(tmp_path: Path) -> None:
    sink = IcebergTable(tmp_path).open()
    with pytest.raises(SinkError, match="OverflowError.*years 1 to 9999"):
        sink.deliver(epoch(1, {"n": 1, "window_start": 253_402_300_800_000_010}))
    sink.deliver(epoch(1, {"n": 1, "window_start": 253_402_300_799_999_999}))


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (OverflowError("x"), False), (ZeroDivisionError("x"), False), (IndexError("x"), False),
        (AttributeError("x"), False), (pa.ArrowInvalid("x"), False), (TypeError("x"), False),
        (OSError("x"), True), (ConnectionError("x"), True), (RuntimeError("x"), True),
        (ModuleNotFoundError("x"), False), (OSError(errno.ENAMETOOLONG, "x"), False),
        (type("NotInstalledError", (Exception,), {})("x"), False),
        (type("ServiceUnavailableError", (Exception,), {})("x"), True),
    ],
)  # fmt: skip
def test_only_errors_that_may_end_by_themselves_are_outages_of_a_catalog(
    error, is_outage, tmp_path: Path
) -> None:
    table = IcebergTable(tmp_path).open()._table
    with pytest.raises(SinkUnavailable if is_outage else SinkError, match="cannot be read"):
        with table._explained("be read"):
            raise error


@pytest.mark.parametrize(
    ("text", "is_outage"),
    [
        ("Generic S3 error: Error after 3 retries", True),
        ("Kernel error: Generic MicrosoftAzure error: x", True),
        ("error sending request for url", True),
        ("Connection refused (os error 111)", True),
        ("Generic DeltaTable error: External error: 1 rows failed validation check", False),
        ("Generic error: Error partitioning record batch", False),
        ("Kernel error: Generic delta kernel error: x", False),
        ("no field named connection", False),
        ("Generic LocalFileSystem error: Unable to open file: File name too long", False),
    ],
)
def test_only_errors_of_a_store_are_outages_of_a_delta_table(
    text, is_outage, tmp_path: Path
) -> None:
    table = DeltaTable(tmp_path).open()._table
    with pytest.raises(SinkUnavailable if is_outage else SinkError, match="cannot be read"):
        with table._explained("be read"):
            raise Exception(text)


def test_a_delta_table_that_refuses_rows_stops_the_run(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path)
    sink = table.open()
    sink.deliver(epoch(1, {"connection": 1}))
    made = table.library.DeltaTable(str(table.path))
    made.alter.add_constraint({"known": "connection > 0"})
    with pytest.raises(SinkError, match="cannot take an epoch: .*validation"):
        sink.deliver(epoch(2, {"connection": -1}))
    # What the library cannot do is no race with another writer.
    log = table.path / "_delta_log" / f"{made.version() + 1:020d}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["someday"]}
    log.write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(SinkError, match="cannot take an epoch: Unsupported .*someday"):
        sink.deliver(epoch(2, {"connection": 2}))


NUL, TWICE, EMPTY = "a name in Delta has no NUL", "one name to Delta", "is not empty"


@pytest.mark.parametrize(
    ("kind", "row", "said"),
    [
        (DeltaTable, {"a\0": 1}, NUL),
        (DeltaTable, {"a": 1, "b": [{"c": 1, "C": 2}]}, f"'b.c' and 'b.C' have {TWICE}"),
        (DeltaTable, {"n": 1, "N": 2}, f"'n' and 'N' have {TWICE}"),
        (IcebergTable, {"": 1}, EMPTY),
        (IcebergTable, {"a": {"": 1}}, f"'a.': a name in Iceberg {EMPTY}"),
    ],
)
def test_names_that_a_format_cannot_have_are_refused_before_the_commit(
    tmp_path: Path, kind: type[Table], row: dict[str, Any], said: str
) -> None:
    table = kind(tmp_path)
    with pytest.raises(SinkError, match=said):
        table.sink().encode(Rows.of([row], [0]))
    with pytest.raises(InvalidPipeline, match=said):
        table.sink(schema=pa.Table.from_pylist([row]).schema)


def test_empty_dicts_are_rows_of_none_where_a_schema_says_the_columns(table: Table) -> None:
    sink = table.open(schema=pa.schema([("n", pa.int64())]))
    sink.encode(Rows.of([{}, {}], [0, 0]))
    sink.deliver(epoch(1, {}, {}))
    assert table.read()["n"].to_pylist() == [None, None]


def test_a_link_to_a_delta_table_is_the_same_place(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    assert sinks.delta(tmp_path / "link" / "table").identity() == table.sink().identity()


def test_a_delta_table_that_was_made_anew_is_found_out_and_not_harmed(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path)
    sink = table.open()
    for number in range(1, 4):
        sink.deliver(epoch(number, {"n": number}))
    shutil.rmtree(table.path)
    table.append(pa.table({"n": [100]}))
    with pytest.raises(SinkError, match="made anew: start again"):
        sink.deliver(epoch(4, {"n": 4}))
    assert table.numbers() == [100]
    table.open().deliver(epoch(4, {"n": 4}))
    assert table.numbers() == [4, 100]


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}])
def test_a_delta_table_is_not_partitioned_by_what_it_cannot_name(value, tmp_path: Path) -> None:
    sink = DeltaTable(tmp_path).open(partition_by="k")
    with pytest.raises(SinkError, match="column 'k' of partition_by= holds"):
        sink.deliver(epoch(1, {"k": value, "n": 1}))


def test_an_iceberg_table_keeps_types_that_a_sink_does_not_give(tmp_path: Path) -> None:
    table = IcebergTable(tmp_path)
    types = pytest.importorskip("pyiceberg.types")
    catalog = table.library.load_catalog("default", **table.properties)
    catalog.create_namespace("shop")
    catalog.create_table(
        "shop.numbers",
        pa.schema([("n", pa.int64()), ("x", pa.binary(2)), ("t", pa.time64("us"))]),
    )
    with table.loaded().update_schema() as columns:
        columns.add_column("u", types.UUIDType())
    row = {"n": 1, "x": b"ab", "t": time(12, 30), "u": UUID(int=7)}
    table.open().deliver(epoch(1, row))
    assert table.read().to_pylist() == [row]


def test_an_iceberg_snapshot_names_its_epoch_and_the_mark_outlives_it(tmp_path: Path) -> None:
    table = IcebergTable(tmp_path)
    sink = table.open(partition_by="k")
    sink.deliver(epoch(1, {"n": 1, "k": "a"}, commit="m1"))
    sink.deliver(epoch(2, {"n": 2, "k": "b"}, commit="m2"))
    said = dict(table.loaded().current_snapshot().summary.additional_properties)
    assert said["headrace.checkpoint"] == "checkpoint-1" and said["headrace.epoch"] == "2"
    assert said["headrace.commit"] == "m2"
    first = table.loaded().snapshots()[0].snapshot_id
    table.loaded().maintenance.expire_snapshots().by_id(first).commit()
    table.append(pa.table({"n": [-1], "k": ["c"]}))
    loaded = table.loaded()
    loaded.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in loaded.snapshots()[:-1]]
    ).commit()
    again = table.open(2)
    assert again.high_water() == 2
    again.deliver(epoch(2, {"n": 2, "k": "b"}, commit="m2"))
    assert table.numbers() == [-1, 1, 2]
    with pytest.raises(SinkError, match="is partitioned by"):
        table.open(3, partition_by="n")


@pytest.mark.parametrize("failpoint", ["after-commit-write", "before-claim", "after-publish"])
def test_a_run_that_dies_at_each_step_of_a_delivery_writes_every_row_once(
    table, failpoint, tmp_path: Path
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(20)))

    def pipeline() -> Pipeline:
        p = Pipeline("numbers")
        p.read("numbers", sources.jsonl(str(lines))).write(table.sink())
        return p

    for times in (1, 2):
        left = [times]

        def die(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Crash

        failpoints.arm(failpoint, die)
        with pytest.raises(Crash):
            run_local(pipeline(), tmp_path / "state", slots=1, epoch_records=4)
        failpoints.disarm()
    run_local(pipeline(), tmp_path / "state", slots=1, epoch_records=4)
    assert table.numbers() == list(range(20))
