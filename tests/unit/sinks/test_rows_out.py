"""The sinks that take rows and not files: foreach, memory, console."""

import copy
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from headrace import sinks
from headrace.errors import InvalidPipeline, SinkError
from headrace.model.values.rows import Rows
from headrace.sinks import Delivery, Opening, Part, Sink
from headrace.store.memory import MemoryStore


def opening() -> Opening:
    return Opening("id", 1, 0, MemoryStore())


def opened(sink: Any) -> Any:
    sink.open(opening())
    return sink


def part(sink: Sink, rows: Rows, label: str = "a") -> Part:
    data = sink.encode(rows)
    return Part(label, "digest", lambda: data)


def of(*values: Any) -> Rows:
    return Rows.of(values, range(len(values)))


def columnar(**columns: Any) -> Rows:
    batch = pa.RecordBatch.from_pydict(columns)
    return Rows(of(*range(batch.num_rows)).timestamps, columns=batch)


class FakeSpark:
    """Makes the one call that foreach makes."""

    def createDataFrame(self, table: pa.Table) -> tuple[str, list[dict[str, Any]]]:
        if "bad" in table.schema.names:
            raise TypeError("unsupported type")
        return ("DataFrame", table.to_pylist())


def test_foreach_gets_one_data_frame_of_all_parts() -> None:
    calls: list[Any] = []
    sink = opened(sinks.foreach(lambda rows, epoch: calls.append((rows, epoch)), timestamp="at"))
    parts = [part(sink, of({"n": 1}), "a"), part(sink, of(), "b"), part(sink, of({"m": "x"}), "c")]
    sink.deliver(Delivery(7, "id", parts, spark=FakeSpark()))
    rows = [{"n": 1, "m": None, "at": 0}, {"n": None, "m": "x", "at": 0}]
    assert calls == [(("DataFrame", rows), 7)]


def test_foreach_gets_an_arrow_table_without_spark_and_nothing_without_rows() -> None:
    calls: list[Any] = []
    schema = pa.schema([("n", pa.int8()), ("note", pa.string())])
    sink = opened(sinks.foreach(lambda rows, epoch: calls.append(rows), schema=schema))
    sink.deliver(Delivery(1, "id", [part(sink, of())]))
    sink.deliver(Delivery(2, "id", [part(sink, of({"n": 1})), part(sink, columnar(n=[2]))]))
    assert [table.to_pylist() for table in calls] == [
        [{"n": 1, "note": None}, {"n": 2, "note": None}]
    ]
    assert calls[0].schema.equals(schema)
    assert sink.high_water() == 2


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"n": [1]}, {"n": [None]}, [1, None]),
        ({"n": ["x"]}, {"n": [b"\xff"]}, ['"x"', '"/w=="']),
        ({"n": [2**53 + 1]}, {"n": [0.5]}, ["9007199254740993", "0.5"]),
        ({"n": [1]}, {"n": [2.5]}, [1, 2.5]),
    ],
)
def test_foreach_joins_columns_whose_types_differ(first: Any, second: Any, expected: Any) -> None:
    calls: list[Any] = []
    sink = opened(sinks.foreach(lambda rows, epoch: calls.append(rows)))
    sink.deliver(Delivery(1, "id", [part(sink, columnar(**c)) for c in (first, second)]))
    assert calls[0]["n"].to_pylist() == expected


def test_a_function_that_raises_gets_its_epoch_again() -> None:
    calls: list[int] = []

    def fragile(rows: Any, epoch: int) -> None:
        calls.append(epoch)
        if len(calls) == 1:
            raise OSError("database is down")

    sink = opened(sinks.foreach(fragile))
    with pytest.raises(SinkError, match=r"fragile.*epoch 1.*database is down"):
        sink.deliver(Delivery(1, "id", [part(sink, of(1))]))
    sink.deliver(Delivery(1, "id", [part(sink, of(1))]))
    assert calls == [1, 1]


def test_rows_that_spark_refuses_are_told_from_a_function_that_raises() -> None:
    sink = opened(sinks.foreach(print))
    with pytest.raises(SinkError, match="cannot become a Spark DataFrame: TypeError: unsupported"):
        sink.deliver(Delivery(1, "id", [part(sink, of({"bad": 1}))], spark=FakeSpark()))


def test_foreach_travels_without_its_function() -> None:
    lock = threading.Lock()
    sink = opened(sinks.foreach(lambda rows, epoch: lock.acquire()))
    away = cloudpickle.loads(cloudpickle.dumps(sink))
    assert away.encode(of(1)) == sink.encode(of(1))
    away.open(opening())
    with pytest.raises(SinkError, match="driver"):
        away.deliver(Delivery(1, "id", [part(sink, of(1))]))
    assert copy.deepcopy(sink) is sink
    with pytest.raises(InvalidPipeline):
        sinks.foreach("not a function")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda: sinks.foreach(print), sinks.console])
