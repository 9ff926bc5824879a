"""Top rows: per closed window, and over rows that replace each other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace import Pipeline, sources, tumbling
from headrace.testing import CRASH, Harness


def changing(**key: Any) -> Pipeline:
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by(*key.get("columns", ())).top(3, by="n", id="name")
    return p


def latest(rows: list[dict[str, Any]]) -> list[tuple[int, str, int]]:
    """The last list that was sent."""
    last = max(i for i, row in enumerate(rows) if row["rank"] == 1)
    return [(row["rank"], row["name"], row["n"]) for row in rows[last:]]


@pytest.mark.parametrize("seed", range(4))
def test_the_list_follows_rows_that_rise_and_fall(seed: int):
    dice = random.Random(seed)
    now: dict[str, int] = {}
    with Harness(changing()) as h:
        for t in range(12):
            names = dice.sample([f"n{i:02}" for i in range(40)], dice.randint(1, 12))
            rows = [{"name": name, "n": dice.randint(0, 50), "t": t} for name in names]
            now.update({row["name"]: row["n"] for row in rows})
            h.send("in", *rows, *([CRASH] if dice.random() < 0.3 else []))
            best = sorted(now.items(), key=lambda item: (-item[1], item[0]))[:3]
            wanted = [(rank, name, n) for rank, (name, n) in enumerate(best, 1)]
            assert latest(h.read("in.top")) == wanted


def test_each_key_has_its_own_list():
    with Harness(changing(columns=("country",))) as h:
        h.send("in", *({"country": c, "name": f"{c}{i}", "n": i, "t": 1}
                       for c in ("de", "fr") for i in range(5)))  # fmt: skip
        found = [(r["country"], r["rank"], r["name"]) for r in h.read("in.top")]
    assert sorted(found) == [
        ("de", 1, "de4"), ("de", 2, "de3"), ("de", 3, "de2"),
        ("fr", 1, "fr4"), ("fr", 2, "fr3"), ("fr", 3, "fr2"),
    ]  # fmt: skip


def test_top_of_a_window_keeps_a_column_called_key():
    p = Pipeline("top")
    s = p.read("in", sources.memory([], timestamp="t"))
    s.key_by().window(tumbling("10us")).top(1, by="n")
    with Harness(p) as h:
        h.send("in", {"n": 1, "t": 1, "key": "x"}, {"n": 2, "t": 2, "key": "y"})
        h.end()
        assert h.read("in.top") == [
            {"n": 2, "t": 2, "key": "y", "window_start": 0, "window_end": 10, "rank": 1}
        ]


def test_all_parts_of_a_named_top_bear_its_name():
    p = changing()
    p.stream("in").key_by().top(3, by="n", id="name").named("second")
    names = [n for n in p.freeze().graph.nodes if not n.startswith("in.top")]
    assert sorted(names) == ["second", "second.best", "second.dealt"]
