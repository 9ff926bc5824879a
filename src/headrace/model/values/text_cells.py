"""Rows of text, as in CSV, in the types of a schema.

An empty cell of a column that may be null is None; in a column of text that may not, it is the
empty text. Spaces around numbers and times do not count. What the class of the schema makes of
the row then (enums, `__post_init__`) is as for a row of JSON.
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
"""Python reads no longer integers."""


class Cells:
    """Reads cells by the columns of a schema."""

    __slots__ = ("_columns", "_left_out")

    def __init__(self, schema: pa.Schema, left_out: Collection[str] = ()) -> None:
        self._columns = [(field, python_type(field.type)) for field in schema]
        self._left_out = left_out
        """Columns that a row without a value does not have at all."""

    def read(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The row; columns that the schema does not name stay as they are."""
        row = dict(cells)
        for field, kind in self._columns:
            cell = row.get(field.name)
            if not isinstance(cell, str):
                continue  # converted by a function of its own, or not there
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
            return int(cell)  # 007 and +5, which Arrow reads, too
        return msgspec.convert(cell, kind, strict=False)
    except msgspec.ValidationError:
        raise InvalidRecord(
            f"column {field.name!r} holds {cell[:40]!r}, but the schema says {field.type}"
        ) from None
