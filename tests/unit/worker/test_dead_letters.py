"""`errors=to(...)`: a failed record leaves a letter, and otherwise no trace."""

from dataclasses import dataclass

import pytest
from tests.unit.pipelines import at, one

from headrace import (
    Computation,
    InvalidRecord,
    Map,
    Pipeline,
    SourceError,
    UserCodeError,
    sources,
    state,
    to,
)
from headrace.testing import CRASH, Harness


class Ledger(Computation):
    """Writes everything it can before it fails."""

    total: int = state(0)
    names: Map[str, int] = state()

    def process_record(self, record, ctx):
        n = record.value["n"]
        self.total += n
        self.names[str(n)] = n
        ctx.set_timer(n, at=1000 + n)
        ctx.hold(record.timestamp)
        ctx.produce([n, self.total])
        ctx.count("seen")
        record.value["n"] = "spoiled"
        if n < 0:
            raise ValueError(f"negative: {n}")
        if n == 13:
            raise LookupError("unlucky")
        if n == 99:
            self.total = "not a number"
        if n == 98:
            self.undeclared = 1
        if n == 97:
            self.names["x"] = 1.5

    def process_timer(self, timer, ctx):
        if timer.tag == 7:
            self.total = 0
            ctx.produce("never")
            raise RuntimeError("no seven")
        ctx.produce(["timer", timer.tag, self.total])


def untouched(values):
    """What happens without the bad ones."""
    with Harness(one(Ledger)) as h:
        h.send("in", *values)
        h.end()
        return h.records("out"), h.state("C", "a").total, list(h.state("C", "a").names), h.counts


@pytest.mark.parametrize("bad", [-1, -5, 99, 98, 97])
@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("cut", [1, 100])
def test_a_key_is_as_if_the_failed_record_had_never_been(bad, place, cut):
    values = [at(1, n=1), at(2, n=2), at(3, n=3)]
    expected = untouched(values)
    values.insert(place, at(place + 1, n=bad))
    with Harness(one(Ledger, errors=to("dead")), epoch_records=cut) as h:
        h.send("in", *values)
        h.end()
        assert h.records("out") == expected[0]
        assert h.state("C", "a").total == expected[1]
        assert list(h.state("C", "a").names) == expected[2]
        assert h.counts == {**expected[3], "dead": 1}
        [letter] = h.read("dead")
        assert letter["value"] == values[place]


def test_a_letter_says_what_failed_where_and_how():
    with Harness(one(Ledger, errors=to("dead"))) as h:
        h.send("in", at(5, "key", n=-2))
        [(letter, timestamp)] = h.records("dead")
        assert timestamp == 5
        assert letter["error"] == "ValueError: negative: -2"
        assert (letter["computation"], letter["stream"], letter["key"]) == ("C", "in", "key")
        assert (letter["timestamp"], letter["epoch"]) == (5, 1)
        assert "process_record" in letter["traceback"]


def test_other_keys_and_a_key_of_bad_records_alone_are_untouched():
    with Harness(one(Ledger, errors=to("dead")), slots=1) as h:
        h.send("in", at(1, "a", n=-1), at(2, "b", n=2), at(3, "a", n=-3))
        assert h.keys("C") == ["b"]
        assert [letter["value"]["n"] for letter in h.read("dead")] == [-1, -3]


def test_the_hold_of_a_failed_record_does_not_hold():
    p = one(Ledger, errors=to("dead"))
    p.compute(Ledger, inputs={"out": ()}, outputs="end", name="Below", errors=to("dead2"))
    with Harness(p) as h:
        h.send("in", at(1, n=-1), at(50, "b", n=-1))
        assert h.watermarks()["Below"] == 50


def test_a_failed_timer_is_gone_and_its_key_as_it_was():
    with Harness(one(Ledger, errors=to("dead"))) as h:
        h.send("in", at(1, n=7), at(2, n=8))
        h.end()
        assert h.read("out")[-1] == ["timer", 8, 15]
        assert "never" not in h.read("out")
        [letter] = h.read("dead")
        assert letter["error"] == "RuntimeError: no seven" and letter["value"] is None


