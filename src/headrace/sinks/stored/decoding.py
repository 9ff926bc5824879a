"""Files of a sink's output as Arrow tables, by their suffix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from headrace.errors import SourceError
from headrace.model.values.rows import Rows
from headrace.sinks.columns import INSTANT, as_batch

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


class Content(NamedTuple):
    """A file's name, by which its format and its partition are known, and its bytes."""

    name: str
    data: bytes | pa.Buffer
    first: int | None = None
    """Only `rows` rows are meant, from this one on; None: all."""
    rows: int = 0


def as_table(files: Sequence[Content], schema: pa.Schema | None = None) -> pa.Table:
    """All rows of some files, in order. Columns are joined by name.

    Rows of JSON lines are looked at together, as a sink would: a value that is not an object is
    in a column `value`, and a column whose cells have no common type is text, each cell as JSON.
    """
    if not files:
        return schema.empty_table() if schema is not None else pa.table({})
    suffix = {file.name.rpartition(".")[2] for file in files}
    if suffix == {"jsonl"}:
        return _of_json(files)
    decoded: dict[str, pa.Table] = {}
    """Compacted files, which hold rows of several epochs."""
    tables = [_with_partition(_of_part(file, decoded), file.name) for file in files]
    tables = _with_times(tables)
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(
            f"the files of these epochs have columns that do not go together: {error}. Read the "
            "epochs one by one, or give the sink a schema="
        ) from error
    return _with_numbers(table, _partition_names(files))


def part_of(file: Content) -> bytes:
    """The rows of a compacted file that are meant, as a file of their own."""
    first = file.first or 0
    if file.name.endswith(".jsonl"):
        lines = bytes(file.data).splitlines(keepends=True)
        return b"".join(lines[first : first + file.rows])
    out = pa.BufferOutputStream()
    pq.write_table(_of_file(file).slice(first, file.rows), out, compression="zstd")
    return out.getvalue().to_pybytes()


def _with_times(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """A column of timestamps in some files and of integers, microseconds, in others: timestamps."""
    times = {field.name for table in tables for field in table.schema if field.type == INSTANT}
    found = []
    for table in tables:
        for index, field in enumerate(table.schema):
            if field.name in times and pa.types.is_int64(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(INSTANT))
        found.append(table)
    return found


def _of_part(file: Content, decoded: dict[str, pa.Table]) -> pa.Table:
    if file.first is None:
        return _of_file(file)
    if file.name not in decoded:
        decoded[file.name] = _of_file(file)
    return decoded[file.name].slice(file.first, file.rows)


def _of_file(file: Content) -> pa.Table:
    reader = pa.BufferReader(file.data)
    try:
        if file.name.endswith(".parquet"):
            return pq.ParquetFile(reader).read()
        if file.name.endswith(".csv"):
            options = pa.csv.ConvertOptions(
                strings_can_be_null=True, quoted_strings_can_be_null=False
            )
            return pa.csv.read_csv(
                reader,
                parse_options=pa.csv.ParseOptions(newlines_in_values=True),
                convert_options=options,
            )
        if file.name.endswith(".jsonl"):
            return _of_json([file])
    except pa.ArrowException as error:
        raise SourceError(f"{file.name} cannot be read: {error}") from error
    raise SourceError(f"{file.name} is not a file of a sink: it is not .jsonl, .csv or .parquet")


def _of_json(files: Sequence[Content]) -> pa.Table:
    values: list[Any] = []
    compacted: dict[str, list[Any]] = {}
    for file in files:
        try:
            found = compacted.get(file.name)
            if found is None:
                found = msgspec.json.Decoder().decode_lines(memoryview(file.data))
            if file.first is not None:
                compacted[file.name] = found
                found = found[file.first : file.first + file.rows]
            values += found
        except msgspec.DecodeError as error:
            raise SourceError(f"{file.name} cannot be read: {error}") from error
    rows = Rows.of(values, [0] * len(values))
    return pa.Table.from_batches([as_batch(rows, mixed=True)])


def _partitions(name: str) -> dict[str, str]:
    """The columns in the directories of a name: `day=2024-05-01/…`."""
    parts = [part.partition("=") for part in name.split("/")[:-1]]
    return {unquote(key): unquote(value) for key, mark, value in parts if mark and key != "epoch"}


def _partition_names(files: Sequence[Content]) -> list[str]:
    return list(dict.fromkeys(column for file in files for column in _partitions(file.name)))


def _with_partition(table: pa.Table, name: str) -> pa.Table:
    for column, text in _partitions(name).items():
        value = None if text == NO_VALUE else text
        cells = pa.array([value] * table.num_rows, pa.string())
        table = table.append_column(pa.field(column, pa.string()), cells)
    return table


def _with_numbers(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns of partitions as integers where all their values are: directories have no types."""
    for name in columns:
        index = table.schema.get_field_index(name)
        cells = table.column(index)
        if (
            cells.null_count < len(cells)
            and pc.all(pc.match_substring_regex(cells, _WHOLE_NUMBER)).as_py()
        ):
            table = table.set_column(index, name, cells.cast(pa.int64()))
    return table
