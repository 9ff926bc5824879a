"""A pipeline with state of every kind: fields, maps, timers, TTLs, and keys of any kind."""

from __future__ import annotations

from typing import Any

from headrace import Computation, Map, Pipeline, sinks, sources, state
from headrace.pipeline.graph.topology import Topology

VALUES: tuple[Any, ...] = (
    0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 1.5, float("inf"), None, True, "", "text",
    "näh", "\x00", b"bytes", [], [1, 2], [None, "a", 1], {}, {"a": 1}, {"b": {"c": [1]}},
    float("nan"),
)  # fmt: skip


class Everything(Computation):
    """Fields of one kind and of many, a map, entries that expire, keys that are forgotten."""

    count: int = state(0)
    total: float = state(0.0)
    last: Any = state(None)
    names: list[str] = state()
    seen: Map[str, int] = state()
    marks: Map[tuple[str, int], Any] = state()
    recent: Map[int, int] = state(ttl="5us")

    def process_record(self, record, ctx):
        n = record.value["n"]
        self.count += 1
        self.total += n / 2
        self.last = VALUES[n % len(VALUES)]
        self.names = [*self.names[-2:], f"n{n}"]
        self.seen[f"s{n % 7}"] = n
        if n % 3 == 0:
            self.seen.pop(f"s{(n + 1) % 7}", None)
        self.marks["m", n % 4] = VALUES[(n * 5) % len(VALUES)]
        self.recent[n % 5] = n
        ctx.set_timer(f"t{n % 3}", at=record.timestamp + 1000)
        if n % 11 == 10:
            ctx.forget()
        ctx.produce({"k": record.value["k"], "n": n})

    def process_timer(self, timer, ctx):
        pass


def keys_of(n: int) -> Any:
    """A key of one of several kinds."""
    return (f"k{n % 9}", n % 9, ("a", n % 3), b"b%d" % (n % 2))[n % 4]


def everything(records: int = 60, sink: Any = None) -> Topology:
    """A pipeline with fields, maps, timers, and a second computation with a key of two parts."""
    values = [{"n": n, "k": f"k{n % 9}"} for n in range(records)]
    p = Pipeline("everything")
    p.read("in", sources.memory(values, timestamps=range(records)))
    p.compute(Everything, inputs={"in": lambda v: keys_of(v["n"])}, outputs="out")
    p.compute(Counts, inputs={"out": "k"})
    p.stream("out").write(sinks.memory() if sink is None else sink)
    return p.freeze()


class Counts(Computation):
    """One typed field by one key."""

    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
