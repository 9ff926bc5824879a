"""Converts rows to what a file format needs: dicts, or one Arrow batch.

A value that is not a dict is put into a column called `value`. Every error names the column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from headrace.errors import InvalidPipeline, SinkError
from headrace.model.values.arrow import in_microseconds, one_batch
from headrace.model.values.kinds import kind_of
from headrace.model.values.rows import Rows
from headrace.sinks.fitting.arrays import column
from headrace.sinks.fitting.leaves import leaves

VALUE = "value"

INSTANT = pa.timestamp("us", tz="UTC")
TIMES = ("window_start", "window_end")
"""Columns that hold times unless the user says otherwise: windows make them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARROW_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def as_dicts(rows: Rows, timestamp: str | None = None) -> list[dict[str, Any]]:
    """One dict per row, with the record's timestamp in a column of that name where asked for."""
    found = [value if isinstance(value, dict) else {VALUE: value} for value in rows.values()]
    if timestamp is None:
        return found
    if any(timestamp in row for row in found):
        raise already_there(timestamp)
    times = rows.timestamps.tolist()
    return [{**row, timestamp: time} for row, time in zip(found, times, strict=True)]


def as_batch(
    rows: Rows,
    *,
    timestamp: str | None = None,
    schema: pa.Schema | None = None,
    mixed: bool = False,
    times: Collection[str] = (),
) -> pa.RecordBatch:
    """The rows as Arrow columns: as they are, or inferred from dicts, or of a given schema.

    With `mixed`, a column whose cells have no common type becomes text: each cell as JSON. Columns
    `times` that hold integers, microseconds since 1970, become timestamps; those of a schema, in
    its unit.
    """
    cells: dict[str, Any] = {}
    if rows.columns is not None:
        cells = dict(zip(rows.columns.schema.names, rows.columns.columns, strict=True))
    else:
        dicts = as_dicts(rows)
        for name in column_names(dicts):
            cells[name] = [row.get(name) for row in dicts]
    if timestamp is not None and timestamp in cells:
        raise already_there(timestamp)
    if schema is not None:
        if timestamp is not None and timestamp in schema.names:
            cells[timestamp] = pa.array(rows.timestamps, pa.int64())
            times = (*times, timestamp)
        cells = _by_schema(cells, schema, len(rows), times)
    arrays = {
        name: cell if isinstance(cell, pa.Array) else _array(name, cell, mixed=mixed)
        for name, cell in cells.items()
    }
    if timestamp is not None and timestamp not in arrays:
        arrays[timestamp] = pa.array(rows.timestamps, pa.int64())
    for name in times:
        if (schema is None or name not in schema.names) and name in arrays:
            arrays[name] = _as_times(arrays[name])
    if not arrays:
        raise SinkError(f"{len(rows)} rows have no columns: a table cannot hold them")
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def as_one_table(
    parts: Sequence[Rows], *, timestamp: str | None = None, schema: pa.Schema | None = None
) -> pa.Table:
    """All rows of several parts as one Arrow table. They are committed, so no value is refused."""
    if schema is not None or all(rows.columns is not None for rows in parts):
        batches = [as_batch(rows, timestamp=timestamp, schema=schema) for rows in parts]
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        try:
            # No wider types: text would become bytes, and large integers would be rounded.
            return pa.concat_tables(tables, promote_options="default").combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass  # The columns of two parts do not agree: infer them from all rows together.
    together = as_batch(Rows.concat(parts), timestamp=timestamp, schema=schema, mixed=True)
    return pa.Table.from_batches([together])


def column_names(dicts: Sequence[dict[str, Any]]) -> list[str]:
    """Every key of these rows, in the order of first appearance."""
    names: dict[str, None] = {}
    for row in dicts:
        if row.keys() - names.keys():
            names.update(dict.fromkeys(row))
    for name in names:
        if not isinstance(name, str):
            raise SinkError(f"a row has the key {name!r}: a column's name must be a string")
    return list(names)


def refuse_nanoseconds(rows: Rows, what: str, names: Collection[str] | None = None) -> None:
    """Refuses Arrow columns, or those of `names`, with times that values of Python would cut off.

    `what` is the sink. Times of nanoseconds that are whole microseconds pass."""
    if rows.columns is None:
        return
    for field, cells in zip(rows.columns.schema, rows.columns.columns, strict=True):
        is_fine = in_microseconds(field.type) != field.type
        if is_fine and (names is None or field.name in names) and not _is_in_microseconds(cells):
            raise SinkError(
                f"column {field.name!r} is of type {field.type} and would be rounded: {what} "
                "keeps microseconds. Round it before, or make it a number"
            )


