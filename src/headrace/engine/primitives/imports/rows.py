"""Turns the rows of a table into the cells of a computation's keys, checked against its fields.

One row is one key. A column has the name of a field or map; others are refused.

- A value must fit the declared type of its field, as if a hook had stored it. No number loses
  digits: 1.5 is no int, and an int that no float equals is no float.
- A null is None if the field may be None, and otherwise the initial value. A field without a
  column has its initial value, and so has a null of an export that is a field that was not there.
- A map comes as an Arrow map, as a struct (nulls in it are entries that are not there), or as a
  list of structs with a key and a value. A set, `Map[T, None]`, may also be a list of its keys.
- A column that an export wrote as JSON is read as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from headrace.engine.primitives.columns import (
    ABSENT,
    FIELD,
    KEY,
    is_json,
    key_column,
    role_of,
)
from headrace.engine.primitives.json_form import from_exact_json
from headrace.errors import HeadraceError, IncompatibleState, InvalidRecord
from headrace.model.map import check_key
from headrace.model.state import Field
from headrace.model.values.arrow import in_microseconds, one_array, python_list
from headrace.model.values.codec import packed
from headrace.model.values.keys import encode_key, encode_part, hash_key
from headrace.model.values.names import did_you_mean
from headrace.model.values.shown import shown
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node
from headrace.state.segment import TIMER, Cell
from headrace.worker.cells import entry_cells, field_cell, timed_cell
from headrace.worker.records.hooks import TTL_TAG


class ImportedRows:
    """The rows of a table as the state of keys of one computation."""

    def __init__(
        self, node: Node, table: pa.Table, key: Sequence[str], written_at: int | None
    ) -> None:
        """`key`: its columns, or none to find them. `written_at`: when the values were written,
        from which TTLs count."""
        self._node, self._table = node, table
        self._where = f"computation {node.name!r}"
        self._fields = {field.name: field for field in node.shape.fields}
        self._check_columns_once()
        self._key = tuple(key) or self._usual_key()
        self._check_columns()
        self._at = written_at
        self._check_ttl()
        self.rows = table.num_rows

    def cells(self) -> Iterator[tuple[int, list[Cell]]]:
        """(hash of its key, cells) of each row."""
        columns = {
            name: self._column(name) for name in self._table.column_names if name in self._fields
        }
        parts = [self._column(name) for name in self._key]
        seen: dict[bytes, int] = {}
        for row in range(self._table.num_rows):
            key = self._key_of([cells[row] for cells in parts], row)
            if key in seen:
                raise IncompatibleState(
                    f"{self._where}: rows {seen[key]} and {row} of the input have the same key, "
                    f"{self._shown_key(parts, row)}: a key has one state. Import one row for each "
                    "key"
                )
            seen[key] = row
            where = hash_key(key)
            yield where, self._row(where, key, {n: c[row] for n, c in columns.items()}, parts, row)

    # Columns --------------------------------------------------------------

    def _check_columns_once(self) -> None:
        names = self._table.column_names
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise IncompatibleState(f"{self._where}: two columns are called {repeated[0]!r}")

    def _usual_key(self) -> tuple[str, ...]:
        """The columns by which the computation is keyed, or the key column of an export.

        A column that both are names of is a field in an export, which says so, or has a key column
        beside it.
        """
        names = self._table.column_names
        for field in self._table.schema:
            if role_of(field) == KEY:
                return (field.name,)
        of_export = key_column(self._fields)
        for given in self._node.inputs:
            columns = given.key.columns
            if columns and all(name in names for name in columns):
                if of_export in names and of_export not in columns and {*columns} & {*self._fields}:
                    break
                return tuple(columns)
        if of_export in names:
            return (of_export,)
        raise IncompatibleState(
            f"{self._where}: which column of the input is the key? Say it with key= (--key); there "
            f"are: {', '.join(names) or 'none'}"
        )

    def _check_columns(self) -> None:
        names = self._table.column_names
        for name in self._key:
            if name not in names:
                raise IncompatibleState(
                    f"{self._where}: the input has no column {name!r} for the key"
                    f"{did_you_mean(name, names)}; there are: {', '.join(names)}"
                )
        for name in names:
            if name not in self._fields and name not in self._key:
                raise IncompatibleState(
                    f"{self._where}: the input has a column {name!r}, which is no field of "
                    f"{self._node.shape.cls.__qualname__}{did_you_mean(name, self._fields)}; it "
                    f"has: {', '.join(self._fields) or 'none'}. Drop the column from the input"
                )

    def _check_ttl(self) -> None:
        timed = [name for name, field in self._fields.items() if field.ttl_us is not None]
        of_keys = self._node.shape.options.ttl_us is not None
        if self._at is None and (timed or of_keys):
            what = "its keys have" if of_keys else f"{timed[0]!r} has"
            raise IncompatibleState(
                f"{self._where}: {what} a TTL, which counts from the last write: say when the "
                "values of the input were written, written_at= (--written-at)"
            )

    def _column(self, name: str) -> list[Any]:
        field = self._table.schema.field(name)
        column = one_array(self._table.column(name))
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        column = self._in_microseconds(name, column)
        try:
            if pa.types.is_nested(column.type):
                cells = [_with_dicts(cell, column.type) for cell in column.to_pylist()]
            else:
                cells = python_list(column)
        except _Twice as error:
            raise IncompatibleState(
                f"{self._where}: column {name!r} has a map with two entries {error}"
            ) from None
        nothing = ABSENT if role_of(field) == FIELD else None
        read = partial(self._of_json, name) if is_json(field) else _same
        return [nothing if cell is None else read(cell) for cell in cells]

    def _in_microseconds(self, name: str, column: pa.Array) -> pa.Array:
        kind = in_microseconds(column.type)
        try:
            return column if kind == column.type else column.cast(kind)
        except pa.ArrowInvalid as error:
            raise IncompatibleState(
                f"{self._where}: column {name!r} has times with nanoseconds, and state has "
                f"microseconds: round them in the input ({error})"
            ) from None

    def _of_json(self, name: str, cell: str) -> Any:
        try:
            return from_exact_json(cell)
        except (ValueError, TypeError, RecursionError) as error:
            raise IncompatibleState(
                f"{self._where}: column {name!r} is JSON of an export, but {shown(cell, 80)} "
                f"cannot be read: {error}"
            ) from None

    # Rows -----------------------------------------------------------------

    def _key_of(self, parts: list[Any], row: int) -> bytes:
        found = [None if part is ABSENT else _key_part(part) for part in parts]
        try:
            return encode_key(tuple(found) if len(found) > 1 else found[0])
        except (InvalidRecord, HeadraceError, TypeError) as error:
            raise IncompatibleState(f"{self._where}: row {row} of the input: {error}") from None

    def _shown_key(self, parts: Sequence[list[Any]], row: int) -> str:
        found = [None if cells[row] is ABSENT else cells[row] for cells in parts]
        return shown(found if len(found) > 1 else found[0], 80)

    def _row(
        self, where: int, key: bytes, values: dict[str, Any], parts: Sequence[list[Any]], row: int
    ) -> list[Cell]:
        found: list[Cell] = []
        at, version = self._at or 0, self._node.shape.options.version
        for name, value in values.items():
            field = self._fields[name]
            if value is ABSENT:
                continue
            expires = END if field.ttl_us is None else min(at + field.ttl_us, END)
            try:
                if field.is_map:
                    entries = [(e, data, expires) for e, data in _entries(field, value)]
                    found += entry_cells(where, key, name, entries, at, version)
                elif (data := _stored(field, value)) != field.initial_data:
                    found.append(field_cell(where, key, field, data, at, expires, version))
            except (TypeError, ValueError, HeadraceError) as error:
                raise IncompatibleState(
                    f"{self._where}, key {self._shown_key(parts, row)}: column {name!r} does not "
                    f"fit the field {name}: {field.type_text}: {error}"
                ) from None
        ttl_us = self._node.shape.options.ttl_us
        if found and ttl_us is not None:
            clock = self._node.shape.options.clock
            ends = (min(at + ttl_us, END), END)
            found.append(timed_cell(where, TIMER, (key, clock, TTL_TAG), b"", ends, version))
        return found


def _same(cell: Any) -> Any:
    return cell


class _Twice(Exception):
    """A map has two entries of one key."""


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    """A nested value of Arrow, whose maps are lists of pairs, with dicts for maps."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        names, cells = kind.key_type, kind.item_type
        found = {_key_part(_with_dicts(k, names)): _with_dicts(v, cells) for k, v in value}
        if len(found) != len(value):
            keys = [_key_part(_with_dicts(k, names)) for k, _ in value]
            raise _Twice(shown(next(key for key in keys if keys.count(key) > 1), 80))
        return found
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_with_dicts(each, kind.value_type) for each in value]
    return value


