"""`process_table` and `process_timers`: a slot's records and due timers as Arrow tables.

One context serves both hooks of an epoch, so timers see what the records wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import (
    CallUncertain,
    HeadraceError,
    IncompatibleState,
    ServiceError,
    UserCodeError,
)
from headrace.model.context import Input
from headrace.model.values.rows import Rows, with_own
from headrace.pipeline.graph.graph import Node
from headrace.plan.parcel import Parcel
from headrace.state.view import CellId
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.lateness import keep_on_time
from headrace.worker.runtime import Live
from headrace.worker.slot_run import Arrival, SlotRun, due_events
from headrace.worker.tables.combine import reserved_name_error, time_column, value_table
from headrace.worker.tables.context import KeylessTableContext
from headrace.worker.tables.keyed_context import KeyedTableContext
from headrace.worker.tables.parts import by_watermarks, inputs_apart, one_per_input
from headrace.worker.timers import WALL
from headrace.worker.watching.tracebacks import describe
from headrace.worker.watching.watchdog import HookWatch, watching

_NO_VALUES = "no values"

ROUNDS_MAX = 10_000
"""After this many rounds of timers that set timers that are due at once, the run fails."""


def run_tables(run: SlotRun, arrivals: list[Arrival]) -> None:
    """Runs the hooks over all arrivals and all due timers, if there are any."""
    arrivals = [a for a in arrivals if len(a.parcel.rows)]
    due: list[CellId] = []
    if run.live.shape.takes_timer_tables:
        wall = run.slot.indexes[WALL].due(run.order.plan.wall)
        due = [cell for _, cell in (*due_events(run), *wall)]
    if run.held_before or run.held_now:
        for hook, part in enumerate(by_watermarks(run, one_per_input(run.node, arrivals), due)):
            _run_part(part.run, part.arrivals, part.due, hook)
    else:
        _run_part(run, one_per_input(run.node, arrivals), due)


def _run_part(run: SlotRun, arrivals: list[Arrival], due: list[CellId], hook: int = 0) -> None:
    """Runs the hooks over some keys, which see the same watermarks."""
    if not arrivals and not due:
        return
    apart = inputs_apart(run.node)
    merged = Parcel.merge([_bare(a) if apart and len(arrivals) > 1 else a.parcel for a in arrivals])
    keys, codes = _used(merged)
    inputs = _inputs(arrivals, codes)
    known = list(dict.fromkeys([*keys, *(cell[0] for cell in due)]))
    run.slot.expect(known)
    context = KeyedTableContext(run, known, codes, merged.rows, inputs, due, hook)
    if arrivals:
        shown = context.key_column(codes) if run.node.template.reads_values else None
        table = _table(run.node, merged.rows, arrivals, shown, codes)
        _call(run.live, "process_table", table, context)
        run.emitter.counters.hooks += 1
    if run.live.shape.takes_timer_tables:
        _fire(run, context)
    run.cells.extend(context.cells())


def _bare(arrival: Arrival) -> Parcel:
    """A table of keys and times only, as values of several inputs may not fit one table."""
    parcel = arrival.parcel
    rows = Rows(parcel.rows.timestamps, columns=pa.record_batch([], names=[]))
    return Parcel(parcel.keys, parcel.codes, rows)


def _inputs(arrivals: list[Arrival], codes: np.ndarray[Any, Any]) -> list[Input]:
    """Each arrival with its part of the key indexes."""
    found, first = [], 0
    for arrival in arrivals:
        rows = arrival.parcel.rows
        mine = codes[first : first + len(rows)]
        found.append(Input(arrival.stream, first, mine, rows, arrival.feedback))
        first += len(rows)
    return found


def _fire(run: SlotRun, context: KeyedTableContext) -> None:
    """Fires all due timers as one table; then the timers that this hook set and that are due."""
    for _ in range(ROUNDS_MAX):
        table = context.take_due()
        if table is None:
            return
        _call(run.live, "process_timers", table, context)
        run.emitter.counters.timers += table.num_rows
    raise UserCodeError(
        f"computation {run.node.name!r}: process_timers sets timers that are due at once, for ever"
    )


def run_keyless_table(
    emitter: Emitter, live: Live, inputs: list[tuple[int, str, Rows]], before: int
) -> None:
    """Runs `process_table` without keys, in the task that produced the rows."""
    for index, stream, rows in inputs:
        rows = keep_on_time(emitter, live.node, rows, before)
        if len(rows):
            hook = emitter.keyless_hooks.get(live.node.name, 0)
            emitter.keyless_hooks[live.node.name] = hook + 1
            context = KeylessTableContext(emitter, live.node, index, rows, hook)
            context.watermark = context.watermark_before = context.watermark_after = before
            arrival = Arrival(0, stream, Parcel([], np.zeros(0, np.int32), rows))
            table = _table(live.node, rows, [arrival], None, None)
            _call(live, "process_table", table, context)
            emitter.counters.hooks += 1


def _used(parcel: Parcel) -> tuple[list[bytes], np.ndarray[Any, Any]]:
    """The keys that have records, and the index of each row's key among them."""
    present = np.zeros(len(parcel.keys), np.bool_)
    present[parcel.codes] = True
    if present.all():
        return parcel.keys, parcel.codes
    keys = [parcel.keys[i] for i in np.flatnonzero(present).tolist()]
    return keys, (np.cumsum(present) - 1)[parcel.codes].astype(np.int32)


def _call(live: Live, hook: str, table: pa.Table, context: Any) -> None:
    obj = live.object_class.__new__(live.object_class)
    watch = HookWatch(live.node, hook=hook)
    try:
        with watching(watch):
            watch.begin()
            getattr(obj, hook)(table, context)
            live.check_nothing_kept(obj)
        if context.broken is not None:
            raise context.broken
    except IncompatibleState as error:
        raise IncompatibleState(f"computation {live.node.name!r}: {error}") from None
    except HeadraceError as error:
        if not isinstance(error, (ServiceError, CallUncertain)):
            raise
        raise _failed(live, hook, table, error) from error
    except Exception as error:
        raise _failed(live, hook, table, error) from error


def _failed(live: Live, hook: str, table: pa.Table, error: Exception) -> UserCodeError:
    kind = "records" if hook == "process_table" else "timers"
    what = f"{hook} over {table.num_rows:,} {kind}"
    return UserCodeError(describe(live.node, None, what, error, table=True))


def _table(
    node: Node, rows: Rows, arrivals: list[Arrival], keys: pa.Array | None, codes: Any
) -> pa.Table:
    """The value columns, then key, key_index, timestamp and, with several inputs, stream."""
    if node.template.reads_values:
        table = value_table(node, rows)
    else:
        table = pa.table({_NO_VALUES: pa.nulls(len(rows))})
    extra: dict[str, Any] = {time_column(table): pa.array(rows.timestamps)}
    if codes is not None:
        extra = {"key_index": pa.array(codes, pa.int32()), **extra}
    if keys is not None:
        extra = {"key": keys, **extra}
    if len(node.inputs) > 1:
        names = np.repeat([a.stream for a in arrivals], [len(a.parcel.rows) for a in arrivals])
        extra["stream"] = pa.array(names.tolist(), pa.string())
    for name, column in extra.items():
        # A value column of the same name takes precedence: the user's key extractor saw it.
        if name not in table.schema.names:
            table = with_own(table, name, column)
        elif name in ("key_index", "record_timestamp"):
            raise reserved_name_error(node, name)
    return table if node.template.reads_values else table.drop([_NO_VALUES])
