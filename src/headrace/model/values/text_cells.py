"""Rows of text, as in CSV, in the types of a schema.

An empty cell of a nullable column is None; in a text column that is not nullable, it is the empty
text. Spaces around numbers and times are ignored. After that, the class of the schema handles the
row (enums, `__post_init__`) as it handles a row of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.values.schema_types import python_type

_WHOLE = re.compile("[+-]?[0-9]+")
_DIGITS_MAX = 4300
"""The maximum number of digits of an integer that Python parses."""


class Cells:
    """Reads cells by the columns of a schema."""

    __slots__ = ("_columns", "_left_out")

    def __init__(self, schema: pa.Schema, left_out: Collection[str] = ()) -> None:
        self._columns = [(field, python_type(field.type)) for field in schema]
        self._left_out = left_out
        """Columns that are absent from a row that has no value for them."""

    def read(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The row; columns that the schema does not name stay as they are."""
        row = dict(cells)
        for field, kind in self._columns:
            cell = row.get(field.name)
            if not isinstance(cell, str):
                continue  # already converted by a function, or missing
            is_text = kind is str or kind is bytes
            cell = cell if is_text else cell.strip()
            if not cell and field.nullable:
                row[field.name] = None
                if field.name in self._left_out:
                    del row[field.name]
            elif not cell and not is_text:
                raise InvalidRecord(
                    f"column {field.name!r} is empty, but the schema says {field.type} and not None"
                )
            elif not is_text and kind is not Any:
                row[field.name] = _read(cell, kind, field)
        return row


def _read(cell: str, kind: Any, field: pa.Field) -> Any:
    try:
        if kind is int and len(cell) < _DIGITS_MAX and _WHOLE.fullmatch(cell):
            return int(cell)  # accepts 007 and +5, as Arrow does
        return msgspec.convert(cell, kind, strict=False)
    except msgspec.ValidationError:
        raise InvalidRecord(
            f"column {field.name!r} holds {cell[:40]!r}, but the schema says {field.type}"
        ) from None
