"""Puts joins into a graph: `join` and `join_asof` wire a computation between two streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.values.column_names import check_column
from headrace.model.values.time import Duration, duration
from headrace.operators.joins.asof import AsOfJoin
from headrace.operators.joins.bounds import Interval
from headrace.operators.joins.combine import Pairing, Select, Side
from headrace.operators.joins.history import HistoryJoin
from headrace.operators.joins.interval import IntervalJoin
from headrace.operators.joins.windowed import WindowJoin
from headrace.operators.steps.stateless import PassOn
from headrace.operators.windows.window import WINDOW_COLUMNS, Window
from headrace.pipeline.fluent.catalog import Catalog
from headrace.pipeline.graph.graph import To

Made = tuple[str, tuple[str, ...] | None, tuple[str, ...]]
"""A step's name, its columns if they are known, and the names of its helper steps."""


def join(
    catalog: Catalog,
    left: Side,
    right: Side,
    *,
    within: Interval | None = None,
    window: Window | None = None,
    grace: Duration = "0s",
    how: str = "inner",
    select: Select | None = None,
    late: str | To | None = None,
    name: str | None = None,
    **options: Any,
) -> Made:
    """Joins two streams by key; returns the joined stream's name, its columns and helper steps."""
    name = name or f"{left.stream}.join"
    where = f"join {name!r}"
    _check_options(options, where)
    _check_how(how, ("inner", "left", "full"), where)
    if within is not None and window is not None:
        raise InvalidPipeline(f"{where} takes within= or window=, not both")
    if within is not None and not isinstance(within, Interval):
        raise InvalidPipeline(f'{where}: within= is interval("-5s", "10s"), not {within!r}')
    _check_window(window, where)
    grace_us = duration(grace, what=f"{where}: grace=")
    if grace_us and window is None:
        raise InvalidPipeline(f"{where}: grace= is for window joins")
    if window is not None and late is not None and late != "drop" and not isinstance(late, To):
        raise InvalidPipeline(
            f'{where}: late= of a window join is "drop" or to(stream), not {late!r}: a closed '
            "window takes no more records; grace= keeps it open for longer"
        )
    _check_keys(catalog, left, right, where)
    left, right = _typed(catalog, left), _typed(catalog, right)
    shared = () if window is None else WINDOW_COLUMNS
    pairing = Pairing(left, right, select=select, where=where, shared=shared)
    for column in () if window is None else window.columns:
        for side in (left, right):
            check_column(column, side.columns, where=f"{where}, same_window() of {side.stream!r}")
    outputs: Any = (name := catalog.free(name))
    right, helpers = _apart(catalog, left, right, name)
    columns = pairing.columns()
    computation: Computation
    if within is not None:
        computation = IntervalJoin(pairing, left.stream, within, how)
        late = "drop" if late is None else late
    elif window is not None:
        port = late.stream if isinstance(late, To) else None
        computation = WindowJoin(pairing, left.stream, window, how, grace_us, port)
        if port is not None:
            outputs = {"joined": name, port: port}
        late = "process"  # the window decides: the window of a late record may still be open
        columns = columns and tuple(dict.fromkeys([*columns, *WINDOW_COLUMNS]))
    else:
        computation = HistoryJoin(pairing, left.stream, how)
        late = "process" if late is None else late
    inputs = {left.stream: left.key, right.stream: right.key}
    made = catalog.add_step(name, computation, inputs, outputs, late=late, **options)
    return made, columns, helpers


