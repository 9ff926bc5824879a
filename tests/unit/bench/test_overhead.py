"""What causal logging costs: how it is put together, and that the three do the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace.bench import services
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.system import (
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    EXACTLY_ONCE_BARE,
    GUARANTEES,
    Task,
)
from headrace.bench.overhead import format_overhead, run_overhead
from headrace.bench.workload import CountWorkload
from headrace.testing import Harness

SMALL = CountWorkload(records=100, keys=10, epochs=2, warmup_epochs=0, hook="record")
EPOCH_MS = {EXACTLY_ONCE: [102.0, 100.0, 900.0], EXACTLY_ONCE_BARE: [100.0], AT_MOST_ONCE: [80.0]}


def _pretend(counts: Counter[str]):
    def outcome(name: str) -> SystemOutcome:
        times = EPOCH_MS[name]
        counts[name] += 1
        took = times[(counts[name] - 1) % len(times)]
        wrong = ["k000001: counted 1, expected 2"] if took == counts["wrong"] else []
        return SystemOutcome(name, [took, took], 200, wrong, {}, {}, {"cpu_ms": took / 2})

    def launch(system: str, task: Task) -> SystemOutcome:
        first, *others = (outcome(name) for name in GUARANTEES)
        return replace(first, others={other.system: other for other in others})

    return launch


def test_the_ratio_is_the_median_of_the_rounds_and_judged_by_the_bar():
    document = run_overhead(SMALL, rounds=3, launch=_pretend(Counter()))
    ratio = document["ratios"]["exactly-once / exactly-once-bare"]
    assert ratio["each_round"] == [0.9804, 1.0, 0.1111]
    assert ratio["throughput"] == 0.9804
    assert document["ratios"]["exactly-once-bare / at-most-once"]["throughput"] == 0.8
    assert document["ratios"]["exactly-once-bare / at-most-once"]["cpu"] == 0.8
    assert [bar["reached"] for bar in document["bars"]] == [True]
    assert "0.980" in format_overhead(document)


def test_wrong_counts_reach_no_bar():
    document = run_overhead(SMALL, rounds=2, launch=_pretend(Counter(wrong=80)))
    assert document["results_equal"] is False and AT_MOST_ONCE in document["mismatches"]
    assert [bar["reached"] for bar in document["bars"]] == [False]


def test_all_three_ask_the_same_of_the_same_records(tmp_path):
    answers = {}
    for name in GUARANTEES:
        p = services.pipeline(Task(SMALL, tmp_path / "in", tmp_path / name), name)
        with Harness(p, twice=False) as h:
            h.send("records", *({"key": "a", "ts": n, "value": n} for n in range(100)))
            rows = h.read("results")
            assert h.state("count", "a").count == sum(range(100))
        answers[name] = [row["answer"] for row in rows]
        assert len({row["id"] for row in rows}) == 100
    assert answers[EXACTLY_ONCE] == answers[EXACTLY_ONCE_BARE] == answers[AT_MOST_ONCE]
    assert sum(a != 0 for a in answers[EXACTLY_ONCE]) in (9, 10)
