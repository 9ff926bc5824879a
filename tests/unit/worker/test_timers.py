"""Timers: event and wall time, replaced by tag, in order, once; holds and the end."""

import pytest
from tests.unit.pipelines import at, one
from tests.unit.systems import limited

from headrace import Computation, Pipeline, UserCodeError, sources, state
from headrace.model.values.time import END, MINUTE, SECOND
from headrace.testing import CRASH, Harness
from headrace.testing.harness import START


class Script(Computation):
    """Does what the record says; produces what happens."""

    log: list[str] = state()

    def process_record(self, record, ctx):
        self.log.append(f"r{record.timestamp}")
        self.run(record.value.get("do", ""), ctx)

    def process_timer(self, timer, ctx):
        self.log.append(f"t{timer.timestamp}")
        ctx.produce(
            {
                "tag": timer.tag,
                "at": timer.timestamp,
                "clock": timer.clock,
                "log": list(self.log),
                "watermark": ctx.watermark,
                "final": ctx.final,
            }
        )
        if isinstance(timer.tag, str) and timer.tag.startswith("ctx."):
            self.run(timer.tag, ctx)

    def run(self, code, ctx):
        exec(code, {"ctx": ctx, "self": self, "SECOND": SECOND, "END": END})


class Sink(Computation):
    """Shows what reaches the next computation, and when its watermark is where."""

    def process_record(self, record, ctx):
        ctx.produce([record.timestamp, ctx.watermark, record.late])


def fired(h):
    return [(row["tag"], row["at"]) for row in h.read("out")]


def two_levels():
    p = one(Script)
    p.compute(Sink, inputs={"out": ()}, outputs="seen")
    return p


def test_a_timer_fires_when_the_watermark_reaches_it_and_only_once():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=10)"))
        h.send("in", at(9))
        assert fired(h) == []
        h.send("in", at(10))
        assert fired(h) == [("x", 10)]
        h.send("in", at(50))
        h.end()
        assert fired(h) == [("x", 10)]


def test_after_counts_from_the_record():
    with Harness(one(Script)) as h:
        h.send("in", at(5, do="ctx.set_timer(after='10us')"))
        h.send("in", at(15))
        assert fired(h) == [("", 15)]


def test_the_same_tag_replaces_and_another_does_not():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=5); ctx.set_timer('y', at=6)"))
        h.send("in", at(2, do="ctx.set_timer('x', at=20)"))
        h.send("in", at(10))
        assert fired(h) == [("y", 6)]
        h.send("in", at(20))
        assert fired(h) == [("y", 6), ("x", 20)]


def test_a_cancelled_timer_does_not_fire():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=5); ctx.set_timer(7, at=5)"))
        h.send("in", at(2, do="ctx.cancel_timer('x'); ctx.cancel_timer('not there')"))
        h.send("in", at(3, do="ctx.set_timer('z', at=5); ctx.cancel_timer('z')"))
        h.send("in", at(10))
        assert fired(h) == [(7, 5)]


def test_timers_of_one_instant_fire_in_the_order_of_their_tags():
    tags = ["'b'", "'a'", "10", "-3", "('b', 1)", "('a', 2)", "b'z'", "None"]
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="; ".join(f"ctx.set_timer({tag}, at=5)" for tag in tags)))
        h.send("in", at(9))
        assert [tag for tag, _ in fired(h)] == [
            None, b"z", "a", "b", ["a", 2], ["b", 1], -3, 10,
        ]  # fmt: skip


def test_a_timer_that_is_due_fires_in_the_same_epoch_also_if_a_timer_set_it():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer(\"ctx.set_timer('again', at=7)\", at=5)"))
        h.send("in", at(9))
        assert [at for _, at in fired(h)] == [5, 7]


