"""Keys in pipelines: a column, several, a function, one for all, none."""

import enum

import numpy as np
import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, InvalidPipeline, sources, state
from headrace.testing import Harness


class Count(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        assert record.key == ctx.key
        self.n += 1
        ctx.produce([ctx.key, self.n])


class Bare(Computation):
    def process_record(self, record, ctx):
        ctx.produce([ctx.key, record.key])


class Colour(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
    RED = "red"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("k", [["a", 1], ["b", 1], ["a", 2]]),
        (("k", "c"), [[["a", 1], 1], [["b", None], 1], [["a", 1], 2]]),
        (("c",), [[[1], 1], [[None], 1], [[1], 2]]),
        ((), [[[], 1], [[], 2], [[], 3]]),
        (lambda v: v["k"] * 2, [["aa", 1], ["bb", 1], ["aa", 2]]),
        (lambda v: np.int32(len(v["k"])), [[1, 1], [1, 2], [1, 3]]),
        (lambda v: Colour.RED, [["red", 1], ["red", 2], ["red", 3]]),
    ],
    ids=["column", "columns", "one of a tuple", "all", "function", "numpy", "enum"],
)
def test_a_key_is_taken_from_the_value(key, expected):
    with Harness(one(Count, key=key), slots=1) as h:
        h.send("in", at(1, "a", c=1), at(2, "b", c=None), at(3, "a", c=1))
        found = h.read("out")
        assert sorted(found, key=str) == sorted(expected, key=str)


def test_without_a_key_there_is_none():
    with Harness(one(Bare, key=None)) as h:
        h.send("in", at(1))
        assert h.read("out") == [[None, None]]


def test_one_key_for_all_meets_in_one_place_whatever_the_slots():
    with Harness(one(Count, key=()), slots=5) as h:
        h.send("in", *(at(t, str(t)) for t in range(20)))
        assert [n for _, n in h.read("out")] == list(range(1, 21))
        assert h.keys("C") == [()]


@pytest.mark.parametrize("key", [1, 1.5, ["k"], ("k", 1), {"k"}, True], ids=repr)
def test_what_names_no_key_is_refused_when_the_pipeline_is_built(key):
    with pytest.raises(InvalidPipeline, match="key"):
        one(Count, key=key)


def test_a_column_that_the_source_does_not_have_is_refused_before_anything_starts(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace import Pipeline

    pq.write_table(pa.table({"name": ["a"], "t": [1]}), tmp_path / "x.parquet")
    p = Pipeline("columns")
    p.read("in", sources.parquet(str(tmp_path / "x.parquet"), timestamp="t"))
    p.compute(Count, inputs={"in": "nome"})
    with pytest.raises(
        InvalidPipeline,
        match=r"'nome', which is not there .did you mean 'name'.*; there are: name, t",
    ):
        p.validate()
