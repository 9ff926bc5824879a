"""CSV: a header in every file, a line per row, in UTF-8.

This module writes the cells itself. The writer of the standard library makes the same empty cell
of None and of "". Here None is empty and "" is quoted, so that a reader can distinguish them
(Postgres does, DuckDB with allow_quoted_nulls=false).
"""

from __future__ import annotations

import base64
import datetime
import decimal
import re
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.errors import InvalidPipeline, SinkError
from headrace.model.sink import Sink
from headrace.model.values.rows import Rows
from headrace.sinks.columns import as_dicts, column_names, refuse_nanoseconds
from headrace.sinks.places import Place, file_sink
from headrace.sinks.row_format import RowFormat

_NEEDS_QUOTES = re.compile(r'[,"\r\n]|^\s|\s$|^$')
_TIMES = (datetime.datetime, datetime.date, datetime.time)


def csv(
    path: Place,
    *,
    columns: Sequence[str] | None = None,
    timestamp: str | None = None,
) -> Sink:
    """Writes `path/epoch=…/part-….csv`; `path` may be a URL, as in `jsonl`.

    The columns are those of a file's first row, and a later row with another column is an error;
    or they are `columns`, and all other columns are left out. `timestamp` names a column for the
    record's own timestamp (microseconds). A value that is not a dict is put into a column `value`;
    None is an empty cell; bytes are written in base64; a list or dict in a cell is an error.
    """
    return file_sink(CsvRows(columns=columns, timestamp=timestamp), path)


class CsvRows(RowFormat):
    """A header, and a line per row."""

    suffix = ".csv"

    def __init__(
        self, *, columns: Sequence[str] | None = None, timestamp: str | None = None
    ) -> None:
        self.columns = None if columns is None else tuple(columns)
        self.timestamp = timestamp
        if isinstance(columns, str) or self.columns == ():
            raise InvalidPipeline("sinks.csv: columns= takes a list of names")

    def encode(self, rows: Rows) -> bytes:
        refuse_nanoseconds(rows, "sinks.csv", self.columns)
        dicts = as_dicts(rows, self.timestamp)
        if not dicts:
            return b""
        names = self._names(dicts)
        lines = [_line(names)]
        lines += [_line([_cell(name, row.get(name)) for name in names], raw=True) for row in dicts]
        return ("\n".join(lines) + "\n").encode()

    def _names(self, dicts: Sequence[dict[str, Any]]) -> list[str]:
        if self.columns is not None:
            names = list(self.columns)
            if self.timestamp is not None and self.timestamp not in names:
                names.append(self.timestamp)
            return names
        names = column_names(dicts[:1])
        if not names:
            raise SinkError("a row has no columns: CSV cannot hold it")
        for row in dicts:
            if surplus := row.keys() - set(names):
                name = min(surplus, key=str)
                raise SinkError(
                    f"a row has a column {name!r} that the first row of its file does not have: "
                    "name all columns with columns="
                )
        return names


def _line(cells: Iterable[str], *, raw: bool = False) -> str:
    """A line of cells; a line that would be blank is quoted, because readers skip blank lines."""
    return ",".join(cells if raw else map(_quoted, cells)) or '""'


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int | decimal.Decimal):
        return str(decimal.Decimal(value))  # Python itself writes no more than 4,300 digits
    if isinstance(value, _TIMES):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value.total_seconds())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise SinkError(
        f"column {name!r} holds a {type(value).__name__}, which CSV cannot hold: "
        "write a flat row, or use jsonl or parquet"
    )


def _quoted(text: str) -> str:
    if _NEEDS_QUOTES.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Inf" if value > 0 else "-Inf"
    return repr(value)