def test_a_sink_that_was_not_opened_says_so(make: Any) -> None:
    with pytest.raises(SinkError, match="open"):
        make().deliver(Delivery(1, "id", []))


def test_memory_shows_values_records_and_epochs() -> None:
    sink = opened(sinks.memory())
    sink.deliver(Delivery(1, "id", [part(sink, Rows.of(["a", {"b": 1}], [10, 20]))]))
    sink.deliver(Delivery(2, "id", []))
    sink.deliver(Delivery(3, "id", [part(sink, columnar(n=[1, 2]))]))
    assert sink.rows == ["a", {"b": 1}, {"n": 1}, {"n": 2}]
    assert sink.records[:2] == [("a", 10), ({"b": 1}, 20)]
    assert sink.epochs == {1: ["a", {"b": 1}], 3: [{"n": 1}, {"n": 2}]}


def test_memory_travels_empty_and_is_never_copied_on_the_driver() -> None:
    sink = opened(sinks.memory())
    sink.deliver(Delivery(1, "id", [part(sink, of("x" * 10_000))]))
    pickled = cloudpickle.dumps(sink)
    assert len(pickled) < 500
    assert cloudpickle.loads(pickled).rows == []
    assert copy.deepcopy({"sink": sink})["sink"] is copy.copy(sink) is sink


def test_a_cleared_memory_keeps_its_place_and_may_serve_another_checkpoint() -> None:
    sink = opened(sinks.memory())
    sink.deliver(Delivery(2, "id", [part(sink, of(1))]))
    sink.clear()
    assert sink.rows == []
    sink.deliver(Delivery(2, "id", [part(sink, of(1))]))
    assert sink.rows == []
    sink.open(Opening("other", 1, 0, MemoryStore()))
    sink.deliver(Delivery(1, "other", [part(sink, of(5))]))
    assert sink.rows == [5]


def test_console_prints_a_line_per_row_up_to_its_limit(capsys: Any) -> None:
    sink = opened(sinks.console(limit=3))
    parts = [part(sink, of({"é": "a\nb"}, 2)), part(sink, of(None, 4, 5))]
    sink.deliver(Delivery(1, "id", parts))
    sink.deliver(Delivery(2, "id", []))
    assert capsys.readouterr().out == '{"é":"a\\nb"}\n2\nnull\n… and 2 more\n'


@pytest.mark.parametrize(("limit", "lines"), [(0, 1), (2, 2), (None, 2)])
def test_console_limits_are_exact(limit: Any, lines: int, capsys: Any) -> None:
    sink = opened(sinks.console(limit=limit))
    sink.deliver(Delivery(1, "id", [part(sink, of(1, 2))]))
    assert len(capsys.readouterr().out.splitlines()) == lines
    with pytest.raises(InvalidPipeline):
        sinks.console(limit=-1)


def test_console_survives_a_terminal_that_knows_only_ascii(monkeypatch: Any) -> None:
    import io

    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    sink = opened(sinks.console())
    sink.deliver(Delivery(1, "id", [part(sink, of("é"))]))
    assert raw.getvalue() == b'"\\xe9"\n'


def test_foreach_gives_cells_of_several_kinds_as_json_so_that_a_committed_epoch_arrives() -> None:
    calls: list[Any] = []
    sink = opened(sinks.foreach(lambda rows, epoch: calls.append(rows.to_pylist())))
    parts = [
        part(sink, of({"n": 1, "m": 1}, {"n": "a"}), "a"),
        part(sink, of({"n": [1, {"x": None}]}, {"n": None}, {"n": 2**70}), "b"),
    ]
    sink.deliver(Delivery(1, "id", parts))
    cells = ["1", '"a"', '[1,{"x":null}]', None, str(2**70)]
    assert calls == [[{"n": cell, "m": 1 if i == 0 else None} for i, cell in enumerate(cells)]]


@pytest.mark.parametrize(
    ("options", "value"),
    [({"schema": pa.schema([("n", pa.int64())])}, {"n": "x"}), ({"timestamp": "n"}, {"n": 1}),
     ({}, {5: 1}), ({}, {})],
)  # fmt: skip
def test_foreach_refuses_what_is_no_table_before_it_is_committed(options: Any, value: Any) -> None:
    with pytest.raises(SinkError):
        sinks.foreach(print, **options).encode(of(value))
