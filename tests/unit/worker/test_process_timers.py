"""`process_timers`, and maps and timers in columns."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, InvalidPipeline, Map, Pipeline, UserCodeError, sources, state
from headrace.model.values.time import END
from headrace.testing import CRASH, Harness


class Recent(Computation):
    """Keeps values by time for ten microseconds, then says how many there were."""

    values: Map[int, int] = state()

    def process_table(self, table, ctx):
        times = table["timestamp"].to_numpy()
        ctx.put_entries("values", table["key_index"], times, table["v"])
        keys = np.unique(table["key_index"])
        ctx.set_timers(keys, np.full(len(keys), times.max() + 10), tag="over")

    def process_timers(self, table, ctx):
        assert set(table["tag"].to_pylist()) == {"over"}
        found = ctx.entries("values", table["key_index"])
        ctx.produce_table(
            {"k": table["key"], "n": np.bincount(found["key_index"])[table["key_index"]]},
            timestamp=table["timestamp"].to_numpy() - 1,
            key_index=table["key_index"],
        )
        ctx.put_entries("values", found["key_index"], found["entry"], [None] * found.num_rows)


def rows(h: Harness) -> list[tuple[str, int, int]]:
    return sorted((row["k"], row["n"], t) for row, t in h.records("out"))


def test_due_timers_come_as_one_table_also_without_records():
    with Harness(one(Recent)) as h:
        h.send("in", at(1, "a", v=1), at(2, "b", v=2), CRASH)
        h.send("in", at(3, "a", v=3))
        assert h.read("out") == []
        h.advance("50us")
        assert rows(h) == [("a", 2, 12), ("b", 1, 11)]
        assert h.keys("C") == []


def test_a_timer_of_records_of_this_epoch_sees_what_they_wrote():
    with Harness(one(Recent)) as h:
        h.send("in", at(1, "a", v=1), at(1, "b", v=1))
        h.send("in", at(2, "a", v=2), at(90, "c", v=3))
        h.advance("1s")
        assert rows(h) == [("a", 2, 99), ("b", 1, 10), ("c", 1, 99)]


class Holding(Computation):
    """Stays behind: what it says later is as old as the first record."""

    n: int = state(0)

    def process_table(self, table, ctx):
        times = table["timestamp"].to_numpy()
        ctx.set_timers(table["key_index"], times + 10, tag=int(times[0]), hold=times)

    def process_timers(self, table, ctx):
        ctx.produce_table({"k": table["key"]}, timestamp=table["timestamp"].to_numpy() - 10)


class Watch(Computation):
    seen: int = state(0)

    def process_record(self, record, ctx):
        self.seen += 1


def test_timers_hold_the_output_watermark_until_they_have_fired():
    p = one(Holding)
    p.compute(Watch, inputs={"out": "k"})
    with Harness(p) as h:
        h.send("in", at(1, "a"))
        h.send("in", at(8, "b"))
        assert h.watermarks() == {"C": 8, "Watch": 1}
        h.send("in", at(12, "c"))
        assert h.watermarks() == {"C": 12, "Watch": 8}
        h.end()
        assert h.counts["late"] == 0
        assert h.state("Watch", "a").seen == 1


def test_entries_are_read_back_as_they_are_written_over_many_epochs():
    class Log(Computation):
        log: Map[int, str] = state()

        def process_table(self, table, ctx):
            ctx.put_entries("log", table["key_index"], table["timestamp"], table["v"])
            gone = ctx.entries("log")
            old = gone["entry"].to_numpy() < table["timestamp"].to_numpy().max() - 3
            chosen = np.flatnonzero(old)
            ctx.put_entries(
                "log", gone["key_index"].to_numpy()[chosen], gone["entry"].to_numpy()[chosen],
                [None] * len(chosen),
            )  # fmt: skip
            left = ctx.entries("log")
            ctx.produce_table({"entries": [str(left["entry"].to_pylist())]})

    with Harness(one(Log)) as h:
        for t in range(1, 8):
            h.send("in", at(t, "a", v=f"v{t}"), *([CRASH] if t % 3 == 0 else []))
        assert h.read("out")[-1] == {"entries": "[4, 5, 6, 7]"}
        assert dict(h.state("C", "a").log.items()) == {t: f"v{t}" for t in range(4, 8)}


def test_the_timers_of_keys_can_be_seen_replaced_and_cancelled():
    class Replace(Computation):
        n: int = state(0)

        def process_table(self, table, ctx):
            before = ctx.timers("t").to_pylist()
            ctx.produce_table({"before": before})
            keys = table["key_index"].to_numpy()
            times = table["timestamp"].to_numpy()
            ctx.set_timers(keys, times + 100, tag="t", hold=np.full(len(keys), END))
            ctx.cancel_timers(keys[table["v"].to_numpy() == 0], tag="t")

        def process_timers(self, table, ctx):
            ctx.produce_table({"before": table["timestamp"]})

    with Harness(one(Replace)) as h:
        h.send("in", at(1, "a", v=1))
        h.send("in", at(2, "a", v=1))
        h.send("in", at(3, "a", v=0))
        h.send("in", at(4, "a", v=1))
        h.end()
        assert [row["before"] for row in h.read("out")] == [None, 101, 102, None, 104]


def test_timers_set_for_ever_are_refused():
    class Loop(Computation):
        n: int = state(0)

        def process_table(self, table, ctx):
            ctx.set_timers([0], [1])

        def process_timers(self, table, ctx):
            ctx.set_timers([0], [1])

    with pytest.raises(UserCodeError, match="for ever"), Harness(one(Loop)) as h:
        h.send("in", at(5))


def test_process_timers_needs_process_table():
    class Alone(Computation):
        def process_record(self, record, ctx): ...

        def process_timers(self, table, ctx): ...

    with pytest.raises(InvalidPipeline, match="process_table beside"):
        one(Alone)


def test_a_field_that_records_wrote_survives_a_timer_of_another_key():
    class Latest(Computation):
        seen: int = state(0)

        def process_table(self, table, ctx):
            seen = ctx.read().column("seen").to_numpy().copy()
            seen[table.column("key_index").to_numpy()] += 1
            ctx.write(seen=seen)
            keys = np.unique(table.column("key_index").to_numpy())
            newest = int(table.column("timestamp").to_numpy().max())
            ctx.set_timers(keys, np.full(len(keys), newest + 10))

        def process_timers(self, table, ctx):
            seen = ctx.read().column("seen").to_numpy().copy()
            seen[table.column("key_index").to_numpy()] = 0
            ctx.write(seen=seen)

    p = Pipeline("fields")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Latest, inputs={"in": "k"}, outputs="out")
    with Harness(p, slots=1) as h:
        h.send("in", {"k": "a", "t": 1})
        h.send("in", {"k": "b", "t": 30})  # the timer of a is due in the same epoch
        assert h.keys("Latest") == ["b"]
        assert h.state("Latest", "b").seen == 1
