"""`process_table`: a slot's records as Arrow columns, state read and written by position."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, IncompatibleState, Pipeline, UserCodeError, sources, state
from headrace.testing import CRASH, Harness


class Count(Computation):
    n: int = state(0)
    last: str = state("")

    def process_table(self, table, ctx):
        now = ctx.read()
        counts = np.bincount(table["key_index"].to_numpy(), minlength=now.num_rows)
        totals = now["n"].to_numpy() + counts
        ctx.write(n=totals)
        ctx.produce_table({"key": now["key"], "n": totals})


class Echo(Computation):
    def process_table(self, table, ctx):
        ctx.produce_table(table)


class Columns(Computation):
    """Records in, columns out: what follows gets columnar rows."""

    def process_table(self, table, ctx):
        doubled = pc.multiply(table["n"], 2)
        ctx.produce_table(table.append_column("twice", doubled), timestamp="t")


class Do(Computation):
    n: int = state(0)
    f: float = state(0.0)
    names: list[str] = state()

    def process_table(self, table, ctx):
        exec(table["do"][0].as_py(), {"ctx": ctx, "self": self, "pa": pa, "table": table})


class Dice(Computation):
    def process_table(self, table, ctx):
        ctx.produce_table(
            {"uuid": [str(ctx.uuid())], "now": [ctx.now()], "dice": [ctx.random.random()]}
        )


def latest(rows):
    return {row["key"]: row["n"] for row in rows}


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_counts_are_kept_by_key_over_epochs_and_crashes(slots):
    with Harness(one(Count), slots=slots) as h:
        h.send("in", at(1, "a"), at(2, "b"), at(3, "a"), CRASH, at(4, "a"), at(5, "c"))
        assert latest(h.read("out")) == {"a": 3, "b": 1, "c": 1}
        assert h.state("C", "a").n == 3
        assert sorted(h.keys("C")) == ["a", "b", "c"]


def test_rows_carry_key_index_and_timestamp():
    with Harness(one(Echo), slots=1) as h:
        h.send("in", at(5, "a"), at(6, "b"), at(7, "a"))
        rows = h.read("out")
        assert [row["key"] for row in rows] == ["a", "b", "a"]
        assert [row["key_index"] for row in rows] == [0, 1, 0]
        assert [t for _, t in h.records("out")] == [5, 6, 7]


def test_several_inputs_say_where_each_row_comes_from():
    p = Pipeline("two")
    p.read("x", sources.memory([], timestamp="t"))
    p.read("y", sources.memory([], timestamp="t"))
    p.compute(Echo, inputs={"x": "k", "y": "name"}, outputs="out")
    with Harness(p, slots=1) as h:
        h._sources["y"].send({"t": 2, "name": "a"})
        h.send("x", at(1, "a"))
        assert [(r["stream"], r["key"], r["key_index"]) for r in h.read("out")] == [
            ("x", "a", 0),
            ("y", "a", 0),
        ]


def test_columns_that_only_some_records_have_are_all_there():
    with Harness(one(Echo), slots=1) as h:
        h.send("in", at(1, first=1), at(2, second="x"))
        assert [(r["first"], r["second"]) for r in h.read("out")] == [(1, None), (None, "x")]


def test_values_that_are_no_dicts_come_as_one_column():
    p = one(Echo, key=lambda v: v, timing={"timestamp": None})
    with Harness(p, slots=1) as h:
        h.send("in", "a", "b")
        assert [r["value"] for r in h.read("out")] == ["a", "b"]


def test_columnar_rows_reach_record_and_table_hooks_behind():
    class Read(Computation):
        total: int = state(0)

        def process_record(self, record, ctx):
            self.total += record.value["twice"]
            ctx.produce([ctx.key, self.total, record.timestamp])

    p = one(Columns, key=None, outputs="wide")
    p.compute(Read, inputs={"wide": "k"}, outputs="out", name="Read")
    p.compute(Count, inputs={"wide": "k"}, outputs="counts", name="Count")
    with Harness(p, slots=3) as h:
        h.send("in", at(1, "a", n=1), at(2, "b", n=2), CRASH, at(3, "a", n=3))
        assert sorted(h.read("out")) == [["a", 2, 1], ["a", 8, 3], ["b", 4, 2]]
        assert latest(h.read("counts")) == {"a": 2, "b": 1}


def test_keys_of_several_parts_are_structs():
    with Harness(one(Count, key=("k", "n")), slots=1) as h:
        h.send("in", at(1, "a", n=1), at(2, "a", n=2), at(3, "a", n=1))
        rows = [(row["key"]["part_0"], row["key"]["part_1"], row["n"]) for row in h.read("out")]
        assert rows == [("a", 1, 2), ("a", 2, 1)]
        assert h.state("C", ("a", 1)).n == 2


def test_one_key_for_all():
    with Harness(one(Count, key=()), slots=3) as h:
        h.send("in", at(1), at(2, "b"))
        assert h.state("C", ()).n == 2


@pytest.mark.parametrize(
    ("key", "records", "reason"),
    [
        (lambda v: v["k"], [at(1, "a"), at(2, 5)], "keys do not fit one Arrow column"),
        ("k", [at(1, x=1), at(2, x="text")], "'x' do not fit one Arrow column"),
    ],
)
def test_what_fits_no_column_is_a_readable_error(key, records, reason):
    with Harness(one(Echo, key=key), slots=1) as h:
        h.send("in", *records)
        with pytest.raises(UserCodeError, match=reason):
            h.settle()


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("ctx.write(m=[1])", "no field 'm'"),
        ("ctx.write(n=[1, 2])", "2 values for 1 keys"),
        ("ctx.write(n=['x'])", "got `str`"),
        ("ctx.produce_table({'a': [1]}, to='nowhere')", "no output 'nowhere'"),
        ("self.other = 1", "assigned other"),
        ("1 / 0", "ZeroDivisionError"),
        (
            "ctx.produce_table({'a': [1], 'when': pa.array([None], pa.int64())}, timestamp='when')",
            "some rows",
        ),
    ],
)
def test_a_wrong_table_is_a_readable_error(do, reason):
    with Harness(one(Do)) as h:
        h.send("in", at(1, do=do))
        with pytest.raises(UserCodeError, match=reason) as error:
            h.settle()
        assert "'C'" in str(error.value)


def test_fields_that_are_not_written_stay_and_initial_values_are_not_stored():
    with Harness(one(Do)) as h:
        h.send("in", at(1, do="ctx.write(n=[5], names=[['x']])"))
        h.send("in", at(2, do="ctx.write({'f': [1]})"))
        found = h.state("C", "a")
        assert (found.n, found.f, found.names) == (5, 1.0, ["x"])
        h.send("in", at(3, do="ctx.write(pa.table({'n': [0], 'f': [0.0], 'names': [[]]}))"))
        assert h.keys("C") == []


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_may_be_a_column_of_any_unit(unit):
    class Stamp(Computation):
        def process_table(self, table, ctx):
            when = pa.array([2_000_000_000], pa.timestamp("us")).cast(pa.timestamp(unit))
            ctx.produce_table({"a": [1], "when": when}, timestamp="when")

    with Harness(one(Stamp)) as h:
        h.send("in", at(1))
        assert [t for _, t in h.records("out")] == [2_000_000_000]


def test_by_default_rows_bear_the_time_of_the_newest_record():
    with Harness(one(Do)) as h:
        h.send("in", at(3, do="ctx.produce_table({'a': [1]})"), at(9, do=""), at(4, do=""))
        assert [t for _, t in h.records("out")] == [9]


def test_dice_and_ids_differ_between_slots_inputs_and_epochs():
    p = Pipeline("dice")
    p.read("x", sources.memory([], timestamp="t"))
    p.read("y", sources.memory([], timestamp="t"))
    p.compute(Dice, inputs={"x": None, "y": None}, outputs="bare", name="Bare")
    p.compute(Dice, inputs={"x": "k"}, outputs="keyed", name="Keyed")
    p.compute(Dice, inputs={"keyed": None, "spread": None}, outputs="fused", name="Fused")
    p.compute(Spread, inputs={"x": "k"}, outputs="spread")
    with Harness(p, slots=2) as h:
        for t in range(3):
            h._sources["y"].send(at(t))
            h.send("x", at(t, "a"), at(t, "b"), CRASH)
        rows = [*h.read("bare"), *h.read("keyed"), *h.read("fused")]
        assert len(rows) > 12
        assert len({row["uuid"] for row in rows}) == len({row["dice"] for row in rows}) == len(rows)


class Spread(Computation):
    def process_table(self, table, ctx):
        ctx.produce_table(table)


# Versions -----------------------------------------------------------------


class Newer(Computation, version=2):
    count: int = state(0)
    extra: int = state(0)

    @classmethod
    def migrate(cls, fields, version):
        return {"count": fields["n"] * 10}

    def process_table(self, table, ctx):
        ctx.produce_table({"key": ctx.read()["key"], "n": ctx.read()["count"]})
        ctx.write(extra=[1] * ctx.read().num_rows)


class OtherType(Computation):
    n: str = state("")

    def process_table(self, table, ctx):
        ctx.read()


def test_tables_migrate_what_an_older_version_wrote():
    from tests.unit.worker.test_state import onward

    with Harness(one(Count)) as h:
        h.send("in", at(1), at(1), at(1, "b"))
    with onward(h, Newer) as after:
        after.send("in", at(2))
        after.send("in", at(3))
        assert [row["n"] for row in after.read("out")] == [20, 20]
        found = after.state("C", "a")
        assert (found.count, found.extra) == (20, 1)
        assert vars(found).keys() == {"count", "extra"}
        assert after.state("C", "b").count == 10


def test_another_type_is_incompatible_for_tables_too():
    from tests.unit.worker.test_state import onward

    with Harness(one(Count)) as h:
        h.send("in", at(1))
    refused = pytest.raises(IncompatibleState, match="computation 'C': field 'n'")
    with refused, onward(h, OtherType) as after:
        after.send("in", at(2))
        after.settle()
