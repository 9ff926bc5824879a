"""Hooks that hang in workers of Spark's: stopped where they can be, ended where they cannot."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import rows, state_of

from headrace import (
    Computation,
    Context,
    Pipeline,
    Record,
    UserCodeError,
    sinks,
    sources,
    state,
    to,
)

pytestmark = pytest.mark.spark

VALUES = [{"key": f"k{n % 4}", "n": n} for n in range(40)]


class Hangs(Computation):
    """Counts, and never comes back from the records it is told to hang at."""

    count: int = state(0)

    def __init__(self, *, at: int, how: str) -> None:
        self.at, self.how = at, how

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        if record.value["n"] == self.at:
            self.hang()
        ctx.produce({"key": ctx.key, "n": record.value["n"]})

    def hang(self) -> None:
        while self.how == "busy":
            pass
        if self.how == "sleep":
            time.sleep(1000)
        if self.how == "deaf":  # in C code, and nobody else may run Python meanwhile
            ctypes.PyDLL(None).sleep(1000)


def pipeline(where: Path, how: str, **options: Any) -> Pipeline:
    p = Pipeline("hangs")
    p.read("events", sources.memory(VALUES))
    hangs = Hangs(at=17, how=how)
    p.compute(hangs, inputs={"events": "key"}, outputs="counts", timeout="1s", **options)
    p.stream("counts").write(sinks.jsonl(where / "out"))
    if options:
        p.stream("dead").write(sinks.jsonl(where / "dead"))
    return p


@pytest.mark.parametrize("how", ["sleep", "busy"])
def test_a_hook_that_hangs_in_a_worker_becomes_a_dead_letter(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    p = pipeline(tmp_path, how, errors=to("dead"))
    summary = p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2)
    assert (summary.reason, summary.dead) == ("end", 1)
    (dead,) = rows(tmp_path / "dead")
    assert (dead["key"], dead["value"]["n"]) == ("k1", 17)
    assert dead["error"] == "HookTimeout: the hook ran longer than timeout=1s"
    assert sorted(row["n"] for row in rows(tmp_path / "out")) == [n for n in range(40) if n != 17]
    assert state_of(tmp_path / "checkpoint")["Hangs"]["k1"]["count"] == 9


@pytest.mark.timeout(300)
def test_code_that_cannot_be_stopped_ends_its_worker_and_the_error_names_the_computation(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(UserCodeError) as stopped:
        pipeline(tmp_path, "deaf").run(
            checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2
        )
    assert "computation 'Hangs'" in str(stopped.value)
    assert "its worker had to be ended" in str(stopped.value)
    assert not rows(tmp_path / "out")
