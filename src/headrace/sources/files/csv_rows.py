"""`sources.csv`: every row of a CSV file is a record, a dict by the names of its columns.

The parity of quotes alone decides where a record ends (see `lines`), and each record is then
parsed by itself. A stray quote can spoil its own record and the lines that it joins to that
record; these are rejected. It never shifts the cells of another record.
"""

from __future__ import annotations

import csv as standard_csv
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Reading, Source
from headrace.model.values.names import known_options, names_of
from headrace.sources.files.file_set import Paths
from headrace.sources.files.input_file import InputFile
from headrace.sources.files.lines import (
    BYTE_ORDER_MARK,
    LineFormat,
    not_utf8,
    record_ends,
)
from headrace.sources.files.source import file_source
from headrace.sources.options import TIMING_OPTIONS, TimingOptions

Converter = Callable[[str], Any]
CELL_CHARACTERS_MAX = 2**31 - 1
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@known_options("sources.csv", TIMING_OPTIONS)
def csv(
    paths: Paths,
    *,
    types: Mapping[str, Converter] | None = None,
    columns: str | Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    watch: bool = False,
    ordered_by_name: bool = False,
    **timing: Unpack[TimingOptions],
) -> Source:
    """Rows of CSV files as `dict[str, str]`.

    With a schema (`p.read(..., schema=Order)`) cells have the types of the schema, and an empty
    cell is None where the schema allows None. Without a schema:

    - `types`: functions that convert cells, by column: `{"price": float}`. An empty cell of such
      a column is None; a row with a cell that cannot be converted is rejected.
    - `columns`: the names of the columns, for files without a header line.
    - `quote=None`: quotes are plain text; planning is then cheaper for very large files.

    `paths`, `watch` and `ordered_by_name` are as in `text`.
    """
    for name, given in (("delimiter", delimiter), ("quote", quote)):
        if given is not None and (len(given) != 1 or not given.isascii() or given in "\r\n"):
            raise InvalidPipeline(f"sources.csv: {name}= is one ASCII character, not {given!r}")
    return file_source(
        "csv",
        CsvFormat(
            dict(types or {}),
            names_of(columns or (), what="sources.csv: columns="),
            delimiter,
            quote,
        ),
        paths,
        watch=watch,
        ordered_by_name=ordered_by_name,
        timing=timing,
    )


class CsvFormat(LineFormat):
    """Rows of comma-separated cells."""

    def __init__(
        self,
        types: dict[str, Converter],
        columns: tuple[str, ...],
        delimiter: str,
        quote: str | None,
    ) -> None:
        self.types = {name: to_bool if kind is bool else kind for name, kind in types.items()}
        self.columns = columns
        self.delimiter = delimiter
        self.quote = None if quote is None else ord(quote)

    def next_end(self, file: InputFile, start: int, records: int) -> tuple[int, int]:
        has_header = start == 0 and not self.columns
        end, about = super().next_end(file, start, records + has_header)
        return end, max(0, about - has_header)

    def read(self, file: InputFile, name: str, start: int, end: int) -> Reading:
        lines = self.lines(file, name, start, end)
        records = lines.records()
        # This limit belongs to the whole process and is 128 KiB by default. With it, the csv
        # module would refuse a long cell in quotes, which is accepted without quotes.
        standard_csv.field_size_limit(CELL_CHARACTERS_MAX)
        columns = self.columns or self._header(file, start, records)
        converters = self._converters(columns, file)
        first = 1 if start == 0 and not self.columns else 0
        values: list[Any] = []
        kept: list[int] = []
        for index, raw in enumerate(records[first:], first):
            if not raw:
                continue
            try:
                row = self._value(raw, columns, converters)
            except ValueError as error:
                lines.reject(index, raw, str(error))
            else:
                values.append(row)
                kept.append(index)
        reading = lines.reading(values, kept)
        reading.text = True
        return reading

    def _value(
        self, raw: bytes, columns: tuple[str, ...], converters: list[tuple[str, Converter]]
    ) -> dict[str, Any]:
        cells = self._cells(raw)
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells, but there are {len(columns)} columns")
        row: dict[str, Any] = dict(zip(columns, cells))
        for name, convert in converters:
            cell = row[name]
            try:
                row[name] = convert(cell) if cell else None
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"column {name!r} holds {cell[:40]!r}: {error}") from None
        return row

    def _cells(self, raw: bytes) -> list[str]:
        try:
            record = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(not_utf8(error, raw)) from None
        if self.quote is None or self.quote not in raw:
            return record.split(self.delimiter)
        try:
            rows = list(
                standard_csv.reader(
                    [record], delimiter=self.delimiter, quotechar=chr(self.quote), strict=True
                )
            )
        except standard_csv.Error as error:
            raise ValueError(f"not CSV: {error}; is a quote not closed?") from None
        return rows[0]

    def _header(self, file: InputFile, start: int, records: list[bytes]) -> tuple[str, ...]:
        """The names in the first record of the file, whichever range is being read."""
        first = self._first_record(file, start, records)
        try:
            names = tuple(self._cells(first)) if first else ()
        except ValueError as error:
            raise SourceError(f"the header of {file} cannot be read: {error}") from None
        if len(set(names)) != len(names):
            raise SourceError(f"the header of {file} names a column twice: {', '.join(names)}")
        return names

    def _first_record(self, file: InputFile, start: int, records: list[bytes]) -> bytes:
        if start == 0:
            return records[0] if records else b""
        wanted = self.sample_bytes
        with file.open() as opened:
            while True:
                sample = opened.read(0, wanted)
                ends, _ = record_ends(sample, self.quote)
                if len(ends):
                    sample = sample[: ends[0]].removeprefix(BYTE_ORDER_MARK)
                    return sample.removesuffix(b"\n").removesuffix(b"\r")
                if len(sample) < wanted:
                    return sample
                wanted *= 2

    def _converters(self, columns: tuple[str, ...], file: InputFile) -> list[tuple[str, Converter]]:
        missing = [name for name in self.types if name not in columns]
        if missing and columns:
            raise SourceError(
                f"{file} has no column {missing[0]!r}, which types= names; "
                f"its columns are {', '.join(columns)}"
            )
        return [(name, convert) for name, convert in self.types.items() if name in columns]


def to_bool(cell: str) -> bool:
    """Converts a cell to true or false by its text; `bool("false")` would be true."""
    try:
        return _BOOLEANS[cell.strip().lower()]
    except KeyError:
        raise ValueError(f"not one of {', '.join(_BOOLEANS)}") from None
