"""Columns for state: finds a type that holds all values of a field exactly, and makes Arrow arrays.

State is stored as MessagePack, so a value has a kind of its own, whatever the others are. A column
has one type. The rules, in the order in which they are tried:

- values of one kind: that kind. Integers are int64; uint64 or a decimal if one needs more bits.
- lists: a list of what holds all elements.
- dicts that all have the same names: a struct. Other dicts with text as keys, and maps: a map.
- tuples, which only keys are: a struct of `part_0`, `part_1`.
- anything else, such as text beside numbers, or what is nested deeper than readers of Parquet take:
  JSON as text, and the column says so in its metadata.

No value is converted to another kind: 1 beside 1.5 is JSON, because 2**53 + 1 is no float. None,
and a field that a key does not have, are null; where a column has both, it is JSON, and None is
`null` there. Metadata says which column is the key, and which nulls are absent fields. So an import
finds what was exported. All of it is pure.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from headrace.engine.primitives.json_form import exact_json

AS_JSON = {b"headrace": b"json"}
"""The metadata of a column that holds JSON."""

ROLE = b"headrace.column"
"""In the metadata of a column of an export: what it is."""
KEY, FIELD, NULLABLE = b"key", b"field", b"nullable"
"""The key; a field, where a null is a field that the key does not have; one where it is None."""

KEY_COLUMN = "key"


class _Absent(enum.Enum):
    """Marks a field that a key does not have."""

    ABSENT = 0


ABSENT: Any = _Absent.ABSENT

NAMES_MAX = 100
"""A dict with more names than this is no struct."""

NESTED_MAX = 16
"""How deep a column may be nested; a map counts twice. Parquet fails at about 50 lists, and the
time of DuckDB doubles with each level from about 18 on."""

NOTHING, MIXED = "nothing", "mixed"
_TRUTH, _INTEGER, _FLOAT, _TEXT, _BYTES = "truth", "integer", "float", "text", "bytes"
_INSTANT, _NAIVE, _DATE, _TIME = "instant", "naive", "date", "time"
_LIST, _STRUCT, _MAP = "list", "struct", "map"

_SCALARS: dict[type, str] = {
    type(None): NOTHING,
    bool: _TRUTH,
    int: _INTEGER,
    float: _FLOAT,
    str: _TEXT,
    bytes: _BYTES,
    datetime.date: _DATE,
    datetime.time: _TIME,
}
_TYPES: dict[str, pa.DataType] = {
    _TRUTH: pa.bool_(),
    _FLOAT: pa.float64(),
    _TEXT: pa.string(),
    _BYTES: pa.binary(),
    _INSTANT: pa.timestamp("us", tz="UTC"),
    _NAIVE: pa.timestamp("us"),
    _DATE: pa.date32(),
    _TIME: pa.time64("us"),
}
_DECIMAL_MAX = 10**38


class ColumnKind(msgspec.Struct, frozen=True):
    """What a column must be able to hold."""

    name: str
    low: int = 0
    high: int = 0
    """Of integers: the smallest and the largest."""
    names: tuple[str, ...] = ()
    """Of a struct."""
    of: tuple[ColumnKind, ...] = ()
    """Of a list: its elements. Of a struct: by name. Of a map: keys and values."""


_NOTHING, _MIXED = ColumnKind(NOTHING), ColumnKind(MIXED)


def kind_of(value: Any) -> ColumnKind:
    """The kind of one value."""
    kind = type(value)
    if kind is int:
        return ColumnKind(_INTEGER, value, value)
    if kind in _SCALARS:
        return ColumnKind(_SCALARS[kind])
    if kind is datetime.datetime:
        return ColumnKind(_NAIVE if value.tzinfo is None else _INSTANT)
    if kind is list:
        return ColumnKind(_LIST, of=(kind_of_all(value),))
    if kind is tuple:
        return kind_of(_parts(value))
    if kind is dict:
        if len(value) <= NAMES_MAX and all(type(name) is str for name in value):
            of = tuple(kind_of(inner) for inner in value.values())
            return ColumnKind(_STRUCT, names=tuple(value), of=of)
        return kind_of_map(value)
    return _MIXED


def kind_of_map(value: dict[Any, Any]) -> ColumnKind:
    """The kind of a map with these entries."""
    names = _MIXED if None in value else kind_of_all(value)  # Arrow has no null as a key
    return ColumnKind(_MAP, of=(names, kind_of_all(value.values())))


def kind_of_all(values: Iterable[Any]) -> ColumnKind:
    """What holds all of some values."""
    found = _NOTHING
    for value in values:
        found = both(found, kind_of(value))
    return found


def both(one: ColumnKind, other: ColumnKind) -> ColumnKind:
    """What holds the values of two kinds."""
    if one == other or other.name == NOTHING:
        return one
    if one.name == NOTHING:
        return other
    if MIXED in (one.name, other.name):
        return _MIXED
    if {one.name, other.name} <= {_STRUCT, _MAP}:
        return _of_dicts(one, other)
    if one.name != other.name:
        return _MIXED
    if one.name == _INTEGER:
        return ColumnKind(_INTEGER, min(one.low, other.low), max(one.high, other.high))
    return ColumnKind(one.name, of=tuple(map(both, one.of, other.of)))


def _of_dicts(one: ColumnKind, other: ColumnKind) -> ColumnKind:
    if one.name == other.name == _STRUCT and set(one.names) == set(other.names):
        theirs = dict(zip(other.names, other.of, strict=True))
        of = tuple(both(mine, theirs[n]) for n, mine in zip(one.names, one.of, strict=True))
        return ColumnKind(_STRUCT, names=one.names, of=of)
    one, other = _as_map(one), _as_map(other)
    return ColumnKind(_MAP, of=tuple(map(both, one.of, other.of)))


def _as_map(kind: ColumnKind) -> ColumnKind:
    if kind.name == _MAP:
        return kind
    value = _NOTHING
    for inner in kind.of:
        value = both(value, inner)
    return ColumnKind(_MAP, of=(ColumnKind(_TEXT) if kind.names else _NOTHING, value))


def column_type(kind: ColumnKind, levels: int = NESTED_MAX) -> pa.DataType | None:
    """The Arrow type of a kind, of so many nested levels at most; None if only JSON holds it."""
    if kind.name == NOTHING:
        return pa.string()
    if kind.name == _INTEGER:
        return _integer_type(kind.low, kind.high)
    if kind.name in _TYPES:
        return _TYPES[kind.name]
    levels -= 2 if kind.name == _MAP else 1
    if kind.name == MIXED or levels < 0:
        return None
    inner = [column_type(each, levels) for each in kind.of]
    if None in inner:
        return None
    if kind.name == _LIST:
        return pa.list_(inner[0])
    if kind.name == _MAP:
        # Readers of Parquet take no map in the key of a map: tuples of different lengths.
        return None if _has_map(inner[0]) else pa.map_(*inner)
    if not kind.names:  # Parquet has no struct without names
        return pa.map_(pa.string(), pa.string())
    return pa.struct(list(zip(kind.names, inner, strict=True)))


def _has_map(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    return pa.types.is_map(kind) or any(
        _has_map(kind.field(i).type) for i in range(kind.num_fields)
    )


def _integer_type(low: int, high: int) -> pa.DataType | None:
    if low >= -(2**63) and high < 2**63:
        return pa.int64()
    if low >= 0 and high < 2**64:
        return pa.uint64()
    return pa.decimal128(38, 0) if low > -_DECIMAL_MAX and high < _DECIMAL_MAX else None


def field_of(name: str, kind: ColumnKind, role: bytes = FIELD) -> pa.Field:
    """The column of a kind."""
    found = column_type(kind)
    if found is not None:
        return pa.field(name, found, metadata={ROLE: role})
    role = FIELD if role == NULLABLE else role  # JSON has a null of its own for None
    return pa.field(name, pa.string(), metadata={ROLE: role, **AS_JSON})


def is_json(field: pa.Field) -> bool:
    """Whether a column holds JSON."""
    return bool((field.metadata or {}).items() >= AS_JSON.items())


def role_of(field: pa.Field) -> bytes:
    """What a column of an export is; b"" if it is not of an export."""
    return (field.metadata or {}).get(ROLE, b"")


def key_column(fields: Iterable[str]) -> str:
    """The name of the column with the key, beside fields with these names.

    It is `key`, or `key_` if a field has that name. Case does not count, as in SQL.
    """
    taken, found = {name.lower() for name in fields}, KEY_COLUMN
    while found in taken:
        found += "_"
    return found


def array_of(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Values as a column; `ABSENT` is null."""
    if is_json(field):
        return pa.array([None if v is ABSENT else exact_json(v) for v in values], pa.string())
    return pa.array([_fitting(v, field.type) for v in values], field.type)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """A value as Arrow takes it: entries of a map as pairs."""
    if value is None or value is ABSENT:
        return None
    if not pa.types.is_nested(kind):
        return value
    if type(value) is tuple:
        value = _parts(value)
    if pa.types.is_map(kind):
        names, cells = kind.key_type, kind.item_type
        return [(_fitting(entry, names), _fitting(v, cells)) for entry, v in value.items()]
    if pa.types.is_struct(kind):
        return {f.name: _fitting(value.get(f.name), f.type) for f in kind}
    return [_fitting(inner, kind.value_type) for inner in value]


