"""Columns that nobody looks at are not decoded, and nobody can tell."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace import Pipeline, agg, session, sinks, sources, to, tumbling
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.model.source import Workspace
from headrace.plan.decisions.next_step import Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.worker.runtime import Runtime

ROWS = {
    "kind": ["a", "b", "a", "a"],
    "t": [1, 2, None, 4],
    "n": [10, 20, 30, 40],
    "text": ["w", "x", "y", "z"],
    "more": [1.5, None, 2.5, 3.5],
}


def read(**options):
    p = Pipeline("p")
    return p, p.read("in", sources.memory([], timestamp="t"), **options)


def looked_at(p):
    found = p.freeze().columns_read
    return {stream: sorted(columns) for stream, columns in found.items()}


def out(stream):
    return stream.write(sinks.memory())


def test_filters_and_selections_say_what_they_read():
    p, rows = read()
    out(rows.filter(pc.field("kind") == "a").select("n", twice=pc.add(pc.field("m"), 1)))
    assert looked_at(p) == {"in": ["kind", "m", "n", "t"]}


def test_what_a_later_selection_drops_is_not_read():
    p, rows = read()
    out(rows.select("n", "text", b="more").filter(pc.field("n") > 1).select("b"))
    assert looked_at(p) == {"in": ["more", "n", "t"]}


def test_all_consumers_count():
    p, rows = read()
    out(rows.select("n"))
    rows.filter(pc.field("kind") == "a").select("text").write(sinks.memory())
    assert looked_at(p) == {"in": ["kind", "n", "t", "text"]}


@pytest.mark.parametrize("window", [tumbling("10s"), session("10s")])
def test_windows_read_their_key_and_what_they_aggregate(window):
    p, rows = read()
    windows = rows.key_by("kind").window(window)
    out(windows.aggregate(times=agg.count(), most=agg.max("n"), known=agg.count("more")))
    assert looked_at(p) == {"in": ["kind", "more", "n", "t"]}


def whole(rows):
    return rows


EVERY = agg.fold([], lambda held, row: [*held, row], lambda one, other: [*one, *other])


@pytest.mark.parametrize(
    "use",
    [
        out,
        lambda rows: out(rows.filter(pc.field("kind") == "a")),
        lambda rows: out(rows.map(whole).select("n")),
        lambda rows: out(rows.filter(whole).select("n")),
        lambda rows: out(rows.key_by(whole).window(tumbling("1s")).count()),
        lambda rows: out(rows.key_by("kind").window(tumbling("1s")).aggregate(all=EVERY)),
        lambda rows: out(rows.key_by("kind").window(tumbling("1s")).top(1, by="n")),
        lambda rows: out(rows.filter(pc.field("n") > 1, errors=to("failed")).select("n")),
    ],
)
def test_a_stream_that_may_be_looked_at_otherwise_is_read_as_a_whole(use):
    p, rows = read()
    use(rows)
    assert looked_at(p) == {}


def test_a_time_that_is_a_function_of_the_record_needs_the_record():
    p = Pipeline("p")
    rows = p.read("in", sources.memory([], timestamp=lambda value: value["t"]))
    out(rows.select("n"))
    assert looked_at(p) == {}


# Reading ------------------------------------------------------------------


def written(directory, **changed):
    table = pa.table({**ROWS, **changed})
    pq.write_table(table, directory / "rows.parquet", row_group_size=3)
    return table


def test_a_source_leaves_columns_out_and_its_digests_stay(tmp_path):
    written(tmp_path)
    source = sources.parquet(str(tmp_path / "rows.parquet"))
    source.prepare(Workspace(MemoryStore()))
    planned = source.plan("rows.parquet", 0, 100)
    every = source.read("rows.parquet", planned)
    some = source.read_columns("rows.parquet", planned, frozenset({"n", "kind", "absent"}))
    assert some.left_out == ("t", "text", "more")
    assert some.columns.schema == every.columns.schema
    assert some.columns.select(["kind", "n"]) == every.columns.select(["kind", "n"])
    assert some.columns.column("text").null_count == 4
    assert (some.digest, some.seen) == (every.digest, every.seen)
    none = source.read_columns("rows.parquet", planned, frozenset())
    assert none.left_out == () and none.columns == every.columns


def test_cells_that_may_be_wrong_are_decoded(tmp_path):
    written(tmp_path, day=pa.array([0, 1, 2, 3], pa.date32()), parts=[[1], [2], None, []])
    source = sources.parquet(str(tmp_path), ordered_by_name=True)
    source.prepare(Workspace(MemoryStore()))
    planned = source.plan("files", 0, 100)
    some = source.read_columns("files", planned, frozenset({"n"}))
    assert some.left_out == ("kind", "t", "text", "more")


def ran(directory, add, **options):
    """What the sinks of a pipeline get, without Spark."""
    p = Pipeline("p")
    source = sources.parquet(str(directory / "rows.parquet"), timestamp="t")
    add(p, p.read("in", source, **options))
    topology, store = p.freeze(), MemoryStore()
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    setup = Setup(
        topology, fingerprint(topology.graph), store, substrate,
        Options(slots=1, background=False, until="caught_up"),
    )  # fmt: skip
    driver = Follower(setup).take_over()
    while isinstance(driver.step(), Run):
        pass
    driver.close()
    return topology


def test_a_dead_letter_shows_the_whole_record(tmp_path):
    written(tmp_path)
    rows, letters = sinks.memory(), sinks.memory()

    def add(p, stream):
        stream.select("n").write(rows)
        p.stream("bad").write(letters)

    topology = ran(tmp_path, add, errors=to("bad"))
    assert sorted(topology.columns_read["in"]) == ["n", "t"]
    assert sorted(row["n"] for row in rows.rows) == [10, 20, 40]
    [letter] = letters.rows
    assert "'text': 'y'" in str(letter) and "2.5" in str(letter)


def test_a_schema_still_judges_columns_that_nobody_reads(tmp_path):
    written(tmp_path, t=[1, 2, 3, 4])
    fields = [("n", pa.int64()), ("t", pa.int64()), pa.field("more", pa.float64(), nullable=False)]
    rows, letters = sinks.memory(), sinks.memory()

    def add(p, stream):
        stream.select("n").write(rows)
        p.stream("bad").write(letters)

    ran(tmp_path, add, errors=to("bad"), schema=pa.schema(fields))
    assert sorted(row["n"] for row in rows.rows) == [10, 30, 40]
    assert len(letters.rows) == 1
