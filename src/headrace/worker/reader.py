"""A reader task: reads ranges, extracts timestamps, emits records.

Invariant: no input is dropped silently. Input that is not a valid record (a malformed line, a
missing or impossible timestamp) goes by the injector's `errors=` policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.causal.lineage import source_place
from headrace.errors import HeadraceError, SourceError
from headrace.model.source import Reading, Rejected, Timing, cell_of
from headrace.model.values.arrow import dicts, python_list
from headrace.model.values.codec import NESTED_MAX, packed, packed_exactly
from headrace.model.values.keys import encode_part
from headrace.model.values.rows import Rows, Timestamps
from headrace.model.values.schema import Schema
from headrace.model.values.schema_types import too_deep
from headrace.model.values.shown import shown
from headrace.model.values.time import BEGINNING, LATEST
from headrace.model.values.zones import columns_in_zone, zone_named
from headrace.pipeline.graph.graph import Injector, To
from headrace.plan.epoch import ReadTask, Report, WorkOrder
from headrace.plan.units import runs
from headrace.plan.watermarks import Mark
from headrace.worker.dead_letters import send_unread
from headrace.worker.exchange.controls import ControlRows
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.exchange.envelope import Envelope, address_rows
from headrace.worker.garbage import seldom_collecting
from headrace.worker.runtime import Runtime
from headrace.worker.unit import run_unit

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def run_reader(runtime: Runtime, order: WorkOrder, number: int) -> Iterator[Envelope]:
    """Reads all ranges of one reader task. Each range is a unit of work."""
    topology, plan = runtime.topology, order.plan
    controls = ControlRows(topology, plan)
    for read in (read for read in plan.reads[number] if runs(order, read.label)):
        emitter = Emitter(runtime, order, read.stream, read.label)
        rows = run_unit(emitter, number, controls, partial(_read, emitter, read))
        yield from address_rows(topology, plan, 0, rows)
    yield from address_rows(topology, plan, 0, controls.rows())


def _read(emitter: Emitter, read: ReadTask) -> Report:
    """Reads a range, and emits its records."""
    topology = emitter.runtime.topology
    source = topology.graph.injectors[read.stream].source
    needed = topology.columns_read.get(read.stream)
    with seldom_collecting():
        if needed is None:
            reading = source.read(read.split, read.range)
        else:
            reading = source.read_columns(read.split, read.range, needed)
    mark, newest = _emit(emitter, read, reading)
    return Report(
        label=read.label,
        host=read.stream,
        digest="",
        mark=mark,
        newest=newest,
        input=reading.digest,
        seen=reading.seen,
    )


def _emit(emitter: Emitter, read: ReadTask, reading: Reading) -> tuple[Mark, int]:
    runtime, wall = emitter.runtime, emitter.order.plan.wall
    injector = runtime.topology.graph.injectors[read.stream]
    source = injector.source
    schema = runtime.topology.graph.schemas.get(read.stream)
    rows, positions, rejected = stamp(reading, source.timing, wall, schema)
    if reading.left_out and (rejected or not _may_leave_out(reading, schema)):
        # A dead letter shows a whole record, and a schema judges whole records.
        reading = source.read(read.split, read.range)
        rows, positions, rejected = stamp(reading, source.timing, wall, schema)
    for bad in rejected:
        _reject(emitter, injector, read, bad)
    if read.stream in runtime.topology.needs_origin:
        rows.origins = _origins(runtime, read, positions)
    emitter.counters.records += len(rows)
    emitter.emit(read.stream, rows)
    newest = int(rows.timestamps.max()) if len(rows) else BEGINNING
    return _mark_after(injector, read, newest), newest


def _may_leave_out(reading: Reading, schema: Schema | None) -> bool:
    """Whether the schema would take the cells of columns that were left out, whatever they are."""
    if reading.columns is None:
        return False  # files with unlike columns: what a record is depends on all of them
    if schema is None:
        return True
    types = {field.name: field.type for field in schema.arrow if field.nullable}
    found = reading.columns.schema
    return all(
        name not in schema.names or types.get(name) == found.field(name).type
        for name in reading.left_out
    )


def _origins(runtime: Runtime, read: ReadTask, positions: Any) -> pa.Array:
    """The cells that say where each record comes from: its origin, its identity, or both."""
    topology = runtime.topology
    named = read.stream in topology.needs_identity
    before: list[bytes] = []
    if not named or read.stream in topology.needs_order:
        before.append(encode_part(read.split))
    if named:
        before.append(source_place(read.stream, read.split))
    # All cells have the same length, so numpy writes them all at once.
    places = positions.astype(">i8").view(np.uint8).reshape(-1, 8)
    width = sum(len(part) + 8 for part in before)
    cells = np.empty((len(places), width), np.uint8)
    at = 0
    for part in before:
        cells[:, at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part) + 8
        cells[:, at - 8 : at] = places
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(cells), [None, pa.py_buffer(cells)]
    )
    return fixed.cast(pa.binary())


def _mark_after(injector: Injector, read: ReadTask, newest: int) -> Mark:
    timing = injector.source.timing
    passed = max(read.mark.newest, newest - timing.lateness_us)
    if read.range.last:
        return Mark(None, passed)
    before = read.mark.bound if read.mark.bound is not None else BEGINNING
    own = injector.source.low_watermark(read.split, read.range.end)
    return Mark(max(before, passed if own is None else own), passed)


def stamp(
    reading: Reading, timing: Timing, wall: int, schema: Schema | None = None
) -> tuple[Rows, Any, list[Rejected]]:
    """Rows with valid timestamps, in the columns of the schema; their positions; rejected rows."""
    rejected = list(reading.rejected)
    positions = np.asarray(reading.positions, np.int64)
    found, unread = (reading, {}) if schema is None else _in_types(reading, schema)
    timestamps, reasons = _timestamps(found, timing, wall, len(positions))
    reasons.update(unread)
    if schema is not None:
        rows = _in_columns(found, timing, schema, timestamps, reasons)
    elif reading.columns is not None:
        if (deep := too_deep(reading.columns.schema, NESTED_MAX)) is not None:
            raise SourceError(f"column {deep!r} is nested more than {NESTED_MAX} deep: flatten it")
        rows = Rows(timestamps, columns=reading.columns, time_column=_time_column(reading, timing))
        rows.coded = reading.coded
    else:
        cells: list[bytes] = []
        pack = packed_exactly if reading.exact else packed
        for i, value in enumerate(reading.values or ()):
            try:
                cells.append(pack(value, depth=NESTED_MAX))
            except HeadraceError as error:
                reasons.setdefault(i, str(error))
                cells.append(b"\xc0")
        rows = Rows(timestamps, packed=pa.array(cells, pa.binary()))
    if rows.columns is not None:
        for i, reason in _unheld(rows.columns).items():
            reasons.setdefault(i, reason)
    outside = np.flatnonzero((timestamps < BEGINNING) | (timestamps >= LATEST))
    for i in outside.tolist():
        reasons.setdefault(i, _absurd(int(timestamps[i])))
    if reasons:
        good = np.ones(len(positions), np.bool_)
        good[list(reasons)] = False
        bad = np.flatnonzero(~good)
        raws = (
            _shown(reading.columns.take(pa.array(bad)))
            if reading.columns is not None
            else [(reading.values or [])[i] for i in bad.tolist()]
        )
        for i, raw in zip(bad.tolist(), raws, strict=True):
            rejected.append(Rejected(int(positions[i]), shown(raw), reasons[i]))
        kept = np.flatnonzero(good)
        rows, positions = rows.take(kept), positions[kept]
    return rows, positions, rejected


_NO_VALUE = (ValueError, OverflowError, KeyError)
"""The errors that Arrow raises for a cell that Python cannot hold."""


def _unheld(columns: pa.RecordBatch) -> dict[int, str]:
    """Rows with a cell that Python cannot hold: a time outside of the years 1 to 9999, or a map
    with the same name twice. They are found here, so that the source's policy can handle them."""
    found: dict[int, str] = {}
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        if not _may_have_no_value(column.type):
            continue
        try:
            if pa.types.is_nested(column.type) or pa.types.is_duration(column.type):
                python_list(column)
            else:
                pc.min_max(column).as_py()
        except _NO_VALUE:
            for i in range(len(column)):
                try:
                    python_list(column.slice(i, 1))
                except _NO_VALUE as error:
                    found.setdefault(i, f"column {name!r} is no value of Python: {error}")
    return found


