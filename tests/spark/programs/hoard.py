"""Two levels whose changes are too large to ride in commits, with the checkpoint in a store.

    python -m tests.spark.programs.hoard DIRECTORY URL EVERY [--asks]

Writes DIRECTORY/out, and keeps its state below the URL; EVERY is `checkpoint_every=`. Prints the
progress after each epoch, as JSON, and what notices say, then "done". With --asks it is asked for a
look-up, another number of slots and a savepoint, while it runs; what it answers is printed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from headrace import Computation, Context, EpochProgress, Pipeline, Record, sinks, sources, state

RECORDS, KEYS, PER_EPOCH, SLOTS = 4_800, 40, 200, 2
EPOCHS = RECORDS // PER_EPOCH


class Hoard(Computation):
    """Counts, and keeps some kilobytes that change with every record."""

    n: int = state(0)
    much: bytes = state(b"")

    def process_record(self, record: Record[int], ctx: Context) -> None:
        self.n += 1
        self.much = bytes([self.n % 256]) * 6_000
        ctx.produce({"key": ctx.key % 20, "n": self.n})


class Sum(Computation):
    """A second level: its repair needs the first."""

    total: int = state(0)
    much: bytes = state(b"")

    def process_record(self, record: Record[dict[str, int]], ctx: Context) -> None:
        self.total += record.value["n"]
        self.much = bytes([self.total % 256]) * 12_000
        ctx.produce({"key": ctx.key, "total": self.total})


def by_key(number: int) -> int:
    return number % KEYS


def hoarding(out: Path, records: int = RECORDS) -> Pipeline:
    """numbers -> Hoard -> Sum -> out."""
    p = Pipeline("hoarding")
    p.read("numbers", sources.memory(list(range(records)), timestamps=range(records)))
    p.compute(Hoard, inputs={"numbers": by_key}, outputs="counts")
    p.compute(Sum, inputs={"counts": "key"}, outputs="sums")
    p.stream("sums").write(sinks.jsonl(out))
    return p


def tell(progress: EpochProgress) -> None:
    print(f"epoch {msgspec.json.encode(progress).decode()}", flush=True)


def main() -> None:
    from tests.spark.conftest import start_spark

    where, url, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    scratch = where / "spark"
    scratch.mkdir(parents=True, exist_ok=True)
    spark = start_spark(scratch)
    options: dict[str, Any] = {"slots": SLOTS, "epoch_records": PER_EPOCH, "balance": "off"}
    print("ready", flush=True)
    options |= {"checkpoint_every": every, "straggler_after": None, "on_epoch": tell}
    options["on_notice"] = lambda notice: print(f"notice {notice.kind} {notice.text}", flush=True)
    job = hoarding(where / "out").start(checkpoint=url, spark=spark, until="end", **options)
    if "--asks" in sys.argv:
        while job.status().epoch < 6:
            time.sleep(0.02)
        found = job.lookup("Hoard", 1)
        state = None if found.state is None else found.state["n"]
        print(f"looked up {found.epoch} {state}", flush=True)
        print(f"rescale {job.rescale('Hoard', 3)}", flush=True)
        print(f"savepoint {job.savepoint('kept')}", flush=True)
    job.wait()
    spark.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main()