def test_an_earlier_hook_may_cancel_or_replace_a_timer_that_is_due():
    do = "ctx.set_timer(\"ctx.cancel_timer('x'); ctx.set_timer('y', at=8)\", at=3)"
    with Harness(one(Script)) as h:
        h.send("in", at(1, do=do + "; ctx.set_timer('x', at=4); ctx.set_timer('y', at=5)"))
        h.send("in", at(9))
        assert fired(h)[1:] == [("y", 8)]


def test_a_due_timer_fires_as_soon_as_no_older_record_of_its_key_remains():
    with Harness(one(Script, timing={"lateness": "200us"})) as h:
        h.send("in", at(0, do="ctx.set_timer(at=10)"), at(100), at(5), at(300))
        # After an outage: the records at 0 and 100 share an epoch with the timer at 10.
        assert h.read("out")[0]["log"] == ["r0", "r100", "r5", "t10"]
    with Harness(one(Script)) as h:
        h.send("in", at(0, do="ctx.set_timer(at=10)"), at(100), at(200))
        assert h.read("out")[0]["log"] == ["r0", "t10"]


def test_a_record_at_the_time_of_a_timer_comes_after_it():
    with Harness(one(Script)) as h:
        h.send("in", at(0, do="ctx.set_timer(at=10)"), at(9), at(10), at(11))
        assert h.read("out")[0]["log"] == ["r0", "r9", "t10"]


def test_the_watermark_is_the_previous_epochs_in_records_and_this_ones_in_timers():
    class Watching(Script):
        def process_record(self, record, ctx):
            super().process_record(record, ctx)
            ctx.produce({"tag": "r", "at": ctx.watermark})

    with Harness(one(Watching)) as h:
        h.send("in", at(5, do="ctx.set_timer('x', at=8)"))
        h.send("in", at(20))
        assert fired(h) == [("r", 0), ("x", 8), ("r", 5)]
        assert next(r for r in h.read("out") if r["tag"] == "x")["watermark"] == 20


def test_hooks_for_one_key_do_not_fire_timers_of_another():
    with Harness(one(Script), slots=1) as h:
        h.send("in", at(1, "a", do="ctx.set_timer('x', at=5)"))
        h.send("in", at(1, "b", do="ctx.set_timer('y', at=9)"), at(6, "b"))
        assert [(r["tag"], r["log"]) for r in h.read("out")] == [("x", ["r1", "t5"])]


def test_a_timer_survives_a_crash_and_fires_once():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=10)"), CRASH, at(20), CRASH, at(30))
        assert fired(h) == [("x", 10)]


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("ctx.set_timer()", "at= or after="),
        ("ctx.set_timer(at=1, after='1s')", "at= or after="),
        ("ctx.set_timer(after=5)", "needs a unit"),
        ("ctx.set_timer(at=1.5)", "microseconds as int"),
        ("ctx.set_timer(at=2**63)", "64 bits"),
        ("ctx.set_timer(at=1, clock='moon')", "clock="),
        ("ctx.set_timer(1.5, at=1)", "not float"),
        ("ctx.hold('soon')", "microseconds"),
        ("ctx.produce(1, timestamp=2**63)", "64 bits"),
    ],
)
def test_a_wrong_timer_is_a_readable_error(do, reason):
    with Harness(one(Script)) as h:
        h.send("in", at(1, do=do))
        with pytest.raises(UserCodeError, match=reason):
            h.settle()


def test_a_timer_needs_a_hook():
    class Deaf(Computation):
        def process_record(self, record, ctx):
            ctx.set_timer(at=5)

    with Harness(one(Deaf)) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match="no process_timer"):
            h.settle()


def test_a_timer_that_sets_itself_at_once_for_ever_is_found(monkeypatch):
    class Endless(Computation):
        def process_record(self, record, ctx):
            ctx.set_timer(at=2)

        def process_timer(self, timer, ctx):
            ctx.set_timer(at=2)

    with Harness(one(Endless)) as h:
        h._runtime.store.system = limited(timers_per_key_max=50)
        h.send("in", at(1), at(5))
        with pytest.raises(UserCodeError, match="does process_timer set a timer"):
            h.settle()


