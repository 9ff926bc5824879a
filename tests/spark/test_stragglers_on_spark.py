"""A slot that holds up a Spark job: the job is cancelled, the slot limited, nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import rows, state_of

from headrace import Computation, Context, Pipeline, Record, sinks, sources, state

pytestmark = pytest.mark.spark

SLOW = "slow"
SLOW_S = 0.05
FIRST_SLOW = 400


class Counts(Computation):
    """Counts; one key takes its time from some record on."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        if record.value["key"] == SLOW:
            time.sleep(SLOW_S)
        ctx.produce({"key": ctx.key, "n": record.value["n"], "count": self.count})


def values() -> list[dict[str, Any]]:
    found = [{"key": f"k{n % 20}", "n": n} for n in range(FIRST_SLOW)]
    return found + [
        {"key": SLOW if n % 2 else f"k{n % 20}", "n": n} for n in range(FIRST_SLOW, 2 * FIRST_SLOW)
    ]


def test_a_slow_slot_gets_a_limit_and_loses_nothing(tmp_path: Path, spark: SparkSession) -> None:
    p = Pipeline("stragglers")
    p.read("in", sources.memory(values()))
    p.compute(Counts, inputs={"in": "key"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(tmp_path / "out"))
    notices: list[str] = []
    carried: list[int] = []
    p.run(
        checkpoint=tmp_path / "state",
        spark=spark,
        slots=4,
        epoch_records=100,
        epoch_target="500ms",
        straggler_after="1s",
        balance="off",
        on_notice=lambda notice: notices.append(notice.text),
        on_epoch=lambda progress: carried.append(progress.carried),
    )
    assert any("holds up epoch" in text for text in notices), notices
    assert max(carried) > 0 and carried[-1] == 0
    made = rows(tmp_path / "out")
    assert sorted(row["n"] for row in made) == list(range(2 * FIRST_SLOW))
    slow = [row["count"] for row in made if row["key"] == SLOW]
    assert sorted(slow) == list(range(1, FIRST_SLOW // 2 + 1))
    assert state_of(tmp_path / "state")["Counts"][SLOW]["count"] == FIRST_SLOW // 2
