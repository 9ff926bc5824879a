"""What people write first, from habit or by a slip: it works, or the message says what to write."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    Computation,
    InvalidPipeline,
    Pipeline,
    sources,
    state,
)


def begin() -> tuple[Pipeline, Any]:
    p = Pipeline("first")
    return p, p.read("in", sources.memory([], timestamp="t"))


def row(k: Any, t: int, v: Any = 1) -> dict[str, Any]:
    return {"k": k, "t": t, "v": v}


class Counts(Computation):
    n: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.n += 1
        ctx.produce(self.n)


# One name, and several ----------------------------------------------------


def test_one_text_is_one_name() -> None:
    p, _ = begin()
    p.compute(Counts, inputs={"in": "k"}, aliases="Old")
    assert p.freeze().graph.nodes["Counts"].aliases == ("Old",)
    assert sources.memory([], expected="a.jsonl").timing.expected == ("a.jsonl",)
    assert sources.csv("x.csv", columns="abc").format.columns == ("abc",)  # type: ignore[attr-defined]
    with pytest.raises(InvalidPipeline, match="aliases= takes a name or a list of names"):
        p.compute(Counts, inputs={"in": "k"}, name="B", aliases=[Counts])  # type: ignore[list-item]