def _may_have_no_value(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        inner = (kind.field(i).type for i in range(kind.num_fields))
        return pa.types.is_map(kind) or any(map(_may_have_no_value, inner))
    if pa.types.is_timestamp(kind):
        return kind.unit != "ns"
    if pa.types.is_duration(kind):
        return kind.unit in ("s", "ms")
    return pa.types.is_date(kind) or pa.types.is_time(kind)


def _shown(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rejected rows as dicts. A cell that Python cannot hold is shown as Arrow's text."""
    try:
        return dicts(columns)
    except _NO_VALUE:
        rows = (columns.slice(i, 1) for i in range(columns.num_rows))
        names = columns.schema.names
        return [
            {name: " ".join(row.column(name).to_string().split()) for name in names} for row in rows
        ]


def _in_types(reading: Reading, schema: Schema) -> tuple[Reading, dict[int, str]]:
    """Casts text cells to the types of the schema, before timestamps are extracted."""
    if not reading.text or reading.values is None:
        return reading, {}
    values: list[Any] = []
    reasons: dict[int, str] = {}
    for i, value in enumerate(reading.values):
        try:
            values.append(schema.of_text(value))
        except HeadraceError as error:
            reasons[i] = str(error)
            values.append(value)
    return msgspec.structs.replace(reading, values=values), reasons


def _in_columns(
    reading: Reading, timing: Timing, schema: Schema, timestamps: Any, reasons: dict[int, str]
) -> Rows:
    """The rows in the columns of their stream's schema; adds reasons for rows that do not fit."""
    if reading.columns is not None:
        columns, more = schema.cast(reading.columns)
    else:
        columns, more = schema.batch(reading.values or [])
    for i, reason in more.items():
        reasons.setdefault(i, reason)
    columns = _in_zone(columns, timing, timestamps)
    named = _time_column(reading, timing)
    kept = named if named in schema.names and schema.arrow.field(named).type == pa.int64() else None
    return Rows(timestamps, columns=columns, time_column=kept, schema=schema)


def _in_zone(columns: pa.RecordBatch, timing: Timing, timestamps: Timestamps) -> pa.RecordBatch:
    """Sets the column of times to the timestamps, as `zone=` decides what they mean."""
    name = timing.timestamp
    if timing.zone is None or not isinstance(name, str) or name not in columns.schema.names:
        return columns
    place = columns.schema.get_field_index(name)
    field = columns.schema.field(place)
    if not pa.types.is_timestamp(field.type) or field.type.tz is None:
        return columns
    times = pa.array(timestamps, pa.timestamp("us", tz="UTC")).cast(field.type, safe=False)
    return columns.set_column(place, field, times)


def _timestamps(
    reading: Reading, timing: Timing, wall: int, count: int
) -> tuple[Timestamps, dict[int, str]]:
    reasons: dict[int, str] = {}
    if reading.timestamps is not None:
        return np.asarray(reading.timestamps, np.int64), reasons
    given = timing.timestamp
    if given is None:
        return np.full(count, wall, np.int64), reasons
    if reading.columns is not None and isinstance(given, str):
        if given not in reading.columns.schema.names:
            have = ", ".join(reading.columns.schema.names)
            raise SourceError(
                f"there is no column {given!r} to take timestamps from; there are: {have}"
            )
        fast = _column_timestamps(reading.columns.column(given), timing)
        if fast is not None:
            return fast
        raws: list[Any] = reading.columns.column(given).to_pylist()
    else:
        values = reading.values
        if values is None:
            values = Rows(np.zeros(count, np.int64), columns=reading.columns).values()
        raws = [_raw(value, given, i, reasons) for i, value in enumerate(values)]
    timestamps = np.zeros(count, np.int64)
    for i, raw in enumerate(raws):
        if i in reasons:
            continue
        try:
            micros = timing.micros(raw)
            timestamps[i] = micros if -(2**62) < micros < 2**62 else LATEST
        except (ValueError, OverflowError) as error:
            reasons[i] = str(error)
    return timestamps, reasons


def _time_column(reading: Reading, timing: Timing) -> str | None:
    """The name of the column that is equal to the timestamps, if there is one."""
    given = timing.timestamp
    if not isinstance(given, str) or reading.timestamps is not None or reading.columns is None:
        return None
    plain = timing.unit_us == 1.0 and reading.columns.schema.field(given).type == pa.int64()
    return given if plain and not reading.columns.column(given).null_count else None


def _raw(value: Any, given: Any, i: int, reasons: dict[int, str]) -> Any:
    try:
        return cell_of(value, given) if isinstance(given, str) else given(value)
    except (KeyError, IndexError, TypeError) as error:
        if isinstance(given, str):
            reasons[i] = f"there is no column {given!r} to take the timestamp from"
        else:
            reasons[i] = f"timestamp= raised {type(error).__name__}: {error}"
    except Exception as error:
        reasons[i] = f"timestamp= raised {type(error).__name__}: {error}"
    return None


def _column_timestamps(
    column: pa.Array, timing: Timing
) -> tuple[Timestamps, dict[int, str]] | None:
    """Timestamps of an integer or Arrow timestamp column, and which rows have no timestamp.

    The column's type alone decides what its cells mean, never the cells of one range: the result
    must not depend on how the input is cut into ranges. Times without a zone are UTC, unless
    `zone=` names another zone.
    """
    kind, finer, factor = column.type, 1, int(timing.unit_us)
    if pa.types.is_timestamp(kind):
        finer, factor = (1000, 1) if kind.unit == "ns" else (1, _MICROS[kind.unit])
    elif not pa.types.is_integer(kind) or timing.unit_us < 1:
        return None
    reasons: dict[int, str] = {}
    if column.null_count:
        missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        reasons = dict.fromkeys(missing.tolist(), "the timestamp is missing")
        column = pc.fill_null(column.cast(pa.uint64() if kind == pa.uint64() else pa.int64()), 0)
    elif kind != pa.uint64():
        column = column.cast(pa.int64())
    numbers = column.to_numpy()
    if finer > 1:
        numbers = numbers // finer
    limit = LATEST // factor
    # Check before multiplying: a product that overflows may look like a valid time.
    if len(numbers) and (numbers.min() < BEGINNING or numbers.max() >= limit):
        outside = (numbers < BEGINNING) | (numbers >= limit)
        for i in np.flatnonzero(outside).tolist():
            reasons[i] = _absurd(int(numbers[i]) * factor)
        numbers = np.where(outside, 0, numbers)
    numbers = numbers.astype(np.int64, copy=False)
    micros = numbers if factor == 1 else numbers * np.int64(factor)
    if timing.zone is not None and pa.types.is_timestamp(kind) and kind.tz is None:
        micros = columns_in_zone(micros, zone_named(timing.zone))
    return micros, reasons


def _absurd(micros: int) -> str:
    if micros < BEGINNING:
        return f"the timestamp {micros} is before 1970"
    return f"the timestamp {micros} is after the year 9999: is unit= right?"


def _reject(emitter: Emitter, injector: Injector, read: ReadTask, bad: Rejected) -> None:
    if isinstance(injector.errors, To):
        send_unread(emitter, injector.errors, read, bad)
        return
    raise SourceError(
        f"stream {read.stream!r}, split {read.split!r}, position {bad.position}: {bad.reason}: "
        f"{bad.raw[:200]}. Fix the input (a file that is half read then needs --accept-changed), "
        'or send such lines aside: p.read(..., errors=to("dead"))'
    )
