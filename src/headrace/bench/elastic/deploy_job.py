"""The pipeline of `headrace bench deploy`, in two versions, as `headrace run` and `deploy` take it.

Both count per key, and count alike; the code of the computation differs. The directory comes from
the environment, because a command takes only a module and a name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import Computation, Pipeline, sources
from headrace.bench.ours import CountTable

DIRECTORY = "HEADRACE_DEPLOY_DIRECTORY"
COMPUTATION = "count"


class CountOtherwise(CountTable):
    """The same counts, added up in another way."""

    def process_table(self, table: pa.Table, ctx: Any) -> None:
        """One epoch of a slot: a sum per key, and then one addition for all keys."""
        before = ctx.read()
        old = before["count"].to_numpy()
        seen = np.bincount(
            table["key_index"].to_numpy(), weights=table["seen"].to_numpy(), minlength=len(old)
        )
        counts = old + seen.astype(np.int64)
        ctx.write(count=counts)
        ctx.produce_table({"key": before["key"], "count": counts})


def former() -> Pipeline:
    """The pipeline that runs first."""
    return _counting(CountTable)


def later() -> Pipeline:
    """The pipeline that replaces it."""
    return _counting(CountOtherwise)


def _counting(computation: type[Computation]) -> Pipeline:
    where = Path(os.environ[DIRECTORY])
    p = Pipeline("deploy")
    p.read("records", sources.parquet(str(where / "in"), watch=True, timestamp="ts"))
    p.compute(computation, inputs={"records": "key"}, outputs="counts", name=COMPUTATION)
    return p
