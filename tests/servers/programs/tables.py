"""Numbers from a file into a table, for drivers that are killed (`test_table_kills.py`)."""

from __future__ import annotations

import json
import os

from headrace import Computation, Pipeline, sinks, sources, state


class Count(Computation):
    """Counts the records of a key, so that a row that is made twice differs."""

    count: int = state(0)

    def process_record(self, record, ctx):  # type: ignore[no-untyped-def]
        self.count += 1
        ctx.produce({"n": record.value["n"], "k": ctx.key, "count": self.count})


def pipeline() -> Pipeline:
    """What `headrace run` starts; the environment says where it reads and writes."""
    target = os.environ["TABLE_TARGET"]
    if target.startswith("postgresql:"):
        sink: sinks.Sink = sinks.postgres(target, os.environ["TABLE_NAME"])
    elif "TABLE_CATALOG" in os.environ:
        properties = json.loads(os.environ["TABLE_CATALOG"])
        sink = sinks.iceberg(target, properties=properties)
    else:
        sink = sinks.delta(target)
    p = Pipeline("numbers")
    p.read("numbers", sources.jsonl(os.environ["TABLE_INPUT"]))
    p.compute(Count, inputs={"numbers": lambda value: value["k"]}, outputs="counted")
    p.stream("counted").write(sink)
    return p