def test_many_records_of_a_key_are_not_taken_for_a_loop_of_timers():
    with Harness(one(Script)) as h:
        h._runtime.store.system = limited(timers_per_key_max=50)
        h.send("in", at(0, do="ctx.set_timer(at=60)"), *(at(t) for t in range(1, 100)))
        assert len(h.read("out")) == 1


# Wall time ----------------------------------------------------------------


def test_a_wall_time_timer_fires_by_the_clock_and_not_by_the_watermark():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('w', after='10s', clock='wall')"))
        h.send("in", at(10**15))
        assert fired(h) == []
        h.advance("10s")
        [row] = h.read("out")
        assert (row["tag"], row["clock"]) == ("w", "wall")
        assert START + 10 * SECOND <= row["at"] <= START + 11 * SECOND


def test_an_idle_pipeline_wakes_for_a_wall_time_timer():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('w', after='10s', clock='wall')"))
        epoch = h.epoch
        h._now += 5 * SECOND  # time passes and no source says anything
        h.settle()
        assert h.epoch == epoch
        h._now += 6 * SECOND
        h.settle()
        assert h.epoch == epoch + 1
        assert len(h.read("out")) == 1


def test_productions_of_a_wall_time_timer_are_stamped_with_the_watermark():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('w', after='1s', clock='wall')"), at(70))
        h.advance("1s")
        assert [t for _, t in h.records("out")] == [70 + SECOND]


def test_wall_time_timers_come_after_event_timers_and_hold_nothing():
    with Harness(two_levels()) as h:
        h.send("in", at(1, do="ctx.set_timer('w', at=1, clock='wall'); ctx.set_timer('e', at=50)"))
        h.send("in", at(40))
        assert [tag for tag, _ in fired(h)] == ["w"]
        assert h.watermarks()["Sink"] == 40


def test_a_wall_time_timer_may_hold_if_told_to():
    with Harness(two_levels()) as h:
        h.send("in", at(1, do="ctx.set_timer('w', after='1h', clock='wall', hold=5)"))
        h.send("in", at(40))
        assert h.watermarks()["Sink"] == 5


def test_cancel_reaches_both_clocks():
    with Harness(one(Script)) as h:
        h.send(
            "in", at(1, do="ctx.set_timer('x', at=9); ctx.set_timer('x', after='1s', clock='wall')")
        )
        h.send("in", at(2, do="ctx.cancel_timer('x')"))
        h.advance("5s")
        assert fired(h) == []


# Holds --------------------------------------------------------------------


def test_a_pending_timer_holds_the_output_watermark_at_its_time():
    with Harness(two_levels()) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=10)"), at(9))
        assert h.watermarks() == {"C": 9, "Sink": 9}
        h.send("in", at(1, "b", do="ctx.set_timer('y', at=30)"), at(20))
        assert h.watermarks() == {"C": 20, "Sink": 20}
        h.send("in", at(40, "a", do="ctx.set_timer('z', at=100)"), at(60))
        assert h.watermarks() == {"C": 60, "Sink": 60}


def test_hold_keeps_the_output_watermark_back_and_a_result_is_on_time_there():
    do = "ctx.set_timer('x', at=100, hold=3); ctx.produce(0, timestamp=5)"
    with Harness(two_levels()) as h:
        h.send("in", at(3, do=do), at(50))
        assert h.watermarks() == {"C": 50, "Sink": 3}
        h.send("in", at(120))
        assert h.watermarks() == {"C": 120, "Sink": 120}
        assert [late for _, _, late in h.read("seen")] == [False, False]


def test_hold_may_let_the_watermark_pass_a_timer():
    with Harness(two_levels()) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=100, hold=END)"), at(50))
        assert h.watermarks()["Sink"] == 50


