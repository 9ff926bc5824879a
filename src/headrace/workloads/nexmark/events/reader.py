"""Reads events that others have written: any file in the format of Nexmark, as JSON lines.

    {"kind": "bid", "auction": 1003, "bidder": 1000, "price": 250, "date_time": 1436918400000400}

`date_time` and `expires` are ISO 8601 text or integer microseconds; text without a zone is UTC.
Columns that a kind does not have are dropped, texts that are missing are null. A record that is no
event follows `errors=` of the step: by default the pipeline stops and shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import Computation, InvalidRecord, Pipeline, Stream, TableContext, sources, to
from headrace.model.source import Source, Timing
from headrace.model.values.time import Duration
from headrace.workloads.nexmark.events.columns import (
    COLUMNS_OF,
    EVENT_COLUMNS,
    KINDS,
    REQUIRED,
    TIMES,
)

_TIMING = Timing(zone="UTC")
_NUMBERS = {field.name for field in EVENT_COLUMNS if field.type == pa.int64()}


def event_files(paths: str | Sequence[str], *, lateness: Duration = "0s") -> Source:
    """The source of such files. `lateness`: how far their events may be out of order."""
    return sources.jsonl(paths, timestamp="date_time", zone="UTC", lateness=lateness)


def read_foreign(pipeline: Pipeline, source: Source, *, dead: str | None = None) -> Stream[Any]:
    """The stream of events of such a source; what is no event goes to the stream `dead`."""
    policy: Any = "stop" if dead is None else to(dead)
    read = pipeline.read("read", source, errors=policy)
    pipeline.stream("events", schema=EVENT_COLUMNS)
    return read.compute(TypedEvents, key=None, outputs="events", errors=policy)


class TypedEvents(Computation):
    """Gives events the columns of all kinds, with their types."""

    reads_values = False  # it takes the records as they are

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Converts all events of a task."""
        rows = ctx.inputs()[0].rows
        values = rows.values()
        try:
            columns, good = _columns(values), np.arange(len(values))
        except (InvalidRecord, pa.ArrowException, TypeError, ValueError, AttributeError, KeyError):
            kept = []
            for i, value in enumerate(values):
                try:
                    _columns([value])
                except (InvalidRecord, pa.ArrowException, ValueError, TypeError) as error:
                    wrong = error if isinstance(error, InvalidRecord) else InvalidRecord(str(error))
                    ctx.set_aside(wrong, i, value, int(rows.timestamps[i]))
                else:
                    kept.append(i)
            good = np.array(kept, np.int64)
            columns = _columns([values[i] for i in kept])
        if len(good):
            ctx.produce_table(columns, timestamp=rows.timestamps[good], causes=good)


def _columns(values: list[Any]) -> pa.Table:
    """The columns of events; raises an error if one of them is no event."""
    by_kind: dict[str, tuple[list[int], list[Mapping[str, Any]]]] = {k: ([], []) for k in KINDS}
    for i, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise InvalidRecord(f"an event is an object, not {type(value).__name__}")
        kind = value.get("kind")
        if kind not in by_kind:
            raise InvalidRecord(f"the kind of an event is one of {', '.join(KINDS)}, not {kind!r}")
        by_kind[kind][0].append(i)
        by_kind[kind][1].append(value)
    tables, order = [], []
    for kind, (at, chosen) in by_kind.items():
        fields = COLUMNS_OF[kind]
        made = {field.name: _column(kind, field, chosen) for field in fields}
        made["kind"] = pa.array([kind] * len(chosen), pa.string())
        tables.append(pa.table(made))
        order += at
    wide = pa.concat_tables(tables, promote_options="default").select(EVENT_COLUMNS.names)
    return wide.take(pa.array(np.argsort(np.array(order, np.int64), kind="stable")))


def _column(kind: str, field: pa.Field, events: list[Mapping[str, Any]]) -> pa.Array:
    cells = [event.get(field.name) for event in events]
    name = field.name
    if name in TIMES:
        cells = [cell if type(cell) is int else _micros(cell, kind, name) for cell in cells]
    kinds = set(map(type, cells))
    if name in REQUIRED[kind] and type(None) in kinds:
        raise InvalidRecord(f"the {kind} has no {name!r}")
    wanted = int if name in _NUMBERS else str
    if not kinds <= {wanted, type(None)}:
        odd = next(cell for cell in cells if type(cell) not in (wanted, type(None)))
        what = "a whole number" if wanted is int else "text"
        raise InvalidRecord(f"{name!r} of the {kind} is {odd!r:.80}, not {what}")
    try:
        return pa.array(cells, field.type)
    except OverflowError:
        raise InvalidRecord(f"{name!r} of the {kind} does not fit into 64 bits") from None


def _micros(cell: Any, kind: str, name: str) -> int:
    try:
        return _TIMING.micros(cell)
    except ValueError as error:
        raise InvalidRecord(f"{name!r} of the {kind}: {error}") from None
