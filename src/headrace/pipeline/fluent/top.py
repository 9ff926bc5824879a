"""Puts `top` by ids into a graph. It has two phases, so that no slot sees all rows."""

from __future__ import annotations

from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.key_spec import KeyGiven
from headrace.model.values.column_names import check_column
from headrace.operators.top.by_id import BUCKET, Bucketed, BucketTop, MergeTop
from headrace.pipeline.fluent.keyed_source import KeyedSource


def top_by_id(source: KeyedSource, n: int, by: str, id: Any, options: Any) -> tuple[str, ...]:
    """Adds the steps; returns their names. The first one produces the ranked rows."""
    catalog, columns, where = source.catalog, source.key_columns, f"{source.name}.top"
    if type(n) is not int or n < 1:
        raise InvalidPipeline(f"{where}: n is a number from 1 on, not {n!r}")
    if id == ():
        raise InvalidPipeline(
            f"{where}: window(...).top(n, by=) for the rows of a window; id= for rows that "
            'replace each other: top(3, by="n", id="user")'
        )
    ids: Any = (id,) if isinstance(id, str) else id
    if not isinstance(ids, tuple) or not ids or not all(isinstance(c, str) for c in (by, *ids)):
        raise InvalidPipeline(
            f"{where}: by= names a column, id= a column or a tuple of them, not "
            f"by={by!r:.40}, id={id!r:.80}"
        )
    if callable(source.key):
        raise InvalidPipeline(f"{where}: key by columns, not by a function")
    known = catalog.columns_of(source.name)
    for column in (by, *ids):
        check_column(column, known, where=where)
    made = catalog.free(where)
    dealt, best = f"{made}.dealt", f"{made}.best"
    policy = {"errors": options["errors"]} if "errors" in options else {}
    catalog.add_step(dealt, Bucketed(ids, columns), {source.name: None}, dealt, **policy)
    first: KeyGiven = (*columns, BUCKET)
    catalog.add_step(best, BucketTop(n, by, ids), {dealt: first}, best, **options)
    parts = tuple(f"k{i}" for i in range(len(columns)))
    second: KeyGiven = parts[0] if len(parts) == 1 else parts
    merge = MergeTop(n, columns)
    catalog.add_step(made, merge, {best: second}, made, **{**source.slot_options, **options})
    if known is not None:
        catalog.know_columns(made, list(dict.fromkeys([*known, "rank"])))
    return made, dealt, best
