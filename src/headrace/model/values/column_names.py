"""Checks names of columns, and suggests the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.values.names import did_you_mean


def check_column(name: str, columns: Iterable[str] | None, *, where: str) -> None:
    """Raises InvalidPipeline if the columns are known and `name` is not one of them."""
    if columns is None:
        return
    known = list(columns)
    if name not in known:
        raise InvalidPipeline(
            f"{where}: there is no column {name!r}{did_you_mean(name, known)}; "
            f"there are: {', '.join(known) or 'none'}"
        )


def check_numbers(name: str, kind: pa.DataType, *, where: str) -> None:
    """Raises InvalidPipeline if a column of this type cannot be summed."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if text or pa.types.is_binary(kind) or pa.types.is_nested(kind):
        raise InvalidPipeline(f"{where}: column {name!r} is {kind}, and numbers are wanted")


def check_expression(
    expression: pc.Expression, columns: Iterable[str] | pa.Schema | None, *, where: str
) -> None:
    """Raises InvalidPipeline if an Arrow expression names a column that does not exist.

    Arrow finds the columns by binding the expression. If types are unknown, it may stop at a
    function before it has found all columns; then the error comes with the first record.
    """
    if columns is None:
        return
    from pyarrow import acero  # it imports pandas, which takes half a second

    fields = (
        columns if isinstance(columns, pa.Schema) else [pa.field(c, pa.null()) for c in columns]
    )
    known = {RECORD_TIME: pa.field(RECORD_TIME, pa.int64()), **{f.name: f for f in fields}}
    rows = acero.TableSourceNodeOptions(pa.schema(known.values()).empty_table())
    wanted = acero.ProjectNodeOptions([expression], ["wanted"])
    steps = [acero.Declaration("table_source", rows), acero.Declaration("project", wanted)]
    try:
        acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    except pa.ArrowException as error:
        missing = UNKNOWN_FIELD.match(str(error))
        if missing:
            check_column(missing[1], [c for c in known if c != RECORD_TIME], where=where)


RECORD_TIME = "timestamp"
"""The column of the records' times, beside the values of a table."""

UNKNOWN_FIELD = re.compile(r"No match for FieldRef\.Name\((.+?)\) in ", re.DOTALL)
"""Arrow's error text for an expression that names a missing column."""


def as_columns(value: Any, *, where: str) -> Mapping[str, Any]:
    """A record's value as a mapping of columns."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise InvalidRecord(
        f"{where} needs records with columns (a dict, dataclass or Struct), not "
        f"{type(value).__name__}: {value!r:.80}. Make them so with a map step before it"
    )
