"""Time to live: counted from the last write, judged by the hook's own time."""

import pyarrow as pa
import pytest
from tests.unit.pipelines import at, one

from headrace import SECOND, Computation, Map, state
from headrace.testing import Harness


class Fields(Computation):
    short: int = state(0, ttl="10us")
    long: int = state(0)

    def process_record(self, record, ctx):
        ctx.produce([record.timestamp, self.short, self.long])
        if "short" in record.value:
            self.short = record.value["short"]
        self.long += 1


class Entries(Computation):
    recent: Map[str, int] = state(ttl="10us")

    def process_record(self, record, ctx):
        ctx.produce([record.timestamp, list(self.recent)])
        for name in record.value.get("set", ""):
            self.recent[name] = record.value.get("to", record.timestamp)


class Whole(Computation, ttl="10us", ordered=True):
    n: int = state(0)
    names: Map[str, int] = state()

    def process_record(self, record, ctx):
        ctx.produce([record.timestamp, self.n, list(self.names)])
        if record.value.get("write"):
            self.n += 1
        if record.value.get("name"):
            self.names[record.value["name"]] = 1
        if record.value.get("timer"):
            ctx.set_timer(at=record.timestamp + 1000)

    def process_timer(self, timer, ctx):
        ctx.produce(["timer", timer.timestamp])


class ByTheWall(Computation, ttl="10s", clock="wall"):
    n: int = state(0)
    field: int = state(0, ttl="5s")

    def process_record(self, record, ctx):
        ctx.produce([self.n, self.field])
        if record.value.get("write"):
            self.n += 1
            self.field += 1


class Table(Computation):
    last: int = state(0, ttl="10us")

    def process_table(self, table, ctx):
        ctx.produce_table({"last": ctx.read().column("last")}, timestamp=0)
        ctx.write(last=pa.array([7] * ctx.read().num_rows))


def every_cut(pipeline, records, cuts=(1, 2, 3, 100)):
    """The output for several epoch sizes; asserts that it is always the same."""
    answers = []
    for size in cuts:
        with Harness(pipeline(), epoch_records=size) as h:
            h.send("in", *records)
            h.end()
            answers.append(h.read("out"))
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def test_a_field_is_as_new_when_it_was_not_written_for_its_time_to_live():
    with Harness(one(Fields)) as h:
        for record in (at(1, short=5), at(10), at(11), at(12, short=5), at(20), at(22)):
            h.send("in", record)
        assert h.read("out") == [
            [1, 0, 0],
            [10, 5, 1],
            [11, 0, 2],
            [12, 0, 3],
            [20, 5, 4],
            [22, 0, 5],
        ]


def test_a_field_written_again_with_the_value_that_expired_is_there_again():
    with Harness(one(Fields)) as h:
        h.send("in", at(1, short=5))
        h.send("in", at(100, short=5))
        h.send("in", at(109))
        h.send("in", at(110))
        assert [row[1] for row in h.read("out")] == [0, 0, 5, 0]


def test_a_field_changed_and_changed_back_in_one_epoch_counts_as_written():
    with Harness(one(Fields)) as h:
        h.send("in", at(1, short=5))
        h.send("in", at(5, short=6), at(6, short=5))
        h.send("in", at(15))
        h.send("in", at(16))
        assert [row[1] for row in h.read("out")][-2:] == [5, 0]


def test_late_records_do_not_turn_time_back():
    with Harness(one(Fields)) as h:
        h.send("in", at(1, short=5))
        h.send("in", at(50))
        h.send("in", at(3))  # late: its time is the watermark's
        assert h.read("out")[-1] == [3, 0, 2]


def test_map_entries_expire_one_by_one():
    with Harness(one(Entries)) as h:
        for record in (at(1, set="a"), at(5, set="b"), at(10), at(11), at(15)):
            h.send("in", record)
        assert [row[1] for row in h.read("out")] == [[], ["a"], ["a", "b"], ["b"], []]


def test_writing_an_entry_again_prolongs_it_even_with_the_same_value():
    with Harness(one(Entries)) as h:
        h.send("in", at(1, set="a", to=7))
        h.send("in", at(9, set="a", to=7))
        h.send("in", at(15))
        assert h.read("out")[-1] == [15, ["a"]]


@pytest.mark.parametrize("sizes", [(1, 2, 5, 100)])
def test_field_and_entry_lives_do_not_depend_on_the_cut(sizes):
    records = [
        at(1, short=1),
        at(8),
        at(12, short=1),
        at(14, short=2),
        at(15, short=1),
        at(24),
        at(25),
    ]
    every_cut(lambda: one(Fields), records, sizes)
    sets = [at(1, set="ab"), at(5, set="a", to=1), at(9), at(12, set="c"), at(14), at(16), at(22)]
    every_cut(lambda: one(Entries), sets, sizes)


def test_a_class_ttl_forgets_the_key_and_its_timers_whatever_the_cut():
    records = [
        at(1, write=True, timer=True),
        at(5, write=True),  # lives until 15
        at(12),  # a read does not prolong
        at(14, name="x"),  # an entry is state too: until 24
        at(20),
        at(23, write=True),
        at(33),  # gone
        at(40, write=True),
        at(41),
    ]
    assert every_cut(lambda: one(Whole), records) == [
        [1, 0, []],
        [5, 1, []],
        [12, 2, []],
        [14, 2, []],
        [20, 2, ["x"]],
        [23, 2, ["x"]],
        [33, 0, []],
        [40, 0, []],
        [41, 1, []],
    ]


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_a_key_is_forgotten_before_its_later_timers_whatever_the_cut(cut):
    with Harness(one(Whole), epoch_records=cut) as h:
        h.send("in", at(1, write=True, timer=True), at(5, "b"), at(2000, "b"))
        h.end()
        assert [row for row in h.read("out") if row[0] == "timer"] == []
        assert h.state("C", "a") is None


def test_a_key_that_nobody_touches_is_forgotten_when_the_watermark_passes():
    with Harness(one(Whole)) as h:
        h.send("in", at(1, "a", write=True), at(2, "b", write=True))
        h.send("in", at(5, "c"))
        assert sorted(h.keys("C")) == ["a", "b"]
        h.send("in", at(11, "c"))
        assert h.keys("C") == ["b"]
        h.send("in", at(12, "c"))
        assert h.keys("C") == []


def test_a_ttl_holds_no_watermark():
    p = one(Whole)
    p.compute(Fields, inputs={"out": ()}, outputs="next", name="Next")
    with Harness(p) as h:
        h.send("in", at(1, write=True), at(9))
        assert h.watermarks()["Next"] == 9


def test_the_end_of_the_stream_forgets_nothing():
    with Harness(one(Whole)) as h:
        h.send("in", at(1, write=True))
        h.end()
        assert h.state("C", "a").n == 1


def test_a_wall_time_ttl_goes_by_the_clock():
    with Harness(one(ByTheWall)) as h:
        h.send("in", at(1, write=True))
        h.send("in", at(10**12))
        h.advance("6s")
        h.send("in", at(10**12 + 10 * SECOND))
        h.advance("6s")
        assert h.keys("C") == []
        h.send("in", at(10**12 + 20 * SECOND))
        assert h.read("out") == [[0, 0], [1, 1], [1, 0], [0, 0]]


def test_tables_see_and_renew_lives_too():
    with Harness(one(Table)) as h:
        for t in (1, 9, 18, 28, 30):
            h.send("in", at(t))
        assert [row["last"] for row in h.read("out")] == [0, 7, 7, 0, 7]
