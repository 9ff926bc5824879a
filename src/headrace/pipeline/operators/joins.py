"""Puts joins into a graph: `join` and `join_asof` wire a computation between two streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.time import Duration, duration
from headrace.pipeline.graph import To
from headrace.pipeline.operators.join_asof import AsOfJoin
from headrace.pipeline.operators.join_history import HistoryJoin
from headrace.pipeline.operators.join_interval import Interval, IntervalJoin
from headrace.pipeline.operators.join_rows import Pairing, Select, Side
from headrace.pipeline.operators.join_window import WINDOW_COLUMNS, CutWindows, WindowJoin

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record
    from headrace.pipeline.builder import PipelineBuilder


class Relay(Computation):
    """Passes records on under another stream's name: a stream that is joined with itself."""

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """One record."""
        ctx.produce(record.value)


def join(
    builder: PipelineBuilder,
    left: Side,
    right: Side,
    *,
    within: Interval | None = None,
    window: CutWindows | None = None,
    grace: Duration = "0s",
    how: str = "inner",
    select: Select | None = None,
    late: str | To | None = None,
    name: str | None = None,
    **options: Any,
) -> tuple[str, tuple[str, ...] | None]:
    """Joins two streams by key; gives the joined stream's name and, if known, its columns."""
    name = name or f"{left.stream}.join"
    where = f"join {name!r}"
    _check_how(how, ("inner", "left", "full"), where)
    if within is not None and window is not None:
        raise InvalidPipeline(f"{where} takes within= or window=, not both")
    if within is not None and not isinstance(within, Interval):
        raise InvalidPipeline(f'{where}: within= is interval("-5s", "10s"), not {within!r}')
    grace_us = duration(grace, what=f"{where}: grace=")
    if grace_us and window is None:
        raise InvalidPipeline(f"{where}: grace= is for window joins")
    right = _apart(builder, left, right, name)
    _check_keys(left, right, where)
    shared = WINDOW_COLUMNS if window is not None else ()
    pairing = Pairing(left, right, select=select, where=where, shared=shared)
    outputs: Any = name
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
        late = "process"  # the window judges: a late record may fall into one that is open
        columns = columns and tuple(dict.fromkeys([*columns, *WINDOW_COLUMNS]))
    else:
        computation = HistoryJoin(pairing, left.stream, how)
        late = "process" if late is None else late
    inputs = {left.stream: left.key, right.stream: right.key}
    made = builder._add(name, computation, inputs, outputs, late=late, **options)
    return made, columns


def join_asof(
    builder: PipelineBuilder,
    left: Side,
    right: Side,
    *,
    within: Duration | None = None,
    how: str = "left",
    select: Select | None = None,
    late: str | To = "drop",
    name: str | None = None,
    **options: Any,
) -> tuple[str, tuple[str, ...] | None]:
    """Each left record with the newest right one at or before it, at most `within` older."""
    name = name or f"{left.stream}.join_asof"
    where = f"as-of join {name!r}"
    _check_how(how, ("inner", "left"), where)
    right = _apart(builder, left, right, name)
    _check_keys(left, right, where)
    tolerance = None if within is None else duration(within, what=f"{where}: within=")
    pairing = Pairing(left, right, select=select, where=where)
    # The right side first: of records of one instant, the table's change comes before the look-up.
    inputs = {right.stream: right.key, left.stream: left.key}
    computation = AsOfJoin(pairing, left.stream, how, tolerance)
    return builder._add(name, computation, inputs, name, late=late, **options), pairing.columns()


def _check_how(how: str, words: tuple[str, ...], where: str) -> None:
    if how not in words:
        choices = ", ".join(f'"{word}"' for word in words)
        raise InvalidPipeline(f"{where}: how= is one of {choices}, not {how!r}")


def _check_keys(left: Side, right: Side, where: str) -> None:
    for side, name in ((left, "left"), (right, "right")):
        if side.key is None:
            raise InvalidPipeline(
                f"{where}: its {name} side {side.stream!r} has no key: key_by() it first"
            )
    # A key of one column is its cell, one of a tuple of columns a tuple.
    forms = [None if isinstance(s.key, str) else len(s.key_columns) for s in (left, right)]
    if not callable(left.key) and not callable(right.key) and forms[0] != forms[1]:
        raise InvalidPipeline(
            f"{where}: the left side is keyed by {left.key!r}, the right one by {right.key!r}: "
            "such keys are never equal"
        )


def _apart(builder: PipelineBuilder, left: Side, right: Side, name: str) -> Side:
    """The right side under a name of its own, if it is the left side's stream."""
    if left.stream != right.stream:
        return right
    again = f"{name}.right"
    builder.compute(Relay, inputs={right.stream: None}, outputs=again, name=again)
    return Side(again, right.key, right.columns, right.names)