def _is_in_microseconds(cells: pa.Array) -> bool:
    try:
        for each in leaves(cells):
            each.cast(in_microseconds(each.type))
    except pa.ArrowInvalid:
        return False
    return True


def already_there(timestamp: str) -> SinkError:
    """The error for rows that already have a column of the name chosen for the timestamp."""
    return SinkError(
        f"rows already have a column {timestamp!r}: give the sink's timestamp= another name"
    )


def check_schema(schema: Any, *, what: str) -> None:
    """Refuses what is not an Arrow schema, before anything starts."""
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidPipeline(f"{what}: schema= takes a pyarrow.Schema, not {schema!r:.80}")


def checked_times(times: str | Sequence[str], *, what: str) -> tuple[str, ...]:
    """Names of columns; refuses other things before anything starts."""
    names = (times,) if isinstance(times, str) else tuple(times)
    for name in names:
        if not isinstance(name, str):
            raise InvalidPipeline(f"{what}: times= takes names of columns, not {name!r:.80}")
    return names


def _as_times(cells: pa.Array) -> pa.Array:
    return cells.cast(INSTANT) if pa.types.is_int64(cells.type) else cells


def _by_schema(
    cells: dict[str, Any], schema: pa.Schema, length: int, times: Collection[str]
) -> dict[str, Any]:
    for name in cells:
        if name not in schema.names:
            raise SinkError(f"rows have a column {name!r} that schema= does not name")
    found = {}
    for field in schema:
        given = cells.get(field.name)
        is_time = pa.types.is_timestamp(field.type) and field.type.unit != "us"
        if given is not None and field.name in times and is_time:
            given = _of_micros(field.name, given)
        found[field.name] = column(field, given, length, whose="schema=")
    return found


def _of_micros(name: str, cells: Any) -> Any:
    """Integers, which are microseconds since 1970, as times, for a column of another unit."""
    if isinstance(cells, pa.Array):
        return _as_times(cells)
    try:
        return [_EPOCH + timedelta(microseconds=c) if type(c) is int else c for c in cells]
    except OverflowError:
        raise SinkError(
            f"column {name!r}: in microseconds since 1970, UTC, a time is beyond the year 9999"
        ) from None


def _array(name: str, cell: Any, *, mixed: bool = False) -> pa.Array:
    try:
        return _inferred(cell)
    except _ARROW_REFUSALS as error:
        if mixed:
            return pa.array([None if c is None else _as_json(c) for c in cell], pa.string())
        raise SinkError(f"column {name!r} cannot become an Arrow column: {error}") from error


def _as_json(cell: Any) -> str:
    try:
        return msgspec.json.encode(cell).decode()
    except (TypeError, ValueError, OverflowError):
        return repr(cell)


def _inferred(cell: list[Any]) -> pa.Array:
    """The cells as an Arrow array. Arrow alone would turn text into bytes, and numbers into times,
    because of a neighbouring cell. Integers and floats share a type where none is rounded."""
    _require_one_kind(cell)
    try:
        array = pa.array(cell)
    except OverflowError:
        array = pa.array(cell, pa.uint64())
    if isinstance(array, pa.ChunkedArray):
        table = pa.table({VALUE: array})
        return one_batch(table).column(0)
    return array


def _require_one_kind(values: list[Any], place: str = "") -> None:
    """Raises TypeError where values are of several kinds, also those inside lists and dicts."""
    one_of_each = {type(value): value for value in values if value is not None}
    kinds = {kind_of(value) for value in one_of_each.values()}
    if len(kinds) > 1 and not kinds <= {"an integer", "a float"}:
        inside = f" at {place!r}" if place else ""
        raise TypeError(f"it holds {' and '.join(sorted(kinds))}{inside} in one file")
    if kinds & {"a time", "a time of day"}:
        _require_one_sort_of_zone(values, *kinds)
    if "a list" in kinds:
        items = [item for value in values if value is not None for item in value]
        _require_one_kind(items, f"{place}[]")
    elif "a dict" in kinds:
        cells: dict[str, list[Any]] = {}
        for value in values:
            for name, cell in (value or {}).items():
                if not isinstance(name, str):
                    raise TypeError(f"a dict inside it has the key {name!r:.80}, which is no text")
                cells.setdefault(name, []).append(cell)
        for name, found in cells.items():
            _require_one_kind(found, f"{place}.{name}".lstrip("."))


def _require_one_sort_of_zone(times: list[Any], kind: str) -> None:
    """Raises TypeError where Arrow would take local times for UTC, or drop a zone."""
    zoned = {getattr(each, "tzinfo", None) is not None for each in times if each is not None}
    if len(zoned) > 1:
        raise TypeError("it holds times with and without a zone in one file")
    if zoned == {True} and kind == "a time of day":
        raise TypeError("it holds a time of day with a zone, which a column does not keep")