def join_asof(
    catalog: Catalog,
    left: Side,
    right: Side,
    *,
    within: Duration | None = None,
    how: str = "left",
    select: Select | None = None,
    late: str | To = "drop",
    name: str | None = None,
    **options: Any,
) -> Made:
    """Joins each left record with the newest right record that is not after it."""
    name = name or f"{left.stream}.join_asof"
    where = f"as-of join {name!r}"
    _check_options(options, where)
    _check_how(how, ("inner", "left"), where)
    _check_keys(catalog, left, right, where)
    tolerance = None if within is None else duration(within, what=f"{where}: within=")
    pairing = Pairing(left, right, select=select, where=where)
    name = catalog.free(name)
    right, helpers = _apart(catalog, left, right, name)
    # The right side first: among records of one instant, the table's change precedes the look-up.
    inputs = {right.stream: right.key, left.stream: left.key}
    computation = AsOfJoin(pairing, left.stream, how, tolerance)
    made = catalog.add_step(name, computation, inputs, name, late=late, **options)
    return made, pairing.columns(), helpers


def _check_how(how: str, words: tuple[str, ...], where: str) -> None:
    if how not in words:
        choices = ", ".join(f'"{word}"' for word in words)
        raise InvalidPipeline(f"{where}: how= is one of {choices}, not {how!r}")


def _check_window(window: Any, where: str) -> None:
    if window is not None and not isinstance(window, Window):
        raise InvalidPipeline(f'{where}: a window is made like tumbling("10s"), not {window!r:.80}')
    if window is not None and not window.can_join:
        raise InvalidPipeline(
            f"{where}: a window join takes tumbling(), hopping(), same_window() or a window of "
            f"your own that can join, not {window.name}"
        )


def _check_options(options: Mapping[str, Any], where: str) -> None:
    if "on" in options:
        raise InvalidPipeline(f"{where} is by key: key_by(...) on both sides, instead of on=")


def _check_keys(catalog: Catalog, left: Side, right: Side, where: str) -> None:
    for side, name in ((left, "left"), (right, "right")):
        if side.key is None:
            raise InvalidPipeline(
                f"{where}: its {name} side {side.stream!r} has no key: key_by() it first"
            )
    # A key of one column is its cell; a key of a tuple of columns is a tuple.
    forms = [None if isinstance(s.key, str) else len(s.key_columns) for s in (left, right)]
    if not callable(left.key) and not callable(right.key) and forms[0] != forms[1]:
        raise InvalidPipeline(
            f"{where}: the left side is keyed by {left.key!r}, the right one by {right.key!r}: "
            "such keys are never equal"
        )
    for mine, theirs in zip(left.key_columns, right.key_columns, strict=False):
        kinds = [
            (side.stream, column, kind, _kind(kind))
            for side, column in ((left, mine), (right, theirs))
            if (kind := _type(catalog, side.stream, column)) is not None
        ]
        if len(kinds) == 2 and kinds[0][3] != kinds[1][3]:
            of = [f"{column!r} of {stream!r} is {kind}" for stream, column, kind, _ in kinds]
            raise InvalidPipeline(
                f"{where}: {of[0]}, {of[1]}: such keys are never equal. Make them alike before"
            )


def _typed(catalog: Catalog, side: Side) -> Side:
    """The side with the types of its columns, if its stream has a schema."""
    schema = catalog.schema_of(side.stream)
    if schema is None:
        return side
    return replace(side, kinds={field.name: field.type for field in schema.arrow})


def _type(catalog: Catalog, stream: str, column: str) -> pa.DataType | None:
    schema = catalog.schema_of(stream)
    known = schema is not None and column in schema.names
    return schema.arrow.field(column).type if schema is not None and known else None


def _kind(given: pa.DataType) -> str:
    """The group of types whose values can be equal keys: text, whole numbers or bytes."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_string(given) or pa.types.is_large_string(given):
        return "text"
    return "number" if pa.types.is_integer(given) else str(given)


def _apart(catalog: Catalog, left: Side, right: Side, name: str) -> tuple[Side, tuple[str, ...]]:
    """The right side under another name, if both sides are one stream; and the step for it."""
    if left.stream != right.stream:
        return right, ()
    again = f"{name}.right"
    catalog.add_node(PassOn(), inputs={right.stream: None}, outputs=again, name=again)
    return replace(right, stream=again), (again,)