def _stored(field: Field, value: Any) -> bytes:
    """The bytes of a field's value."""
    if value is None:
        try:
            return field.codec.encode(None)
        except TypeError:
            return field.initial_data
    return _encoded(field, value)


def _encoded(field: Field, value: Any) -> bytes:
    """The bytes of a value, as the field's own type would be encoded."""
    value = _exact(value)
    try:
        made = field.codec.decode(packed(value))
    except (msgspec.DecodeError, InvalidRecord) as error:
        raise TypeError(f"{shown(value, 80)}: {error}") from None
    if _loses_digits(value, made):
        raise TypeError(f"{shown(value, 80)} would become {shown(made, 80)}")
    return field.codec.encode(made)


def _loses_digits(given: Any, made: Any) -> bool:
    """Whether a number, or one inside, has become another one."""
    if isinstance(given, (int, float)):
        made = made.value if isinstance(made, Enum) else made
        return type(made) is not type(given) and bool(made != given)
    if not isinstance(given, (list, dict)):
        return False
    if isinstance(made, (set, frozenset)):
        return any(isinstance(each, (int, float)) and each not in made for each in given)
    if not isinstance(made, (dict, list, tuple)):  # a class with fields
        kept = (bytes, Decimal)
        made = msgspec.to_builtins(made, builtin_types=kept, str_keys=False, enc_hook=repr)
    if isinstance(given, dict) and isinstance(made, dict):
        return any(_loses_digits(cell, made[name]) for name, cell in given.items() if name in made)
    if isinstance(given, list) and isinstance(made, (list, tuple)):
        return any(map(_loses_digits, given, made))
    return False


