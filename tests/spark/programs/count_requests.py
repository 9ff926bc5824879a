"""A keyed count with everything in a store; prints the progress after each epoch, as JSON.

    python -m tests.spark.programs.count_requests SCRATCH URL [--credentials-come-late]

With the option, Spark starts in an environment without credentials, and only the driver gets them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from tests.spark.conftest import start_spark
from tests.spark.pipelines import inside

from headrace import Computation, EpochProgress, Pipeline, StoreError, sinks, sources, state

SLOTS = 2
EPOCHS = 24


class Count(Computation):
    n: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n})


def tell(progress: EpochProgress) -> None:
    print(msgspec.json.encode(progress).decode(), flush=True)


def main() -> None:
    scratch, url, *late = sys.argv[1:]
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    credentials = {name: os.environ.pop(name) for name in names} if late else {}
    spark = start_spark(Path(scratch))
    os.environ.update(credentials)
    p = Pipeline("counts")
    rows = [{"k": i % 40, "t": i} for i in range(20 * EPOCHS)]
    p.read("in", sources.memory(rows, timestamp="t"))
    p.compute(Count, inputs={"in": "k"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(inside(url, "out")))
    try:
        p.run(
            checkpoint=inside(url, "state"), spark=spark, slots=SLOTS, epoch_records=20,
            lease="2s", on_epoch=tell,
        )  # fmt: skip
    except StoreError as error:
        print(f"refused: {error}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
