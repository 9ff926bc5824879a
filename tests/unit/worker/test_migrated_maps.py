"""`migrate` sees maps too, and what it returns is what the key has from then on."""

import pytest
from tests.unit.pipelines import at, one
from tests.unit.worker.test_state import onward

from headrace import Computation, Map, state
from headrace.errors import IncompatibleState, UserCodeError
from headrace.testing import Harness


class First(Computation):
    n: int = state(0)
    seen: Map[str, int] = state()
    old: Map[int, str] = state()

    def process_record(self, record, ctx):
        value = record.value
        self.n = value.get("n", self.n)
        self.seen.update(value.get("seen", {}))
        self.old.update(value.get("old", {}))
        for entry in value.get("remove", ()):
            self.seen.pop(entry, None)


class Second(Computation, version=2):
    """`seen` has other keys and values; `old` has become a field; `n` a map."""

    seen: Map[int, str] = state()
    old: dict[str, str] = state()
    n: Map[str, int] = state()

    @classmethod
    def migrate(cls, fields, version):
        assert version == 1
        return {
            "seen": {len(name): str(count) for name, count in fields.get("seen", {}).items()},
            "old": {str(k): v for k, v in fields.get("old", {}).items()},
            "n": {"n": fields["n"]} if "n" in fields else {},
        }

    def process_record(self, record, ctx):
        for entry in record.value.get("remove", ()):
            del self.seen[entry]
        ctx.produce([dict(self.seen.items()), dict(self.old), dict(self.n.items())])


class SecondTable(Computation, version=2):
    seen: Map[int, str] = state()
    old: dict[str, str] = state()
    n: Map[str, int] = state()
    migrate = Second.migrate

    def process_table(self, table, ctx):
        found = ctx.entries("seen")
        owners = found["key_index"].to_pylist()
        first = {
            i: e for i, e in reversed(list(zip(owners, found["entry"].to_pylist(), strict=True)))
        }
        ctx.put_entries("seen", list(first), list(first.values()), [None] * len(first))
        ctx.produce_table({"left": [found.num_rows - len(first)]}, timestamp=0)


class Kept(First, version=2):
    """`migrate` says nothing about maps: they stay."""

    @classmethod
    def migrate(cls, fields, version):
        return {"n": fields.get("n", 0) + 100}


class Wrong(First, version=2):
    @classmethod
    def migrate(cls, fields, version):
        return {"seen": {"a": "text"}}


class NoDict(First, version=2):
    @classmethod
    def migrate(cls, fields, version):
        return {"seen": [1]}


FILLED = {"n": 7, "seen": {"a": 1, "bb": 2, "gone": 3}, "old": {5: "five"}}


@pytest.fixture
def written():
    with Harness(one(First)) as h:
        h.send("in", at(0, "a", **FILLED))
        h.send("in", at(1, "a", remove=["gone"]))
        h.send("in", at(1, "only maps", seen={"x": 1}))
        h.settle()
    return h


def test_migrate_sees_maps_and_what_it_returns_counts(written):
    with onward(written, Second) as h:
        h.send("in", at(2, "a", remove=[1]))
        h.send("in", at(3, "only maps"))
        h.settle()
        assert h.read("out") == [[{2: "2"}, {"5": "five"}, {"n": 7}], [{1: "1"}, {}, {}]]
    with onward(h, Second) as again:  # it is not migrated twice, and nothing old came back
        again.send("in", at(4, "a"))
        again.send("in", at(5, "only maps"))
        again.settle()
        assert again.read("out") == [[{2: "2"}, {"5": "five"}, {"n": 7}], [{1: "1"}, {}, {}]]


def test_tables_see_the_migrated_maps_and_write_them_once(written):
    with onward(written, SecondTable) as h:
        h.send("in", at(2, "a"))
        h.settle()
        assert h.state("C", "a").seen == {2: "2"}
        assert h.state("C", "a").n == {"n": 7}
    with onward(h, Second) as again:
        again.send("in", at(4, "a"))
        again.settle()
        assert again.read("out") == [[{2: "2"}, {"5": "five"}, {"n": 7}]]


def test_maps_that_migrate_does_not_return_stay(written):
    with onward(written, Kept) as h:
        h.send("in", at(2, "a", seen={"new": 9}))
        h.settle()
        found = h.state("C", "a")
        assert found.n == 107 and found.old == {5: "five"}
        assert found.seen == {"a": 1, "bb": 2, "new": 9}


class Raises(First, version=2):
    @classmethod
    def migrate(cls, fields, version):
        return {"n": fields["missing"]}


class ReturnsNothing(First, version=2):
    @classmethod
    def migrate(cls, fields, version):
        fields["n"] = 8


class Misspelt(First, version=2):
    @classmethod
    def migrate(cls, fields, version):
        return {**fields, "sen": fields.pop("seen")}


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (Raises, "KeyError: 'missing'\n(?s:.*)Fix migrate"),
        (ReturnsNothing, "it returned None, and not a dict"),
        (Misspelt, "it returned 'sen', and Misspelt has no such field"),
    ],
)
def test_a_migrate_that_fails_stops_the_run_at_once_and_its_key_is_named(written, cls, says):
    with onward(written, cls) as h:
        with pytest.raises(UserCodeError, match=f"key 'a': migrate.. from version 1 to 2: {says}"):
            h.send("in", at(2, "a"))
            h.settle()


@pytest.mark.parametrize(("cls", "says"), [(Wrong, "Expected `int`"), (NoDict, "takes a dict")])
def test_a_map_that_does_not_fit_is_refused_by_name(written, cls, says):
    with onward(written, cls) as h:
        h.send("in", at(2, "a"))
        with pytest.raises(IncompatibleState, match=f"(?s)'seen'.*{says}"):
            h.settle()
