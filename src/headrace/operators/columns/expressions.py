"""Arrow expressions: the columns that they read, and their results for a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.values.column_names import UNKNOWN_FIELD

_PART = re.compile(r"^(call|literal|field_ref|nested_field_ref): '(.*)'$")


def columns_read(expression: pc.Expression) -> tuple[str, ...]:
    """The columns that an expression names."""
    found: dict[str, None] = {}
    first, inner = True, 0
    for kind, name in _parts(expression):
        if kind == "nested_field_ref":
            first, inner = True, int(name)  # this many names follow: a column, then nested fields
        elif kind == "field_ref":
            if first or not inner:
                found[name] = None
            first, inner = False, max(inner - 1, 0)
    # Names that cannot be parsed here (with a line break, or cut) are found later, when Arrow
    # reports them as missing.
    while True:
        try:
            _evaluated(pa.table({name: pa.nulls(0) for name in found or ("",)}), {"": expression})
        except pa.ArrowException as error:
            missing = UNKNOWN_FIELD.match(str(error))
            if missing is not None and missing[1] not in found:
                found[missing[1]] = None
                continue
        return tuple(found)


def is_column(given: str | pc.Expression) -> str | None:
    """The name of the column, if the expression is only a column."""
    if isinstance(given, str):
        return given
    parts = _parts(given)
    return parts[0][1] if [kind for kind, _ in parts] == ["field_ref"] else None


def _parts(expression: pc.Expression) -> list[tuple[str, str]]:
    """The parts of an expression's text. Arrow offers no other access to its structure."""
    data = expression.__reduce__()[1][0]
    with pa.ipc.open_file(data) as written:
        text = written.schema.to_string(show_schema_metadata=True, truncate_metadata=False)
    lines = text.partition("-- schema metadata --\n")[2].splitlines()
    return [(m[1], m[2]) for m in map(_PART.match, lines) if m is not None]


_TYPES = (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.binary(),
          pa.timestamp("us", "UTC"), pa.list_(pa.null()))  # fmt: skip
"""The possible types of a column that is null in all records of a table."""


def evaluate(table: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """A table of expressions over the columns of another.

    A column that no record of the table has is null, as in sparse JSON. Whether some record has it
    depends on how the input is cut, so it must not matter. Its type is any that the expressions
    accept.
    """
    while True:
        try:
            return _evaluated(table, columns)
        except pa.ArrowNotImplementedError as error:
            return _as_another_type(table, columns, error)
        except pa.ArrowInvalid as error:
            missing = UNKNOWN_FIELD.match(str(error))
            if missing is None or missing[1] in table.schema.names:
                raise
            table = table.append_column(missing[1], pa.nulls(table.num_rows))


def _as_another_type(
    table: pa.Table, columns: Mapping[str, pc.Expression], error: pa.ArrowException
) -> pa.Table:
    """Evaluates each expression with types that it accepts, if it refuses nulls without a type."""
    empty = [field.name for field in table.schema if pa.types.is_null(field.type)]
    made: dict[str, pa.ChunkedArray] = {}
    for name, expression in columns.items():
        named = [column for column in empty if column in str(expression)][:3]
        for kinds in product((pa.null(), *_TYPES), repeat=len(named)):
            typed = table
            for column, kind in zip(named, kinds, strict=True):
                at = table.schema.get_field_index(column)
                typed = typed.set_column(at, column, pa.nulls(table.num_rows, kind))
            try:
                made[name] = _evaluated(typed, {name: expression}).column(name)
                break
            except pa.ArrowNotImplementedError:
                continue
        else:
            raise error
    return pa.table(made)


def _evaluated(table: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    from pyarrow import acero  # it imports pandas, which takes half a second

    declaration = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
            acero.Declaration(
                "project", acero.ProjectNodeOptions(list(columns.values()), list(columns))
            ),
        ]
    )
    # With one thread the rows keep their order.
    return declaration.to_table(use_threads=False)
