"""A small stateful pipeline as a program, to be killed: python tally.py DIRECTORY.

Fields, a map, timers and windows. Reads DIRECTORY/in, writes DIRECTORY/out, keeps its state in
DIRECTORY/state. Prints "epoch N" after each epoch, and "done" with the version of Spark.
It needs nothing but Headrace, as a user's program would.
"""

import sys
from pathlib import Path

from headrace import Computation, Map, Pipeline, agg, sinks, sources, state, tumbling

EPOCH_RECORDS = 25


class Tally(Computation):
    count: int = state(0)
    shops: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.count += 1
        shop = record.value["shop"]
        self.shops[shop] = self.shops.get(shop, 0) + 1
        ctx.set_timer("idle", after="1m")
        row = {"user": ctx.key, "nth": self.count, "in_shop": self.shops[shop]}
        ctx.produce({**row, "id": record.value["id"]})

    def process_timer(self, timer, ctx):
        ctx.produce({"user": ctx.key, "idle_after": self.count})


def pipeline(where: Path, source=None) -> Pipeline:
    p = Pipeline("tally")
    files = sources.jsonl(f"{where}/in/*.jsonl", timestamp="at", lateness="1s")
    p.read("sales", source or files)
    p.compute(Tally, inputs={"sales": "user"}, outputs="tallies")
    p.stream("tallies").write(sinks.jsonl(f"{where}/out/tallies"))
    windows = p.stream("sales").key_by("shop").window(tumbling("1m"))
    windows.aggregate(sales=agg.count()).named("minutes").write(sinks.jsonl(f"{where}/out/minutes"))
    return p


def main(directory: str) -> None:
    import pyspark

    def tell(progress):
        print(f"epoch {progress.epoch}", flush=True)

    made = pipeline(Path(directory))
    checkpoint = f"{directory}/state"
    made.run(checkpoint=checkpoint, slots=2, epoch_records=EPOCH_RECORDS, on_epoch=tell)
    print(f"done {pyspark.__version__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
