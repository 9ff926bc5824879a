"""State to begin with: a table becomes state as a whole, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.pipelines import at

from headrace import Checkpoint, Computation, Map, Pipeline, failpoints, sources, state
from headrace.cli.main import cli
from headrace.engine.primitives.imports.importing import import_state
from headrace.engine.replay.drop import drop_state
from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.log.identity import read_identity
from headrace.plan.state.choice import StateChoice
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.testing import Harness


@dataclass
class Address:
    city: str
    zip: int | None = None


class Customer(Computation):
    visits: int = state(0)
    spent: float = state(0.0)
    name: str = state("nobody")
    nickname: str | None = state(None)
    address: Address | None = state(None)
    tags: tuple[str, ...] = state(())
    scores: Map[str, int] = state()
    seen: Map[int, None] = state()
    rates: list[float] = state()
    at: datetime | None = state(None)

    def process_record(self, record, ctx):
        self.visits += 1
        ctx.produce([ctx.key, self.visits, self.name, sorted(self.scores.items())])


def pipeline(computation: Any = Customer, key: Any = "k") -> Pipeline:
    p = Pipeline("shop")
    visits = p.read("in", sources.memory([], timestamp="t"))
    p.compute(computation, inputs={visits: key}, outputs="out", name="C")
    return p


def begun(table: Any, computation: Any = Customer, **options: Any) -> dict[Any, dict[str, Any]]:
    """The state after an import."""
    store = MemoryStore()
    import_state(pipeline(computation).freeze(), store, "C", table, **options)
    assert Checkpoint(store).verify().is_whole
    return dict(Checkpoint(store).scan("C"))


ROWS = pa.table({"k": ["a", "b"], "visits": [3, 2**53 + 1], "name": ["Ann", None]})


def test_hooks_find_what_was_imported_and_go_on():
    with Harness(pipeline()) as h:
        h.import_state("C", ROWS)
        h.send("in", at(1, "a"), at(2, "b"), at(3, "c"))
        h.crash()
        assert sorted(h.read("out")) == [
            ["a", 4, "Ann", []],
            ["b", 2**53 + 2, "nobody", []],
            ["c", 1, "nobody", []],
        ]
        h.send("in", at(4, "a"))
        assert h.read("out")[-1][1] == 5
        assert h.epoch == 3, "the import was epoch 1"


def test_a_state_store_is_filled_too():
    with Harness(pipeline(), state=MemoryServer()) as h:
        h.import_state("C", ROWS)
        h.send("in", at(1, "a"))
        h.crash()
        h.send("in", at(2, "a"))
        assert [row[1] for row in h.read("out")] == [4, 5]


def test_what_was_dropped_can_be_imported_again_into_a_state_store():
    store, server = MemoryStore(), MemoryServer()
    for number in (3, 30, 300):
        table = pa.table({"k": ["a", str(number)], "visits": [number, 1]})
        import_state(
            pipeline().freeze(), store, "C", table, state=StateChoice("memory"),
            opens=partial(MemoryBackend, server),
        )  # fmt: skip
        found = Checkpoint(store, opens=partial(MemoryBackend, server))
        assert dict(found.scan("C")) == {"a": {"visits": number}, str(number): {"visits": 1}}
        drop_state(store, "C", None)


def test_slots_may_change_after_an_import():
    with Harness(pipeline(), slots=3) as h:
        h.import_state("C", pa.table({"k": [f"k{i}" for i in range(100)], "visits": range(100)}))
        h.send("in", at(1, "k7"))
        h.rescale(5)
        h.send("in", *(at(2 + i, f"k{i}") for i in range(100)))
        found = {key: visits for key, visits, *_ in h.read("out")}
        assert found == {f"k{i}": i + 1 + (i == 7) for i in range(100)}


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars", "lazy", "dicts", "parquet"])
def test_every_form_of_a_table_is_taken(form: str, tmp_path: Path) -> None:
    given: Any = {
        "arrow": lambda: ROWS,
        "pandas": lambda: ROWS.to_pandas(),
        "polars": lambda: pl.from_arrow(ROWS),
        "lazy": lambda: pl.from_arrow(ROWS).lazy(),
        "dicts": lambda: ROWS.to_pylist(),
        "parquet": lambda: pq.write_table(ROWS, tmp_path / "a.parquet") or tmp_path,
    }[form]()
    assert begun(given) == {"a": {"visits": 3, "name": "Ann"}, "b": {"visits": 2**53 + 1}}


def test_values_of_all_kinds_fit_their_fields():
    table = pa.table(
        {
            "k": ["a", "b"],
            "spent": pa.array([1, None], pa.int64()),
            "nickname": ["A", None],
            "address": [{"city": "Bern", "zip": 3000}, {"city": "Ur", "zip": None}],
            "tags": [["x", "y"], []],
            "scores": pa.array([[("m", 1), ("n", 2)], []], pa.map_(pa.string(), pa.int64())),
            "seen": [[1, 2], None],
        }
    )
    assert begun(table) == {
        "a": {
            "spent": 1.0,
            "nickname": "A",
            "address": {"city": "Bern", "zip": 3000},
            "tags": ["x", "y"],
            "scores": {"m": 1, "n": 2},
            "seen": {1: None, 2: None},
        },
        "b": {"address": {"city": "Ur", "zip": None}},
    }


@pytest.mark.parametrize(
    "scores",
    [
        pa.array([{"m": 1, "n": None}]),
        pa.array([[{"key": "m", "value": 1}]]),
        pa.array([[{"value": 1, "key": "m"}]]),
        pa.array([[("m", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_maps_come_in_several_forms(scores: pa.Array) -> None:
    assert begun(pa.table({"k": ["a"], "scores": scores})) == {"a": {"scores": {"m": 1}}}


def test_keys_are_text_numbers_or_several_columns():
    whole = pa.table({"u": pa.array([1, 2**63], pa.uint64()), "visits": [1, 2]})
    assert set(begun(whole, key="u")) == {1, 2**63}
    parts = pa.table({"u": [1, 2], "v": ["x", None], "visits": [1, 2]})
    assert set(begun(parts, key=("u", "v"))) == {(1, "x"), (2, None)}


def test_what_was_exported_can_be_imported(tmp_path: Path) -> None:
    first = MemoryStore()
    rows = [{"k": ("a", i), "visits": i, "scores": {"m": i}} for i in range(1, 40)]
    table = pa.table(
        {
            "key": pa.array([{"part_0": "a", "part_1": r["visits"]} for r in rows]),
            "visits": [r["visits"] for r in rows],
            "scores": pa.array(
                [[("m", r["visits"])] for r in rows], pa.map_(pa.string(), pa.int64())
            ),
        }
    )
    import_state(pipeline(key=("k", "l")).freeze(), first, "C", table)
    Checkpoint(first).export("C", tmp_path / "out")
    second = MemoryStore()
    import_state(pipeline(key=("k", "l")).freeze(), second, "C", tmp_path / "out")
    found = dict(Checkpoint(second).scan("C"))
    assert found == dict(Checkpoint(first).scan("C")) and len(found) == 39


def test_an_export_without_its_metadata_is_imported_by_the_names_of_its_columns(
    tmp_path: Path,
) -> None:
    class Person(Computation):
        key: str = state("")
        k: int = state(0)  # as the column by which it is keyed

        def process_record(self, record, ctx):
            self.k += 1

    first, second = MemoryStore(), MemoryStore()
    table = pa.table({"id": ["a", "b"], "key": ["x", "y"], "k": [1, 2]})
    import_state(pipeline(Person).freeze(), first, "C", table, key="id")
    Checkpoint(first).export("C", tmp_path / "out")
    frame = pq.read_table(tmp_path / "out").to_pandas()
    assert set(frame.columns) == {"key_", "key", "k"}
    import_state(pipeline(Person).freeze(), second, "C", frame)
    found = {"a": {"key": "x", "k": 1}, "b": {"key": "y", "k": 2}}
    assert dict(Checkpoint(second).scan("C")) == found == dict(Checkpoint(first).scan("C"))


def test_a_field_of_an_export_can_be_the_key_and_is_missing_where_it_was_not_there() -> None:
    first = MemoryStore()
    table = pa.table({"k": ["a", "b"], "nickname": ["A", None], "visits": [1, 2]})
    import_state(pipeline().freeze(), first, "C", table)
    exported = Checkpoint(first).table("C").drop_columns("key")
    assert set(begun(exported.slice(0, 0), key="nickname")) == set()
    with pytest.raises(IncompatibleState, match="of the input: the key is missing"):
        begun(exported, key="nickname")


def test_json_of_an_export_that_was_changed_is_refused_with_the_column() -> None:
    marks = {b"headrace": b"json", b"headrace.column": b"field"}
    schema = pa.schema([pa.field("k", pa.string()), pa.field("name", pa.string(), metadata=marks)])
    for cell in ('{"shown": "Decimal(1)"}', "no json", '{"bytes": "%"}'):
        table = pa.table([["a"], [cell]], schema=schema)
        with pytest.raises(IncompatibleState, match="'name' is JSON of an export, but .* cannot"):
            begun(table)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"k": ["a"], "visits": ["3"]}, "column 'visits' does not fit the field visits: .*int"),
        ({"k": ["a"], "visits": [1.5]}, "does not fit the field visits"),
        ({"k": ["a"], "spent": [2**53 + 1]}, "would become"),
        ({"k": ["a"], "visits": [True]}, "does not fit the field visits"),
        (
            {"k": ["a"], "vists": [1]},
            r"'vists', which is no field of Customer \(did you mean 'visits'",
        ),
        ({"k": ["a", "a"], "visits": [1, 2]}, "rows 0 and 1 of the input have the same key"),
        ({"k": ["a", None], "visits": [1, 2]}, "row 1 of the input: the key is missing"),
        ({"k": [1.0], "visits": [1]}, "row 0 of the input"),
        ({"x": ["a"], "visits": [1]}, "which column of the input is the key"),
        ({"k": ["a"], "scores": [{"m": "x"}]}, "does not fit the field scores"),
        ({"k": ["a"], "scores": [[{"key": "m", "value": 1}] * 2]}, "two entries 'm'"),
        ({"k": ["a"], "scores": [3]}, "is no map"),
        ({"k": ["a"], "seen": [["x"]]}, "does not fit the field seen"),
        ({"k": ["a"], "address": [{"zip": 1}]}, "city"),
        ({"k": ["a"], "rates": [[1, 2**53 + 1]]}, "would become"),
        ({"k": ["a"], "at": pa.array([1_001], pa.timestamp("ns", "UTC"))}, "nanoseconds"),
        ({"k": ["a"], "name": pa.array([[1]], pa.list_(pa.duration("ns")))}, "nanoseconds"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    columns: dict[str, Any], message: str
) -> None:
    store = MemoryStore()
    with pytest.raises(IncompatibleState, match=message):
        import_state(pipeline().freeze(), store, "C", pa.table(columns))
    assert not [found for found in store.walk() if found is not None]


def test_times_of_pandas_and_whole_numbers_among_floats_are_taken_as_they_are() -> None:
    at = pa.array([2_000], pa.timestamp("ns", "UTC"))
    found = begun(pa.table({"k": ["a"], "rates": [[1, 2**53]], "at": at}))
    assert found["a"] == {"rates": [1, 2**53], "at": datetime(1970, 1, 1, 0, 0, 0, 2, UTC)}


class Grade(Enum):
    GOOD = 1


class Exact(Computation):
    prices: list[Decimal] = state()
    by_day: dict[str, Decimal] = state()
    sizes: list[set[float]] = state()
    grade: Grade | None = state(None)
    grades: list[Grade] = state()
    times: list[datetime] = state()

    def process_record(self, record, ctx):
        pass


LISTS = [pa.list_, pa.large_list, partial(pa.list_, list_size=1)]


@pytest.mark.parametrize(
    ("column", "cells", "value"),
    [
        ("prices", [[5, 2**53 + 1]], ["5", "9007199254740993"]),
        ("prices", [[1.5]], ["1.5"]),
        ("by_day", [{"monday": 7}], {"monday": "7"}),
        ("sizes", [[[7, 1, 2]]], [[1.0, 2.0, 7.0]]),
        ("grade", [1], 1),
        ("grades", [[1]], [1]),
        *(
            ("times", pa.array([[3_000]], kind(pa.timestamp("ns", "UTC"))),
             [datetime(1970, 1, 1, 0, 0, 0, 3, UTC)])
            for kind in LISTS
        ),
    ],
)  # fmt: skip
def test_what_a_field_reads_without_a_change_is_taken(column, cells, value):
    assert begun(pa.table({"k": ["a"], column: cells}), Exact)["a"][column] == value


@pytest.mark.parametrize("kind", LISTS)
def test_nanoseconds_in_lists_are_refused(kind):
    times = pa.array([[1_001]], kind(pa.timestamp("ns", "UTC")))
    with pytest.raises(IncompatibleState, match="'times' has times with nanoseconds"):
        begun(pa.table({"k": ["a"], "times": times}), Exact)


def test_empty_tables_and_initial_values_leave_no_state():
    assert (
        begun(pa.table({"k": pa.array([], pa.string()), "visits": pa.array([], pa.int64())})) == {}
    )
    assert begun(pa.table({"k": ["a"], "visits": [0]})) == {}
    assert begun(pa.table({"k": ["a"]})) == {}


class Timed(Computation, ttl="10us"):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce([ctx.key, self.n])


class TimedField(Computation):
    n: int = state(0, ttl="10us")

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce([ctx.key, self.n])


@pytest.mark.parametrize("computation", [Timed, TimedField])
def test_ttls_count_from_when_the_values_were_written(computation: Any) -> None:
    table = pa.table({"k": ["a", "b"], "n": [5, 5]})
    with pytest.raises(IncompatibleState, match="has a TTL|have a TTL"):
        begun(table, computation)
    with Harness(pipeline(computation)) as h:
        h.import_state("C", table, written_at=100)
        h.send("in", at(105, "a"))
        assert h.read("out") == [["a", 6]]
        h.send("in", at(111, "b"), at(113, "a"))
        assert h.read("out")[1:] == [["b", 1], ["a", 7]]


class Other(Computation):
    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += 1
        ctx.produce(self.total)


def two() -> Pipeline:
    p = pipeline()
    p.compute(Other, inputs={"in": "k"}, outputs="others", name="D")
    return p


def test_several_computations_are_imported_one_after_another():
    with Harness(two()) as h:
        h.import_state("C", ROWS)
        h.import_state("D", pa.table({"k": ["a"], "total": [10]}))
        with pytest.raises(IncompatibleState, match="has imported state of 'C' already"):
            h.import_state("C", ROWS)
        h.send("in", at(1, "a"))
        assert h.read("out")[0][1] == 4 and h.read("others") == [11]


def test_a_checkpoint_that_has_run_takes_no_import():
    with Harness(two()) as h:
        h.send("in", at(1, "a"))
        assert len(h.read("out")) == 1
        with pytest.raises(IncompatibleState, match=r"has run \(epoch 1\)"):
            h.import_state("C", ROWS)


def test_another_pipelines_checkpoint_and_a_full_place_are_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    import_state(pipeline().freeze(), store, "C", ROWS)
    p = Pipeline("other")
    p.compute(Other, inputs={p.read("in", sources.memory([], timestamp="t")): "k"}, name="C")
    with pytest.raises(IncompatibleState, match="belongs to pipeline 'shop', not 'other'"):
        import_state(p.freeze(), store, "C", pa.table({"k": ["a"], "total": [1]}))
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(IncompatibleState, match="is not empty"):
        import_state(pipeline().freeze(), DiskStore(str(tmp_path)), "C", ROWS)
    with pytest.raises(IncompatibleState, match="has no computation 'X'"):
        import_state(pipeline().freeze(), MemoryStore(), "X", ROWS)
    with pytest.raises(InvalidPipeline, match="there are no Parquet files"):
        import_state(pipeline().freeze(), MemoryStore(), "C", str(tmp_path / "none"))


@pytest.mark.parametrize("at", ["before-segment-write", "after-segment-write", "IDENTITY"])
def test_of_two_imports_at_once_the_one_that_says_so_is_there(at: str) -> None:
    class Crowded(MemoryStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            if name == at and not said:
                other()
            return super().put_if_absent(name, data)

    store, said = Crowded(), []

    def other() -> None:
        failpoints.disarm()
        said.append(at)
        import_state(pipeline().freeze(), store, "C", pa.table({"k": ["b"], "visits": [2]}))

    if at != "IDENTITY":
        failpoints.arm(at, other)
    with pytest.raises(InvalidPipeline, match="another restore or import, has begun there"):
        import_state(pipeline().freeze(), store, "C", ROWS)
    assert said and dict(Checkpoint(store).scan("C")) == {"b": {"visits": 2}}
    assert Checkpoint(store).verify().is_whole


class Died(BaseException):
    pass


@pytest.mark.parametrize("second", [False, True])
def test_a_crash_at_any_write_leaves_all_or_nothing(second: bool) -> None:
    """Every write is the last one in turn; the import is then given again."""
    for writes in range(1, 40):
        store = _Dying()
        if second:
            import_state(two().freeze(), store, "D", pa.table({"k": ["a"], "total": [1]}))
        store.left = writes
        try:
            import_state(two().freeze(), store, "C", ROWS)
        except Died:
            store.left = 10**9
            done = False
        else:
            done = True
        store.left = 10**9
        try:
            import_state(two().freeze(), store, "C", ROWS)
        except IncompatibleState as error:
            assert "already" in str(error)
        found = dict(Checkpoint(store).scan("C"))
        assert found == {"a": {"visits": 3, "name": "Ann"}, "b": {"visits": 2**53 + 1}}
        assert (Checkpoint(store).get("D", "a") == {"total": 1}) if second else True
        assert Checkpoint(store).verify().is_whole
        if done:
            assert writes > 3
            return
    raise AssertionError("it never came to its end")


class _Dying(MemoryStore):
    left = 10**9

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died

    def write(self, *args: Any, **options: Any) -> Any:
        self._count()
        return super().write(*args, **options)

    def put_if_absent(self, *args: Any, **options: Any) -> Any:
        self._count()
        return super().put_if_absent(*args, **options)


class _DyingServer(MemoryServer):
    left = 10**9

    def table(self, checkpoint: str) -> Any:
        self._count()
        return super().table(checkpoint)

    def sync(self) -> None:
        self._count()
        super().sync()

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_what_an_interrupted_import_left_on_a_server_is_never_read(
    second: bool, again: bool
) -> None:
    """Every request to the server is the last one in turn. Then the import is given again with
    another table, or the pipeline runs without it."""
    for requests in range(1, 60):
        server = _DyingServer()
        with Harness(two(), state=server) as h:
            if second:
                h.import_state("D", pa.table({"k": ["a"], "total": [10]}))
            assert h.read("out") == []  # a driver begins, and finds no input
            h._driver = None  # it ends
            begun = read_identity(h._runtime.store)
            server.left = requests
            done = False
            try:
                h.import_state("C", pa.table({"k": ["a", "gone"], "visits": [111, 7]}))
                done = True
            except Died:
                server.left = 10**9
                if again:
                    h.import_state("C", pa.table({"k": ["a"], "visits": [222]}))
            server.left = 10**9
            h.send("in", at(1, "a"), at(2, "gone"))
            h.crash()
            h.send("in", at(3, "a"), at(4, "gone"))
            first, gone = (111, 7) if done else (222 if again else 0, 0)
            assert sorted(row[:2] for row in h.read("out")) == [
                ["a", first + 1], ["a", first + 2], ["gone", gone + 1], ["gone", gone + 2],
            ]  # fmt: skip
            assert h.state("D", "a").total == (12 if second else 2)
            assert read_identity(h._runtime.store) == begun, "sinks know the id"
            found = Checkpoint(h._runtime.store, opens=h._opens)
            assert found.get("C", "a") == {"visits": first + 2} and found.verify().is_whole
        if done:
            assert requests > 5
            return
    raise AssertionError("it never came to its end")


def test_the_command_and_the_method_import(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "imported_shop.py").write_text(
        "from headrace import Computation, Pipeline, sources, state\n"
        "class Count(Computation):\n"
        "    n: int = state(0)\n"
        "    def process_record(self, record, ctx): self.n += 1\n"
        "p = Pipeline('shop')\n"
        "p.compute(Count, inputs={p.read('in', sources.memory([])): 'word'})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    pq.write_table(pa.table({"word": ["mill", "race"], "n": [7, 8]}), "words.parquet")
    given = ["state", "import", "state", "imported_shop:p", "--computation", "Count"]
    found = CliRunner().invoke(cli, [*given, "--input", "words.parquet"])
    assert found.exit_code == 0, found.output
    assert "'Count' begins with 2 keys of 2 rows, in 8 slots" in found.output
    assert Checkpoint("state").get("Count", "mill") == {"n": 7}
    again = CliRunner().invoke(cli, [*given, "--input", "words.parquet"])
    assert again.exit_code and "already" in again.output
    wrong = CliRunner().invoke(cli, [*given, "--input", "words.parquet", "--written-at", "noon"])
    assert wrong.exit_code == 2 and "--written-at noon" in wrong.output