def _exact(value: Any) -> Any:
    """A value whose integers of more than 64 bits, which Arrow has as decimals, are integers."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    return value


def _entries(field: Field, value: Any) -> Iterator[tuple[bytes, bytes]]:
    """(entry, value) of the entries of a map, as bytes."""
    seen: set[bytes] = set()
    for key, each in _pairs(field, value):
        key = _key_part(key)
        check_key(key, field.key_type, field.name)
        entry = encode_part(key)
        if entry in seen:
            raise TypeError(f"it has two entries {shown(key, 80)}")
        seen.add(entry)
        yield entry, field.codec.encode(None) if each is None else _encoded(field, each)


def _pairs(field: Field, value: Any) -> Iterable[tuple[Any, Any]]:
    if value is None:
        return
    nothing = _takes_none(field)
    if isinstance(value, dict):
        yield from ((k, v) for k, v in value.items() if v is not None or nothing)
        return
    if not isinstance(value, list):
        raise TypeError(f"{shown(value, 80)} is no map")
    for each in value:
        if isinstance(each, dict) and len(each) == 2:
            names = list(each)
            yield (
                (each["key"], each["value"])
                if set(names) == {"key", "value"}
                else tuple(each.values())
            )
        elif isinstance(each, (list, tuple)) and len(each) == 2:
            yield each[0], each[1]
        elif nothing:
            yield each, None
        else:
            raise TypeError(f"{shown(each, 80)} has no key and value")


def _takes_none(field: Field) -> bool:
    try:
        field.codec.encode(None)
    except TypeError:
        return False
    return True


def _key_part(part: Any) -> Any:
    """A part of a key: a struct or a list is a tuple, and a wide integer an integer."""
    if isinstance(part, dict):
        return tuple(_key_part(each) for each in part.values())
    if isinstance(part, list):
        return tuple(map(_key_part, part))
    if isinstance(part, Decimal) and part == part.to_integral_value():
        return int(part)
    return part
