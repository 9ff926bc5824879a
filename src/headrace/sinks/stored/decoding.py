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
from headrace.sinks.columns import as_batch

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


class Content(NamedTuple):
    """A file's name, by which its format and its partition are known, and its bytes."""

    name: str
    data: bytes | pa.Buffer


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
    tables = [_with_partition(_of_file(file), file.name) for file in files]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(
            f"the files of these epochs have columns that do not go together: {error}. Read the "
            "epochs one by one, or give the sink a schema="
        ) from error
    return _with_numbers(table, _partition_names(files))


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
    for file in files:
        try:
            values += msgspec.json.Decoder().decode_lines(memoryview(file.data))
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
