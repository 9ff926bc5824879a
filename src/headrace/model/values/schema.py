"""Schemas: the columns of a stream, given as a class or as an Arrow schema.

Records of a stream with a schema are Arrow columns of exactly these types, from
the source to the sink. If the schema is a dataclass or msgspec Struct, a hook sees an instance of
the class; if it is a TypedDict or `pa.Schema`, a dict.

Text is cast to other types ("5" to 5), as Arrow's casts do. Nothing is rounded or truncated.
Columns that the schema does not name are dropped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, is_typeddict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.values.arrow import python_list
from headrace.model.values.codec import packed
from headrace.model.values.schema_types import arrow_fields, class_defaults, row_type
from headrace.model.values.text_cells import Cells

Given = type[Any] | pa.Schema


class Schema:
    """The columns of a stream and the class of its values."""

    __slots__ = (
        "_by_name", "_cells", "_checks_itself", "_decoder", "_narrow", "_plain", "arrow",
        "defaults", "given", "names", "of_class",
    )  # fmt: skip

    def __init__(self, given: Any, *, where: str) -> None:
        self.given = given
        if isinstance(given, pa.Schema):
            self.arrow = given.remove_metadata()
            row = row_type(self.arrow)
        elif isinstance(given, type) and (
            issubclass(given, msgspec.Struct) or is_dataclass(given) or is_typeddict(given)
        ):
            self.arrow = pa.schema(arrow_fields(given, where=where))
            row = given
        else:
            raise InvalidPipeline(
                f"{where}: a schema is a dataclass, a msgspec Struct, a TypedDict or a pa.Schema, "
                f"not {given!r:.80}"
            )
        self.names: tuple[str, ...] = tuple(self.arrow.names)
        if not self.names or len(set(self.names)) != len(self.names):
            raise InvalidPipeline(f"{where}: a schema has columns, each of another name")
        self.of_class = not isinstance(given, pa.Schema) and not is_typeddict(given)
        """Whether values are instances of a class, and not dicts."""
        self._checks_itself = self.of_class and hasattr(given, "__post_init__")
        self.defaults = class_defaults(given) if self.of_class else {}
        self._decoder: Any = msgspec.msgpack.Decoder(row, strict=False)
        self._plain = all(_is_plain(field.type) for field in self.arrow)
        self._narrow = [field for field in self.arrow if field.type not in _WIDE]
        self._cells = Cells(self.arrow, getattr(given, "__optional_keys__", frozenset()))
        self._by_name = self.of_class and _takes_names_only(given)

    def __reduce__(self) -> tuple[Any, ...]:
        return _schema, (self.given,)

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{f.name}: {f.type}' for f in self.arrow)})"

    # Columns to values ----------------------------------------------------

    def make(self, names: Sequence[str], lists: Sequence[list[Any]]) -> list[Any]:
        """Creates the values of rows that are given column by column."""
        if not self.of_class:
            return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
        if tuple(names) != self.names or not self._plain:
            rows = (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))
            return [self.of(row) for row in rows]
        cls = self.given
        if self._by_name:
            rows = (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))
            return [cls(**row) for row in rows]
        return [cls(*row) for row in zip(*lists, strict=True)]

    def of(self, value: Any) -> Any:
        """A value in the form of the schema; raises InvalidRecord if it does not fit."""
        return self.decode(packed(value))

    def decode(self, cell: bytes) -> Any:
        """The value of a MessagePack cell; raises InvalidRecord if it does not fit."""
        try:
            return self._decoder.decode(cell)
        except msgspec.ValidationError as error:
            raise InvalidRecord(f"{_worded(error)}; the schema is {self!r}") from None
        except msgspec.MsgspecError:
            raise
        except Exception as error:
            # Any error of __post_init__ besides the two that the decoder handles itself.
            raise InvalidRecord(f"{_raised(error)}; the schema is {self!r}") from error

    def of_text(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """A row of text in the types of the schema; raises InvalidRecord if it does not fit."""
        return self._cells.read(cells)

    def check(self, cell: bytes) -> None:
        """Raises InvalidRecord if a cell does not fit."""
        value = self.decode(cell)
        take = _taker(self.of_class)
        for field in self._narrow:
            given = take(value, field.name)
            if given is None or (type(given) is int and _holds_every_small(field.type, given)):
                continue
            reasons: dict[int, str] = {}
            _array([given], field, reasons)
            if reasons:
                raise InvalidRecord(f"{reasons[0]}; the schema is {self!r}")

    # Values to columns ----------------------------------------------------

    def batch(self, values: Sequence[Any]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Columns of values, and reasons for rows that do not fit. Their cells are undefined."""
        reasons: dict[int, str] = {}
        rows: list[Any] = []
        for i, value in enumerate(values):
            try:
                rows.append(self.of(value))
            except InvalidRecord as error:
                reasons[i] = str(error)
                rows.append(None)
        take = _taker(self.of_class)
        arrays = []
        for field in self.arrow:
            cells = [None if row is None else take(row, field.name) for row in rows]
            arrays.append(_array(cells, field, reasons))
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names)), reasons

    def cast(self, columns: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Columns in the types of the schema, and reasons for rows that do not fit."""
        reasons: dict[int, str] = {}
        if (
            columns.schema.names == list(self.names)
            and columns.schema.types == self.arrow.types
            and not any(columns.column(f.name).null_count for f in self.arrow if not f.nullable)
        ):
            return columns, self._refused(columns, reasons)
        arrays = []
        for field in self.arrow:
            if field.name not in columns.schema.names:
                default = _arrow_cell(self.defaults.get(field.name))
                filled = pa.array([default] * columns.num_rows, field.type)
                if not field.nullable and default is None:
                    text = f"there is no column {field.name!r} ({field.type})"
                    reasons.update((i, text) for i in range(columns.num_rows) if i not in reasons)
                arrays.append(filled)
                continue
            array = _cast(columns.column(field.name), field, reasons)
            if array.null_count and not field.nullable:
                for i in np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False)).tolist():
                    reasons.setdefault(i, f"column {field.name!r} is null, not {field.type}")
            arrays.append(array)
        made = pa.RecordBatch.from_arrays(arrays, names=list(self.names))
        return made, self._refused(made, reasons)

    def _refused(self, columns: pa.RecordBatch, reasons: dict[int, str]) -> dict[int, str]:
        """Adds the rows that the class itself refuses in `__post_init__`.

        They are found here, as for single values, and not in the hook that would read them: the
        producer is responsible for a record that does not fit its stream.
        """
        if not self._checks_itself:
            return reasons
        lists = [python_list(columns.column(name)) for name in self.names]
        for i, row in enumerate(zip(*lists, strict=True)):
            if i not in reasons:
                try:
                    self.make(self.names, [[cell] for cell in row])
                except Exception as error:
                    ours = isinstance(error, InvalidRecord)
                    reasons[i] = str(error) if ours else f"{_raised(error)}; the schema is {self!r}"
        return reasons


def _schema(given: Any) -> Schema:
    return Schema(given, where="schema=")


_WIDE = (pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
"""Types that hold all values of their kind."""


def _holds_every_small(kind: pa.DataType, value: int) -> bool:
    """Whether this is a small integer in a wide column, so that the cast cannot fail."""
    signed = pa.types.is_signed_integer(kind) and kind.bit_width >= 32
    return signed and -(2**31) <= value < 2**31


def _taker(of_class: bool) -> Callable[[Any, str], Any]:
    return getattr if of_class else dict.get


def _array(cells: list[Any], field: pa.Field, reasons: dict[int, str]) -> pa.Array:
    try:
        return pa.array([_arrow_cell(cell) for cell in cells], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    good: list[Any] = []
    for i, cell in enumerate(cells):
        try:
            good.append(pa.array([_arrow_cell(cell)], field.type)[0].as_py())
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reasons.setdefault(i, f"column {field.name!r} is not {field.type}: {error}")
            good.append(None)
    return pa.array(good, field.type)


def _cast(array: pa.Array, field: pa.Field, reasons: dict[int, str]) -> pa.Array:
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowException:
        pass
    cells: list[Any] = []
    for i in range(len(array)):
        try:
            cells.append(array.slice(i, 1).cast(field.type)[0].as_py())
        except pa.ArrowException:
            shown = f"{array[i].as_py()!r:.80}"
            reasons.setdefault(i, f"column {field.name!r} is {shown}, not {field.type}")
            cells.append(None)
    return pa.array(cells, field.type)


def _arrow_cell(cell: Any) -> Any:
    """A cell in the form for Arrow: objects of classes become dicts, enums their values."""
    if cell is None or isinstance(cell, str | int | float | bytes):
        return getattr(cell, "value", cell)
    return cell if _known_to_arrow(cell) else msgspec.to_builtins(cell, builtin_types=_BUILTIN)


def _known_to_arrow(cell: Any) -> bool:
    return type(cell).__module__ in ("datetime", "decimal")


_BUILTIN: Any = (bytes,)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a class can hold the cells of a column without conversion."""
    return (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        or pa.types.is_string(kind) or pa.types.is_binary(kind)
    )  # fmt: skip


def _takes_names_only(cls: type) -> bool:
    """Whether instances must be created with keyword arguments."""
    parameters = inspect.signature(cls).parameters.values()
    return any(p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters)


def _raised(error: Exception) -> str:
    return f"__post_init__ raised {type(error).__name__}: {error}"


def _worded(error: msgspec.ValidationError) -> str:
    """Turns "Expected `int`, got `str` - at `$.price`" into a message that names the column."""
    text, _, place = str(error).partition(" - at `$")
    text = text.replace("`ext`", "an integer of more than 64 bits")
    column = place.strip("`").lstrip(".")
    return f"column {column!r}: {text}" if column else text
