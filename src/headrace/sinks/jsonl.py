"""JSON lines: one JSON value per row, in UTF-8."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from headrace.errors import SinkError
from headrace.model.sink import Sink
from headrace.model.values.rows import Rows
from headrace.sinks.columns import as_dicts, refuse_nanoseconds
from headrace.sinks.places import Place, file_sink
from headrace.sinks.row_format import RowFormat

_encoder = msgspec.json.Encoder()

_REFUSALS = (TypeError, ValueError, OverflowError)
_BITS_MAX = 14_000


def jsonl(
    path: Place,
    *,
    timestamp: str | None = None,
    group_mb: float | None = None,
    group_within: str = "10m",
) -> Sink:
    """Writes `path/epoch=…/part-….jsonl`: a dict as a JSON object, another value as it is.

    `path` is a directory, or a URL such as `s3://bucket/out`. On a URL an epoch appears as a
    manifest, and `headrace.read_output` reads it.

    `timestamp` names a column for the record's own timestamp (microseconds); a
    value that is not a dict then becomes `{"value": ...}`. JSON has no bytes and no NaN: bytes
    are written in base64, NaN as null. Integers are written with all their digits.

    With `group_mb`, in a directory, epochs are held back until they have this many megabytes, or
    the oldest has waited for `group_within`; then they appear together, as few large files.
    `headrace.read_output` shows every epoch at once, held or not.
    """
    rows = JsonRows(timestamp=timestamp)
    return file_sink(rows, path, group_mb=group_mb, group_within=group_within)


class JsonRows(RowFormat):
    """A JSON value per line."""

    suffix = ".jsonl"

    def __init__(self, *, timestamp: str | None = None) -> None:
        self.timestamp = timestamp

    def encode(self, rows: Rows) -> bytes:
        refuse_nanoseconds(rows, "sinks.jsonl")
        values: list[Any]
        if self.timestamp is None:
            values = rows.values()
        else:
            values = as_dicts(rows, self.timestamp)
        return json_lines(values)


def json_lines(values: list[Any]) -> bytes:
    """A line of JSON for each value, each with its newline."""
    try:
        return _encoder.encode_lines(values)
    except _REFUSALS:
        pass
    try:
        return _encoder.encode_lines(with_digits(values))
    except _REFUSALS as error:
        raise SinkError(_explanation(values, error)) from error


def with_digits(value: Any) -> Any:
    """Replaces integers that are too long for Python to print (4,300 digits) by their digits."""
    if isinstance(value, dict):
        return {name: with_digits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_digits(inner) for inner in value]
    if type(value) is int and value.bit_length() > _BITS_MAX:
        return msgspec.Raw(str(Decimal(value)).encode())
    return value


def _explanation(values: list[Any], error: Exception) -> str:
    for value in values:
        cells = value.items() if isinstance(value, dict) else [("value", value)]
        for name, cell in cells:
            try:
                _encoder.encode({name: cell})
            except _REFUSALS as found:
                return f"column {name!r} cannot be written as JSON: {found} ({cell!r:.120})"
    return f"rows cannot be written as JSON: {error}"
