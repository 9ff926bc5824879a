"""Runs the pipelines of these tests, and looks at what came out."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.cluster.conftest import EXECUTORS
from tests.cluster.pipelines import two_levels
from tests.spark.support import rows

KEYS = 24
EPOCH = KEYS
"""One record of each key in every epoch."""


def run(where: Path, spark: SparkSession, **options: Any) -> Any:
    # Tests say where keys lie, so no key moves by itself.
    steady = {"epoch_records": EPOCH, "until": "end", "balance": "off"}
    options = {"slots": EXECUTORS, **steady, **options}
    made = {name: options.pop(name) for name in ("second", "filler") if name in options}
    pipeline = two_levels(where, **made)
    return pipeline.run(checkpoint=str(where / "checkpoint"), spark=spark, **options)


def started(where: Path, spark: SparkSession, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """A run in a thread of its own, and where its outcome will lie."""
    outcome: list[Any] = []

    def go() -> None:
        try:
            outcome.append(run(where, spark, **options))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread, outcome


def ended(thread: threading.Thread, outcome: list[Any]) -> None:
    thread.join(300)
    assert outcome, "it is still running"
    if isinstance(outcome[0], BaseException):
        raise outcome[0]


def homes(found: list[dict[str, Any]], level: str) -> dict[str, list[int]]:
    """Key -> the executors on which its hooks ran, in order."""
    seen: dict[str, list[int]] = defaultdict(list)
    for row in sorted(found, key=lambda row: row["id"]):
        seen[row["key"]].append(row[level])
    return seen


def share_at_home(found: list[dict[str, Any]], level: str) -> float:
    """How many hooks ran where the same key's hook had run before."""
    moves = [one == other for places in homes(found, level).values()
             for one, other in pairwise(places)]  # fmt: skip
    return sum(moves) / len(moves)


def check_all_once_and_in_order(where: Path, count: int) -> list[dict[str, Any]]:
    ones, twos = rows(where / "out" / "ones"), rows(where / "out" / "twos")
    assert Counter(row["id"] for row in ones) == Counter(range(count))
    assert Counter(row["id"] for row in twos) == Counter(range(count))
    by_key = defaultdict(list)
    for row in twos:
        by_key[row["key"]].append((row["nth"], row["id"]))
    for arrived in by_key.values():
        assert arrived == sorted(arrived)
        assert [nth for nth, _ in arrived] == list(range(1, len(arrived) + 1))
    return twos


def check_not_torn(where: Path) -> None:
    """What level 1 published is what level 2 added up, epoch by epoch."""
    first = sorted((where / "out" / "ones").glob("epoch=*"))
    assert first, "nothing was published"
    scores: Counter[Any] = Counter()
    for directory in first:
        rolled = rows_of(directory)
        kept = rows_of(where / "out" / "twos" / directory.name)
        told = {row["id"]: (row["points"], row["player"], row["one"]) for row in rolled}
        assert told == {row["id"]: (row["points"], row["player"], row["one"]) for row in kept}
        for row in kept:
            scores[row["key2"]] += row["points"]
            assert row["score"] == scores[row["key2"]], f"{directory.name}: {row}"


def rows_of(directory: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(directory.glob("*")) for line in path.open(encoding="utf-8")]
    return [json.loads(line) for line in lines]
