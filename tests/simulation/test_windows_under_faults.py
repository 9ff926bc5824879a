"""Windows under seeded faults: the same rows as without any, whatever dies, wakes or moves."""

from __future__ import annotations

from headrace import Pipeline, agg, hopping, same_window, session, sliding, sources, tumbling
from headrace.testing import simulate

# One split knows no tips: its columns have other types than those of the other.
CLICKS = [
    {
        "tip": i if i % 2 else None,
        "user": "abc"[i * i % 3],
        "page": i % 4,
        "ms": i / 7,
        "at": 3 * i + (7 * i) % 5,
    }
    for i in range(40)
]


def windows() -> Pipeline:
    p = Pipeline("windows")
    clicks = p.read("clicks", sources.memory([], timestamp="at", lateness="200us"))
    users = clicks.key_by("user")
    users.window(session("4us")).aggregate(
        n=agg.count(), pages=agg.collect("page"), ms=agg.sum("ms"), seen=agg.distinct("page"),
        tips=agg.sum("tip"), best=agg.max("tip"), last=agg.last("tip"), all=agg.collect("tip"),
    )  # fmt: skip
    users.window(sliding("10us")).count().named("before")
    clicks.key_by("user", "page").window(tumbling("20us"), grace="10us").aggregate(
        spread=agg.variance("ms"), first=agg.first("ms")
    ).named("grid")
    users.window(hopping("20us", every="5us")).count("num").key_by().window(same_window()).top(
        1, by="num", ties=True
    )
    return p


def test_windows_give_the_same_rows_under_any_faults():
    splits = {"even": CLICKS[::2], "odd": CLICKS[1::2]}
    verdicts = simulate(windows, {"clicks": splits}, seeds=12)
    assert sum(sum(verdict.struck.values()) for verdict in verdicts) > 12
