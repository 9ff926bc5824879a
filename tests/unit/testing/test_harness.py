"""The harness itself: time, crashes as items, code that is not deterministic."""

import random
import threading
import time

import pytest
from tests.unit.pipelines import at, one

from headrace import (
    SECOND,
    Computation,
    InvalidPipeline,
    InvalidRecord,
    NondeterministicCode,
    Pipeline,
    UserCodeError,
    failpoints,
    sinks,
    sources,
    state,
    to,
)
from headrace.model.values.time import END, MINUTE
from headrace.testing import CRASH, Harness
from headrace.testing.harness import START


class Orders(Computation):
    """The example of the guide: an unpaid order is cancelled after half an hour."""

    status: str = state("new")

    def process_record(self, record, ctx):
        self.status = record.value["status"]
        if self.status == "placed":
            ctx.set_timer("unpaid", after="30m")
        else:
            ctx.cancel_timer("unpaid")
        ctx.produce({"order": ctx.key, "status": self.status})

    def process_timer(self, timer, ctx):
        self.status = "cancelled"
        ctx.produce({"order": ctx.key, "status": "cancelled"})


class Count(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce([ctx.key, self.n])


def orders():
    p = Pipeline("orders")
    p.read("orders", sources.memory([], timestamp="at", unit="s"))
    p.compute(Orders, inputs={"orders": "order"}, outputs="order_events")
    return p


def order(status, name="o1", at=1_700_000_000):
    return {"order": name, "status": status, "at": at}


def test_an_unpaid_order_is_cancelled_once_though_the_driver_dies():
    with Harness(orders()) as h:
        h.send("orders", order("placed"), CRASH, order("placed", "o2"))
        h.advance("31m")
        h.crash(at="before-commit-write")
        events = h.read("order_events")
        assert [e["order"] for e in events if e["status"] == "cancelled"] == ["o1", "o2"]
        assert h.state("Orders", "o1").status == "cancelled"
        assert h.crashes == 2


@pytest.mark.parametrize("name", failpoints.NAMES)
def test_a_crash_at_every_named_place_loses_and_doubles_nothing(name):
    with Harness(one(Count), slots=3) as h:
        for t in range(4):
            h.send("in", at(t, "a"), at(t, "b"))
            h.crash(at=name)
        h.crash(at=name)
        h.end()
        assert sorted(h.read("out")) == [[k, n] for k in "ab" for n in range(1, 5)]
        assert h.crashes == 5


@pytest.mark.parametrize(
    "name",
    [
        "before-takeover", "after-takeover", "before-plan-write", "before-job",
        "before-segment-write", "after-segment-write", "after-job", "before-commit-write",
        "after-commit-write", "before-delivery", "before-claim", "after-high-water",
    ],
)  # fmt: skip
def test_a_crash_really_happens_where_it_is_asked_for(name, monkeypatch):
    died = []
    monkeypatch.setattr(Harness, "_die", _dying(died, Harness._die))
    with Harness(one(Count)) as h:
        h.send("in", at(1))
        h.crash(at=name)
        assert h.read("out") == [["a", 1]]
    assert len(died) == 1


def _dying(died, die):
    def wrapper(self):
        died.append(1)
        die(self)

    return wrapper


def test_an_unknown_failpoint_is_refused():
    with pytest.raises(ValueError, match=r"unknown failpoint 'before-lunch'.*before-commit-write"):
        Harness(one(Count)).crash(at="before-lunch")


def test_a_harness_leaves_no_failpoint_armed():
    with Harness(one(Count)) as h:
        h.send("in", at(1), CRASH)
    with pytest.raises(ZeroDivisionError), Harness(one(Count)) as h:
        h.send("in", at(1), CRASH)
        1 / 0
    failpoints.reach("before-commit-write")


# Time ---------------------------------------------------------------------


def test_time_is_the_tests_own():
    with Harness(one(Count), start=5 * SECOND) as h:
        h.send("in", at(1))
        h.settle()
        assert 5 * SECOND <= h._open().ledger.wall < 6 * SECOND


@pytest.mark.parametrize("lateness", ["0s", "10s"])
def test_the_watermark_advances_from_the_newest_record_on(lateness):
    with Harness(one(Count, timing={"lateness": lateness})) as h:
        h.send("in", at(0))
        h.advance("1m")
        assert h.watermark == MINUTE
        h.advance("1m")
        assert h.watermark == 2 * MINUTE
        h.send("in", at(5 * MINUTE))
        h.advance("1m")
        assert h.watermark == 6 * MINUTE


def test_records_without_a_time_of_their_own_bear_the_clocks():
    with Harness(one(Count, timing={"timestamp": None})) as h:
        h.send("in", at(1))
        h.advance("1m")
        h.send("in", at(1))
        assert [t for _, t in h.records("out")] == [START, START + MINUTE]


def test_the_end_brings_the_final_watermark():
    with Harness(one(Count)) as h:
        h.send("in", at(1))
        summary = h.end()
        assert h.watermark == END
        assert summary.reason == "end"


def test_epochs_are_cut_as_asked():
    with Harness(one(Count), epoch_records=2) as h:
        h.send("in", *(at(t) for t in range(5)))
        assert h.epoch == 3


def test_the_same_test_gives_the_same_answer_to_the_bit():
    class Dice(Computation):
        def process_record(self, record, ctx):
            ctx.produce([str(ctx.uuid()), ctx.random.random(), ctx.now()])

    def run():
        with Harness(one(Dice)) as h:
            h.send("in", at(1), CRASH, at(2))
            h.advance("1s")
            h.send("in", at(3))
            return h.read("out")

    assert run() == run()


# What is found ------------------------------------------------------------


class BareDice(Computation):
    def process_record(self, record, ctx):
        ctx.produce(random.random())


class BareClock(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n = time.perf_counter_ns()


class Shared(Computation):
    """State in a dict of the class: shared by all keys, and lost with the process."""

    counts: dict = {}

    def process_record(self, record, ctx):
        self.counts[ctx.key] = self.counts.get(ctx.key, 0) + 1
        ctx.produce(self.counts[ctx.key])


class SharedParameter(Shared):
    def __init__(self):
        self.counts = {}


@pytest.mark.parametrize("computation", [BareDice, BareClock, Shared, SharedParameter])
def test_code_that_is_not_deterministic_is_found(computation):
    with Harness(one(computation)) as h:
        h.send("in", at(1))
        with pytest.raises(
            NondeterministicCode, match=r"C/\d gave two different results.*ctx\.random"
        ):
            h.settle()


def test_the_call_that_does_not_repeat_itself_is_shown():
    with Harness(one(BareDice)) as h:
        h.send("in", at(1, k="a"), at(2, k="b"))
        with pytest.raises(NondeterministicCode) as caught:
            h.settle()
    first, once_more = (
        str(caught.value)
        .partition("The first call that shows it:\n    ")[2]
        .split("Once more:\n    ")
    )
    assert first.startswith("C 'a'  record of in at ")
    assert once_more.startswith("C 'a'  record of in at ")
    assert "produced to out" in first and first != once_more


def test_the_second_run_can_be_switched_off():
    with Harness(one(BareDice), twice=False) as h:
        h.send("in", at(1))
        assert len(h.read("out")) == 1


def test_an_error_can_be_expected_and_does_not_come_back_on_leaving():
    with Harness(one(BareDice)) as h:
        h.send("in", at(1))
        with pytest.raises(NondeterministicCode):
            h.read("out")


def test_an_error_that_nobody_looked_at_comes_out_on_leaving():
    class Fails(Computation):
        def process_record(self, record, ctx):
            raise ValueError("on purpose")

    with pytest.raises(UserCodeError, match="on purpose"), Harness(one(Fails)) as h:
        h.send("in", at(1))


def test_a_pipeline_goes_on_after_the_bad_epoch_is_mended():
    flaw = {"on": True}

    class Mends(Count):
        def process_record(self, record, ctx):
            if flaw["on"]:
                raise ValueError("not yet")
            super().process_record(record, ctx)

    with Harness(one(Mends)) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError):
            h.settle()
        flaw["on"] = False
        assert h.read("out") == [["a", 1]]


# Misuse -------------------------------------------------------------------


def test_misuse_is_answered_with_what_there_is():
    with Harness(one(Count, errors=to("dead"))) as h:
        with pytest.raises(InvalidPipeline, match="no source feeds 'out'; there are: in"):
            h.send("out", 1)
        for look in (h.read, h.records):
            with pytest.raises(InvalidPipeline, match="no stream 'nowhere'; there are: .*out"):
                look("nowhere")
        with pytest.raises(InvalidPipeline, match="'Nobody' keeps no state here; these do: C"):
            h.state("Nobody", "a")
        with pytest.raises(InvalidRecord, match="cannot be encoded"):
            h.send("in", object())
        with pytest.raises(TypeError, match="needs a unit"):
            h.advance(5)


def test_an_invalid_pipeline_is_refused_at_once():
    p = one(Count)
    p.compute(Count, inputs={"nowhere": "k"}, name="D")
    with pytest.raises(InvalidPipeline, match="nothing produces"):
        Harness(p)


def test_counts_show_what_was_counted():
    class Counts(Computation):
        def process_record(self, record, ctx):
            ctx.count("seen")
            ctx.count("weight", record.value["n"])

    with Harness(one(Counts), slots=3) as h:
        h.send("in", at(1, n=5), at(1, "b", n=6))
        h.send("in", at(0, n=7))
        assert h.counts == {"late": 1, "dead": 0, "C.seen": 3, "C.weight": 18}


def test_what_setup_opens_does_not_stay_with_the_pipeline():
    class Client(Computation):
        def setup(self):
            self.lock = threading.Lock()  # no such thing travels

        def process_record(self, record, ctx):
            with self.lock:
                ctx.produce(record.value)

    p = one(Client)
    for _ in range(2):
        with Harness(p) as h:
            h.send("in", at(1))
            assert len(h.read("out")) == 1


def test_a_summary_of_the_harness_counts_what_drivers_did_before_they_died() -> None:
    p = Pipeline("dies")
    p.read("in", sources.memory([]), errors=to("dead"))
    p.compute(Refuses, inputs={"in": "k"}, errors=to("dead"))
    p.stream("dead").write(sinks.memory())
    with Harness(p) as h:
        h.send("in", {"k": "a"}, CRASH, {"k": "b"}, {"other": 1})
        summary = h.end()
        assert (summary.records, summary.dead) == (3, 3)
        assert not any("all runs" in line for line in summary.lines())


class Refuses(Computation):
    def process_record(self, record, ctx):
        raise ValueError("never")


def test_a_rescale_moves_keys_to_other_slots_and_a_crash_in_it_changes_nothing() -> None:
    p = Pipeline("counts")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by("k").count("n").named("counts")
    with Harness(p, slots=2) as h:
        h.send("in", *({"k": f"k{i}", "t": 1} for i in range(50)))
        h.rescale(5)
        h.send("in", *({"k": f"k{i}", "t": 2} for i in range(50)), CRASH)
        h.rescale(1)
        h.send("in", *({"k": f"k{i}", "t": 3} for i in range(50)))
        assert sorted(row["n"] for row in h.read("counts")) == sorted([1, 2, 3] * 50)
        assert h._open().ledger.rings["counts"].version == 3  # it was 1 before
        with pytest.raises(ValueError, match="a number of slots"):
            h.rescale(0)


def test_a_harness_can_keep_only_the_streams_that_are_read() -> None:
    p = Pipeline("counts")
    p.read("in", sources.memory([], timestamp="t")).key_by("k").count("n").named("counts")
    with Harness(p, streams=["counts"]) as h:
        h.send("in", {"k": "a", "t": 1})
        assert [row["n"] for row in h.read("counts")] == [1]
        with pytest.raises(InvalidPipeline, match="no stream 'in'; there are: counts"):
            h.read("in")
    with pytest.raises(InvalidPipeline, match="no stream 'count'; there are: in, counts"):
        Harness(p, streams=["count"])