def test_many_bad_records_of_one_key_cost_one_more_run_and_not_one_each():
    ran = []

    class Watched(Ledger):
        def process_record(self, record, ctx):
            ran.append(1)
            super().process_record(record, ctx)

    with Harness(one(Watched, errors=to("dead")), twice=False) as h:
        h.send("in", *(at(t, n=-1 if t % 2 else 2) for t in range(300)))
        assert len(h.read("dead")) == 150
        assert len(ran) <= 2 * 300


def test_a_map_that_a_failed_hook_replaced_is_back():
    class Replaces(Computation):
        names: Map[str, int] = state()
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            self.names[str(self.n)] = self.n
            if record.value["n"] < 0:
                self.names = {}
                del self.n

    with Harness(one(Replaces, errors=to("dead"))) as h:
        h.send("in", at(1, n=1), at(2, n=-1), at(3, n=1))
        assert list(h.state("C", "a").names) == ["1", "2"]
        assert "is a Map" in h.read("dead")[0]["error"] or "deleted" in h.read("dead")[0]["error"]


def test_only_the_named_errors_go_aside():
    with Harness(one(Ledger, errors=to("dead", only=ValueError))) as h:
        h.send("in", at(1, n=-1))
        assert len(h.read("dead")) == 1
        h.send("in", at(2, n=13))
        with pytest.raises(UserCodeError, match="LookupError: unlucky"):
            h.settle()
    with Harness(one(Ledger, errors=to("dead", only=(ValueError, LookupError)))) as h:
        h.send("in", at(1, n=-1), at(2, n=13))
        assert len(h.read("dead")) == 2


def test_too_many_in_one_epoch_stop_the_pipeline():
    with Harness(one(Ledger, errors=to("dead", limit=2)), slots=1) as h:
        h.send("in", at(1, n=-1), at(2, n=-1))
        h.send("in", at(3, n=-1), at(4, n=-1))
        assert len(h.read("dead")) == 4
        h.send("in", at(5, n=-1), at(6, n=-1), at(7, n=-1))
        with pytest.raises(UserCodeError, match="'C' sent more than 2 records to 'dead'"):
            h.settle()


def test_by_default_a_failed_record_stops_the_pipeline_and_nothing_has_happened():
    with Harness(one(Ledger)) as h:
        h.send("in", at(1, n=1))
        h.send("in", at(2, n=2), at(3, "b", n=-1))
        with pytest.raises(UserCodeError) as error:
            h.settle()
        for word in ("'C'", "'b'", "ValueError: negative: -1", "process_record", "errors=to"):
            assert word in str(error.value)
        assert h._outputs["out"].rows == [[1, 1]]


class Map_(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value)
        ctx.count("seen")
        record.value["x"] = 1 // record.value["n"]


class Echo(Computation):
    def process_record(self, record, ctx):
        ctx.produce([record.value.get("error"), record.value.get("value")])


def test_keyless_computations_send_letters_too():
    with Harness(one(Map_, key=None, errors=to("dead"))) as h:
        h.send("in", at(1, n=1), at(2, n=0), at(3, n=2))
        assert [v["n"] for v in h.read("out")] == [1, 2]
        assert h.counts["C.seen"] == 2
        [letter] = h.read("dead")
        assert letter["value"] == at(2, n=0) and "ZeroDivisionError" in letter["error"]


