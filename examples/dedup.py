"""Duplicates: payments that arrive twice within an hour count once.

    python examples/dedup.py

An id is remembered for the hour; then it is forgotten, and its state is gone.
"""

from headrace import Pipeline, agg, sinks, sources

PAYMENTS = [
    {"id": "p1", "shop": "mill", "cents": 500, "at": "2026-01-05T09:00:00Z"},
    {"id": "p2", "shop": "mill", "cents": 250, "at": "2026-01-05T09:01:00Z"},
    {"id": "p1", "shop": "mill", "cents": 500, "at": "2026-01-05T09:02:00Z"},
    {"id": "p3", "shop": "forge", "cents": 900, "at": "2026-01-05T09:03:00Z"},
    {"id": "p3", "shop": "forge", "cents": 900, "at": "2026-01-05T09:04:00Z"},
]

p = Pipeline("payments")
(
    p.read("payments", sources.memory(PAYMENTS, timestamp="at"))
    .dedup("id", within="1h")
    .key_by("shop")
    .aggregate(payments=agg.count(), cents=agg.sum("cents"))
    .named("takings")
    .write(sinks.jsonl("out/takings"))
)

if __name__ == "__main__":
    print(p.run(checkpoint="out/takings_state"))
