"""A pipeline through Spark Connect, on a server that this program starts and leaves to itself.

    python -m tests.spark.programs.connected DIRECTORY

Prints what came out. That it ends is what the test waits for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from headrace import IncompatibleState, Pipeline, sinks, sources


def main(directory: Path) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    out = sinks.memory()
    p = Pipeline("connected")
    p.read("in", sources.memory([{"a": "x"}, {"a": "y"}, {"a": "x"}])).key_by("a").count("n").write(
        out
    )
    p.run(checkpoint=directory / "state", spark=spark)
    other = Pipeline("another")
    other.read("in", sources.memory([1])).write(sinks.memory())
    try:
        other.run(checkpoint=directory / "state", spark=spark)  # it fails, and must end too
    except IncompatibleState:
        print("refused", flush=True)
    print(json.dumps(out.rows), flush=True)
    assert spark.range(3).count() == 3, "the user's session, and its server, live on"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