# Keys that cannot be taken ------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"t": 1}, "no column 'k'"),
        ({"t": 1, "k": None}, "missing"),
        ({"t": 1, "k": ""}, "empty"),
        ({"t": 1, "k": True}, "not bool"),
        ({"t": 1, "k": 1.5}, "not float"),
        ({"t": 1, "k": [1]}, "not list"),
        ({"t": 1, "k": "x" * 100_000}, "the limit is"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_record_without_a_usable_key_stops_the_pipeline_or_goes_aside(value, reason):
    with Harness(one(Ledger)) as h:
        h.send("in", value)
        with pytest.raises(InvalidRecord, match=reason) as error:
            h.settle()
        assert "'C'" in str(error.value) and "'in'" in str(error.value)
    with Harness(one(Ledger, errors=to("dead"))) as h:
        h.send("in", at(1, n=1), value)
        assert h.read("out") == [[1, 1]]
        [letter] = h.read("dead")
        assert letter["value"] == value and letter["key"] is None
        assert letter["error"].startswith("InvalidRecord") and h.counts["dead"] == 1


def test_a_key_function_that_raises_is_an_error_of_user_code():
    with Harness(one(Ledger, key=lambda v: v["k"].upper())) as h:
        h.send("in", at(1, 5, n=1))
        with pytest.raises(UserCodeError, match="has no attribute 'upper'"):
            h.settle()


def test_letters_of_all_origins_reach_every_reader_of_their_stream_once():
    # Letters about keys are made when rows leave, after those of hooks and of the source.
    p = Pipeline("post")
    p.read("in", sources.memory([], timestamp="t"), errors=to("dead"))
    p.compute(Map_, inputs={"in": None}, outputs="mapped", name="Keyless", errors=to("dead"))
    p.compute(Ledger, inputs={"mapped": "k"}, outputs="out", errors=to("dead"))
    p.compute(Echo, inputs={"dead": None}, outputs="echo")
    p.compute(Echo, inputs={"dead": ()}, outputs="keyed", name="Keyed")
    with Harness(p, slots=2) as h:
        h.send("in", {"k": "a"}, at(1, n=0), {"t": 2, "n": 1}, at(3, n=-1), at(4, n=5), CRASH)
        assert h.read("out") == [[5, 5]]
        kinds = sorted(letter["error"][:12] for letter in h.read("dead"))
        assert kinds == ["InvalidRecor", "ValueError: ", "ZeroDivision", "there is no "]
        for stream in ("echo", "keyed"):
            assert sorted(error[:12] for error, _ in h.read(stream)) == kinds
        assert h.counts["dead"] == 4


# Records that are none ----------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"k": "a"}, "no column 't'"),
        ({"k": "a", "t": None}, "missing"),
        ({"k": "a", "t": -5}, "before 1970"),
        ({"k": "a", "t": 10**18}, "after the year 9999"),
        ({"k": "a", "t": "yesterday"}, "not ISO 8601"),
        ({"k": "a", "t": float("nan")}, "nan"),
        ({"k": "a", "t": True}, "bool"),
        ("text", "no column 't'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_record_without_a_usable_time_stops_the_pipeline_or_goes_aside(value, reason):
    with Harness(one(Echo)) as h:
        h.send("in", value)
        with pytest.raises(SourceError, match=reason):
            h.settle()
    with Harness(one(Echo, read_errors=to("dead"))) as h:
        h.send("in", at(1), value)
        assert len(h.read("out")) == 1
        [letter] = h.read("dead")
        assert (letter["stream"], letter["position"]) == ("in", 1)
        assert reason in letter["error"]


def test_values_of_classes_that_no_module_has_go_aside_too():
    @dataclass
    class Order:
        id: str
        n: int

    class Sum(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            record.value.n += 1  # the letter has it as it came
            if record.value.n > 5:
                raise ValueError("too many")
            self.n += record.value.n

    p = Pipeline("orders")
    p.read("in", sources.memory([]), schema=Order)
    p.compute(Sum, inputs={"in": "id"}, outputs="out", name="Sum", errors=to("dead"))
    with Harness(p) as h:
        h.send("in", {"id": "a", "n": 1}, {"id": "a", "n": 7}, {"id": "a", "n": 2})
        assert h.state("Sum", "a").n == 5
        assert [letter["value"] for letter in h.read("dead")] == [{"id": "a", "n": 7}]
