"""A pipeline that never ends by itself, for `headrace run tests.spark.programs.paced:pipeline`."""

from __future__ import annotations

import os
import random
from pathlib import Path

from headrace import Computation, Context, Pipeline, Record, sinks, sources, state

KEYS = 5


class Tally(Computation):
    """Numbers the records of a key."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "n": record.value["n"], "count": self.count})


def number(n: int, dice: random.Random) -> dict[str, int]:
    return {"n": n, "key": n % KEYS}


def pipeline(count: int | None = None) -> Pipeline:
    p = Pipeline("paced")
    # The same records, whether they are due by the clock or all there are.
    paced = count is None
    p.read("numbers", sources.generate(number, rate=200, paced=paced, count=count, start=0))
    p.compute(Tally, inputs={"numbers": "key"}, outputs="tallies")
    p.stream("tallies").write(sinks.jsonl(Path(os.environ["PACED_OUTPUT"])))
    return p