def test_an_explicit_hold_stays_until_it_is_released_or_the_key_is_forgotten():
    with Harness(two_levels()) as h:
        h.send("in", at(1, do="ctx.hold(4)"), at(1, "b", do="ctx.hold(7)"), at(50))
        assert h.watermarks()["Sink"] == 4
        h.send("in", at(51, do="ctx.release()"))
        assert h.watermarks()["Sink"] == 7
        h.send("in", at(52, "b", do="ctx.forget()"))
        assert h.watermarks()["Sink"] == 52


def test_a_hold_behind_what_was_already_promised_changes_nothing():
    with Harness(two_levels()) as h:
        h.send("in", at(50))
        h.send("in", at(51, do="ctx.hold(4)"))
        h.send("in", at(60))
        assert h.watermarks()["Sink"] == 50


# The end ------------------------------------------------------------------


def test_at_the_end_all_timers_fire_and_the_hooks_know():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('x', at=10**17)"))
        summary = h.end()
        assert [(r["tag"], r["final"], r["watermark"]) for r in h.read("out")] == [("x", True, END)]
        assert summary.reason == "end" and summary.notes == ()


def test_timers_set_by_timers_at_the_end_do_not_fire_and_are_counted():
    again = "ctx.set_timer('again', at=ctx.watermark)"
    replaces = "ctx.set_timer('other', at=10**17 + 5)"
    with Harness(one(Script)) as h:
        do = f"ctx.set_timer({again!r}, at=10**16); ctx.set_timer({replaces!r}, at=10**16)"
        h.send("in", at(1, do=do + "; ctx.set_timer('other', at=10**17)"))
        summary = h.end()
        assert [tag for tag, _ in fired(h)] == [again, replaces]
        assert "2 timers were set by timers" in summary.notes[0]


def test_wall_time_timers_left_at_the_end_are_reported():
    with Harness(one(Script)) as h:
        h.send("in", at(1, do="ctx.set_timer('w', after='1h', clock='wall')"))
        summary = h.end()
        assert fired(h) == []
        assert any("wall-time timers" in note for note in summary.notes)


def test_results_of_the_end_travel_through_all_levels():
    p = Pipeline("deep")
    p.read("in", sources.memory([], timestamp="t"))
    stream = "in"
    for level in range(1, 4):
        p.compute(
            Collect,
            inputs={stream: () if level > 1 else "k"},
            outputs=f"out{level}",
            name=f"L{level}",
        )
        stream = f"out{level}"
    with Harness(p) as h:
        h.send("in", at(1, "a"), at(2, "b"), at(3, "a"))
        h.end()
        assert h.read("out3") == [3]


class Collect(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += record.value if isinstance(record.value, int) else 1
        window = record.timestamp // (10 * MINUTE)
        ctx.set_timer(at=(window + 1) * 10 * MINUTE)

    def process_timer(self, timer, ctx):
        ctx.produce(self.n, timestamp=timer.timestamp - 1)
        self.n = 0


def test_a_window_three_levels_deep_closes_in_the_epoch_that_passed_it():
    p = Pipeline("deep")
    p.read("in", sources.memory([], timestamp="t"))
    for level in range(1, 4):
        p.compute(
            Collect,
            inputs={f"out{level - 1}" if level > 1 else "in": ()},
            outputs=f"out{level}",
            name=f"L{level}",
        )
    with Harness(p) as h:
        h.send("in", at(1), at(2))
        before = h.epoch
        h.send("in", at(10 * MINUTE))
        assert h.read("out3") == [2]
        assert h.epoch == before + 1
        assert set(h.watermarks().values()) == {10 * MINUTE}
        assert h.counts["late"] == 0


def test_producing_behind_the_output_watermark_is_counted():
    with Harness(one(Script)) as h:
        h.send("in", at(100))
        h.send("in", at(120, do="ctx.produce({'tag': 0, 'at': 0}, timestamp=99)"))
        h.send("in", at(130, do="ctx.produce({'tag': 0, 'at': 0}, timestamp=120)"))
        assert any("1 records were produced behind" in note for note in h.end().notes)
