"""Another version of a class brings nothing back to life, and lets nothing live longer."""

import pyarrow as pa
import pytest
from tests.unit.pipelines import at, one
from tests.unit.worker.test_state import onward

from headrace import Computation, state, to
from headrace.testing import Harness


class Counted(Computation):
    n: int = state(0, ttl="100us")
    total: int = state(0)

    def process_record(self, record, ctx):
        if record.value.get("quiet"):
            self.total += 1
            ctx.produce([self.n, self.total])
            return
        self.n += 1
        self.total += 1
        ctx.produce([self.n, self.total])


class Again(Counted, version=2):
    @classmethod
    def migrate(cls, fields, version):
        return fields


class Renamed(Computation, version=2):
    m: int = state(0, ttl="100us")
    total: int = state(0)
    seen: list[str] = state()

    @classmethod
    def migrate(cls, fields, version):
        new = {"total": fields["total"], "seen": sorted(fields)}
        return {**new, "m": fields["n"]} if "n" in fields else new

    def process_record(self, record, ctx):
        ctx.produce([self.m, self.total, list(self.seen)])


class Untimed(Computation, version=2):
    """The field that had a TTL has none any more."""

    n: int = state(0)
    total: int = state(0)

    @classmethod
    def migrate(cls, fields, version):
        return fields

    def process_record(self, record, ctx):
        self.total += 1
        ctx.produce([self.n, self.total])


class Tables(Computation, version=2):
    n: int = state(0, ttl="100us")
    total: int = state(0)

    @classmethod
    def migrate(cls, fields, version):
        return fields

    def process_table(self, table, ctx):
        state = ctx.read()
        rows = zip(state["n"].to_pylist(), state["total"].to_pylist(), strict=True)
        ctx.produce_table({"n": [list(row) for row in rows]}, timestamp=0)
        ctx.write(total=pa.array([t + 1 for t in state["total"].to_pylist()]))


class Whole(Computation, ttl="100us"):
    n: int = state(0)

    def process_record(self, record, ctx):
        if not record.value.get("quiet"):
            self.n += 1
        ctx.produce(self.n)


class WholeAgain(Whole, version=2):
    @classmethod
    def migrate(cls, fields, version):
        return fields


@pytest.fixture
def counted():
    with Harness(one(Counted)) as h:
        h.send("in", at(1), at(2), at(3))
    return h


def out(h):
    return h.read("out")


@pytest.mark.parametrize("newer", [Counted, Again])
def test_what_has_expired_stays_so(counted, newer):
    with onward(counted, newer) as h:
        h.send("in", at(300))
        assert out(h) == [[1, 4]]


@pytest.mark.parametrize("newer", [Counted, Again])
def test_what_keeps_its_name_keeps_its_end(counted, newer):
    with onward(counted, newer) as h:
        h.send("in", at(50, quiet=True))
        h.send("in", at(102, quiet=True))
        h.send("in", at(103, quiet=True))
        assert out(h) == [[3, 4], [3, 5], [0, 6]]


@pytest.mark.parametrize(
    ("time", "seen"), [(102, [3, 3, ["n", "total"]]), (103, [0, 3, ["total"]])]
)
def test_migrate_does_not_see_what_has_expired_at_the_first_hook(counted, time, seen):
    """The watermark has not come so far: the record has."""
    with onward(counted, Renamed) as h:
        h.send("in", at(time))
        assert out(h) == [seen]


def test_a_field_without_a_life_of_its_own_begins_one_with_the_first_hook(counted):
    with onward(counted, Renamed) as h:
        h.send("in", at(50))
        h.send("in", at(149))
        h.send("in", at(150))
        assert [row[0] for row in out(h)] == [3, 3, 0]


def test_what_had_expired_does_not_come_back_where_the_ttl_was_taken_away(counted):
    with onward(counted, Untimed) as h:
        h.send("in", at(300))
        h.send("in", at(301))
    with onward(h, Untimed) as cold:  # nothing is warm
        cold.send("in", at(302))
        assert out(h) == [[0, 4], [0, 5]] and out(cold) == [[0, 6]]


@pytest.mark.parametrize(
    ("times", "seen"), [((50, 102, 103), [[3, 3], [3, 4], [0, 5]]), ((300,), [[0, 3]])]
)
def test_tables_neither_see_what_has_expired_nor_prolong_what_has_not(counted, times, seen):
    with onward(counted, Tables) as h:
        for time in times:
            h.send("in", at(time))
        assert [row["n"] for row in out(h)] == seen


def test_a_failed_hook_is_run_again_from_the_same_migration(counted):
    class Failing(Again):
        def process_record(self, record, ctx):
            if record.value.get("fail"):
                raise ValueError
            super().process_record(record, ctx)

    with onward(counted, Failing, errors=to("dead")) as h:
        h.send("in", at(300), at(301, fail=True))
        assert out(h) == [[1, 4]]
        assert len(h.read("dead")) == 1


@pytest.mark.parametrize("newer", [Whole, WholeAgain])
def test_a_migration_does_not_prolong_the_life_of_a_key(newer):
    with Harness(one(Whole)) as h:
        h.send("in", at(1))
    with onward(h, newer) as after:
        after.send("in", at(50, quiet=True))
        after.send("in", at(100, quiet=True))
        after.send("in", at(101, quiet=True))
        assert out(after) == [1, 1, 0]


def test_a_key_of_which_nothing_lives_is_not_migrated():
    class Only(Computation):
        n: int = state(0, ttl="10us")

        def process_record(self, record, ctx):
            self.n += 1

    class Strict(Computation, version=2):
        m: int = state(0)

        @classmethod
        def migrate(cls, fields, version):
            return {"m": fields["n"]}

        def process_record(self, record, ctx):
            ctx.produce(self.m)

    with Harness(one(Only)) as h:
        h.send("in", at(1))
    with onward(h, Strict) as after:
        after.send("in", at(300))
        assert out(after) == [0]
