"""Windows, joins and other steps give the same rows with limits at random as without them."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from tests.unit.engine.support import driver_of

from headrace import (
    Pipeline,
    agg,
    hopping,
    interval,
    session,
    sinks,
    sliding,
    sources,
    to,
    tumbling,
)  # fmt: skip
from headrace.model.values.keys import HASH_SPACE
from headrace.plan.decisions.next_step import Finish
from headrace.plan.rings.wanted import Move, Wanted
from headrace.plan.summary import carried_rows

SEEDS = 3
LATENESS = "12us"
Steps = Callable[[Any, Any], Any]


def windowed(window: Any, **options: Any) -> Steps:
    def steps(left: Any, right: Any) -> Any:
        found = left.key_by("k").window(window, **options)
        return found.aggregate(n=agg.count(), s=agg.sum("x"), low=agg.min("x"))

    return steps


def joined(**options: Any) -> Steps:
    def steps(left: Any, right: Any) -> Any:
        chosen = {"k": "left.k", "x": "left.x", "y": "right.x"}
        return left.key_by("k").join(right.key_by("k"), select=chosen, **options)

    return steps


def twice(left: Any, right: Any) -> Any:
    first = left.key_by("k").window(tumbling("10us")).aggregate(n=agg.count())
    return first.key_by("n").window(tumbling("40us")).aggregate(k=agg.sum("k"), m=agg.count())


STEPS: dict[str, Steps] = {
    "tumbling": windowed(tumbling("20us")),
    "tumbling, with grace": windowed(tumbling("20us"), grace="15us"),
    "tumbling, late to a stream": windowed(tumbling("20us"), late=to("late")),
    "hopping": windowed(hopping("20us", every="5us")),
    "session": windowed(session("6us")),
    "session, with grace": windowed(session("6us"), grace="9us"),
    "sliding": windowed(sliding("9us")),
    "windows of windows": twice,
    "interval join": joined(within=interval("-8us", "5us")),
    "interval join, outer": joined(within=interval("-8us", "5us"), how="left"),
    "window join, outer": joined(window=tumbling("20us"), grace="4us", how="full"),
    "asof join": lambda left, right: left.key_by("k").join_asof(
        right.key_by("k"), select={"k": "left.k", "x": "left.x", "y": "right.x"}
    ),
    "dedup": lambda left, right: left.key_by("k").dedup(within="15us"),
}


def rows(random: Random, count: int) -> list[dict[str, int]]:
    now, made = 100, []
    for number in range(count):
        now += random.choice((0, 1, 3))
        at = now - random.randrange(0, 12)
        made.append({"k": random.randrange(5), "x": number, "at": at})
    return made


def result(steps: Steps, seed: int, limited: bool) -> tuple[Counter[str], int]:
    """The rows at the end, and how many records have waited."""
    random = Random(seed)
    given = {name: rows(random, 60) for name in ("left", "right")}
    p = Pipeline("operators")
    streams = [
        p.read(name, sources.memory(values, timestamp="at", lateness=LATENESS))
        for name, values in given.items()
    ]
    sink = sinks.memory()
    steps(*streams).named("made").write(sink)
    driver = driver_of(p.freeze(), epoch_records=14, slots=2)
    waited = 0
    for epoch in range(2000):
        names = sorted(driver.topology.keyed)
        limits: dict[str, int] = {}
        if limited and epoch < 60:
            for name in names:
                if random.random() < 0.2 and name in driver.ledger.slots:
                    lows = [HASH_SPACE * i // 4 for i in range(5)]
                    moves = [Move(a, b - 1, random.randrange(3)) for a, b in pairwise(lows)]
                    driver.ledger.wanted[name] = Wanted(moves=tuple(moves))
                for slot in range(3):
                    if (limit := random.choice((None, 0, 1, 3, 8))) is not None:
                        limits[f"{name}/{slot}"] = limit
        driver.settings = msgspec.structs.replace(driver.settings, limited=limits)
        if isinstance(driver.step(), Finish):
            driver.close()
            return Counter(map(repr, sink.rows)), waited
        waited += carried_rows(driver.ledger)
    raise AssertionError("there is no end")


@pytest.mark.parametrize("name", STEPS)
def test_limits_change_no_row(name: str) -> None:
    waited = 0
    for seed in range(SEEDS):
        right, _ = result(STEPS[name], seed, limited=False)
        found, waiting = result(STEPS[name], seed, limited=True)
        assert found == right, f"seed {seed}"
        assert len(right) > 5
        waited += waiting
    assert waited > 20
