"""A watermark at the end of time: state, TTLs and lateness after it.

It is there when a loop goes round in the last epochs, and when a checkpoint that has ended
is started again because more input has come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.support import rows as output
from tests.spark.support import run_local, state_of

from headrace import Computation, Map, Pipeline, agg, sinks, sources, state, tumbling
from headrace.model.values.time import END
from headrace.testing import Harness


class Walk(Computation):
    seen: int = state(0)

    def process_record(self, record, ctx):
        self.seen += 1
        if record.value == 0:
            ctx.set_timer(at=4_000_000_000_000_000)
        elif record.value < 60:
            ctx.produce(record.value + 1)

    def process_timer(self, timer, ctx):
        ctx.produce(1)


def test_compaction_under_the_final_watermark_keeps_state_that_never_expires() -> None:
    p = Pipeline("walk")
    p.read("start", sources.memory([]))
    p.compute(Walk, inputs={"start": str, "again": str}, outputs="again")
    p.stream("again", feedback=True)
    with Harness(p, slots=1) as h:
        h.send("start", 0)
        summary = h.end()
        assert sorted(h.keys("Walk"), key=int) == [str(n) for n in range(61)]
    assert summary.epochs > 60 and not summary.notes


class Fields(Computation):
    n: int = state(0, ttl="1h")
    by_word: Map[str, int] = state(ttl="1h")

    def process_record(self, record, ctx):
        self.n += 1
        self.by_word["all"] = self.by_word.get("all", 0) + 1
        ctx.produce([self.n, self.by_word["all"]])


class Whole(Computation, ttl="1h"):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce([self.n, self.n])


class Table(Computation):
    n: int = state(0, ttl="1h")

    def process_table(self, table, ctx):
        counts = ctx.read().column("n").to_pylist()
        for i in table.column("key_index").to_pylist():
            counts[i] += 1
        ctx.write(n=counts)
        ctx.produce_table({"n": counts}, timestamp=5, key_index=range(len(counts)))


class Combined(Table):
    def combine_table(self, table):
        return pa.table({"key_index": table.column("key_index"), "c": [1] * table.num_rows})


@pytest.mark.parametrize("kind", [Fields, Whole, Table, Combined])
def test_a_checkpoint_that_has_ended_goes_on_as_if_it_had_not(
    tmp_path: Path, kind: type[Computation]
) -> None:
    (tmp_path / "in").mkdir()
    late = 0
    for day in range(3):
        rows = "".join(f'{{"id": "{day}-{i}", "t": {i + 1}}}\n' for i in range(2))
        (tmp_path / "in" / f"{day}.jsonl").write_text(rows)
        p = Pipeline("days")
        p.read("in", sources.jsonl(str(tmp_path / "in"), timestamp="t", id="id"))
        p.compute(kind, inputs={"in": lambda row: "all"}, outputs="out", name="Count")
        p.stream("out").write(sinks.jsonl(str(tmp_path / "out")))
        late += run_local(p, tmp_path / "checkpoint", slots=1).late
        assert state_of(tmp_path / "checkpoint")["Count"]["all"]["n"] == 2 * (day + 1)
    assert late == 0


def test_a_timer_at_the_end_of_time_still_sees_what_has_a_ttl() -> None:
    class Last(Computation):
        n: int = state(0, ttl="1h")

        def process_record(self, record: Any, ctx: Any) -> None:
            self.n += 1
            ctx.set_timer(at=END)

        def process_timer(self, timer: Any, ctx: Any) -> None:
            ctx.produce(self.n)
            self.n = 5

    p = Pipeline("last")
    p.read("in", sources.memory([]))
    p.compute(Last, inputs={"in": str}, outputs="out")
    with Harness(p) as h:
        h.send("in", 1, 1)
        h.end()
        assert h.read("out") == [2]


def steps(words: Any) -> dict[str, Any]:
    """Steps without windows, each as one value per word."""
    keyed = words.key_by("word")
    return {
        "count": keyed.count(),
        "sum": keyed.aggregate(count=agg.sum("n")),
        "reduce": keyed.reduce(
            lambda value, old: {"word": value["word"], "count": (old or {"count": 0})["count"] + 1},
            None,
        ),
    }


def test_steps_without_windows_go_on_too_and_windows_say_that_they_have_closed(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    for day in range(2):
        rows = '{"word": "mill", "n": 1, "t": 1}\n' * 3
        (tmp_path / "in" / f"{day}.jsonl").write_text(rows)
        p = Pipeline("words")
        words = p.read("in", sources.jsonl(str(tmp_path / "in"), timestamp="t"))
        made = {**steps(words), "window": words.key_by("word").window(tumbling("1s")).count("n")}
        for name, stream in made.items():
            stream.named(name).write(sinks.jsonl(str(tmp_path / name)))
        summary = run_local(p, tmp_path / "checkpoint", slots=1)
    for name in ("count", "sum", "reduce"):
        assert [row["count"] for row in output(tmp_path / name)][-1] == 6, name
    assert [row["n"] for row in output(tmp_path / "window")] == [3]
    (note,) = summary.notes
    assert note.startswith("3 records came after all windows had closed")
