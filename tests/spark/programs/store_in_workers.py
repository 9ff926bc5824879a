"""A store that the driver has used, in Spark's workers, which are forked: they must not hang.

    python -m tests.spark.programs.store_in_workers DIRECTORY URL

Prints how many of 100 names the workers have created, when every name is put by two of four tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from tests.spark.conftest import start_spark

from headrace.store.location import open_store

NAMES = 100


def main() -> None:
    scratch, url = Path(sys.argv[1]), sys.argv[2]
    store = open_store(url)
    store.put_if_absent("driver/a", b"1")  # before the session, and so before any worker
    spark = start_spark(scratch)
    for turn in range(2):

        def work(batches: Iterator[pa.RecordBatch], turn: int = turn) -> Iterator[pa.RecordBatch]:
            own = open_store(url)
            for batch in batches:
                numbers = batch.column(0).to_pylist()
                won = [own.put_if_absent(f"turn-{turn}/{n % NAMES}", b"%d" % n) for n in numbers]
                yield pa.RecordBatch.from_pydict({"won": [int(each) for each in won]})

        rows = spark.range(0, 2 * NAMES, 1, 4).mapInArrow(work, "won long").collect()
        print(sum(row[0] for row in rows), flush=True)
        assert store.put_if_absent(f"driver/{turn}", b"1")
    spark.stop()


if __name__ == "__main__":
    main()