def _parts(key: tuple[Any, ...]) -> dict[str, Any]:
    """A key of several parts as a dict of them."""
    return {f"part_{number}": part for number, part in enumerate(key)}


# Declared types ------------------------------------------------------------

_CLASS = re.compile(r"<class '([^']+)'>")
_GENERIC = re.compile(r"([\w.]+)\[(.*)\]")
_BY_NAME = {
    "bool": ColumnKind(_TRUTH),
    "int": ColumnKind(_INTEGER),
    "float": ColumnKind(_FLOAT),
    "str": ColumnKind(_TEXT),
    "bytes": ColumnKind(_BYTES),
    "datetime.datetime": ColumnKind(_INSTANT),
    "datetime.date": ColumnKind(_DATE),
    "datetime.time": ColumnKind(_TIME),
}


def declared_kind(text: str) -> ColumnKind:
    """The kind of a declared type, as a contract writes it; `nothing` if it does not say enough.

    It counts only where no value does: for a field that is None in all keys.
    """
    text = text.strip()
    if found := _CLASS.fullmatch(text):
        text = found[1]
    if text in _BY_NAME:
        return _BY_NAME[text]
    options = [each for each in _cut(text, "|") if each.strip() != "None"]
    if len(options) == 1 and options[0].strip() != text:
        return declared_kind(options[0])
    generic = _GENERIC.fullmatch(text)
    if generic is None:
        return _NOTHING
    name, inner = generic[1].rpartition(".")[2], [declared_kind(i) for i in _cut(generic[2], ",")]
    if name == "Optional":
        return inner[0]
    if name in ("list", "set", "frozenset") and len(inner) == 1:
        return ColumnKind(_LIST, of=(inner[0],))
    if name in ("dict", "Map") and len(inner) == 2:
        return ColumnKind(_MAP, of=(inner[0], inner[1]))
    return _NOTHING


def _cut(text: str, at: str) -> list[str]:
    """Cuts at a character that is in no brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == at and not depth:
            found.append("")
        else:
            found[-1] += character
    return found
