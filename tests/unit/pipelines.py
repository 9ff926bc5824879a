"""Small pipelines for tests: one source `in` (columns k, t), one computation, one stream `out`."""

from __future__ import annotations

from typing import Any

from headrace import Computation, Pipeline, sources


def one(
    computation: Computation | type[Computation],
    *,
    key: Any = "k",
    outputs: Any = "out",
    timing: dict[str, Any] | None = None,
    read_errors: Any = "stop",
    **options: Any,
) -> Pipeline:
    """`in` -> the computation, called C -> `out`."""
    p = Pipeline("one")
    source = sources.memory([], **{"timestamp": "t", **(timing or {})})
    p.read("in", source, errors=read_errors)
    p.compute(computation, inputs={"in": key}, outputs=outputs, name="C", **options)
    return p


def at(t: int, k: Any = "a", **more: Any) -> dict[str, Any]:
    """A record of key `k` at time `t`, in microseconds."""
    return {"k": k, "t": t, **more}
