"""Converts declared Python types to Arrow types of columns, and back."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict, is_typeddict

import msgspec
import pyarrow as pa
from msgspec import inspect

from headrace.errors import InvalidPipeline

_SIMPLE: dict[type, pa.DataType] = {
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.StrType: pa.string(),
    inspect.BytesType: pa.binary(),
    inspect.BoolType: pa.bool_(),
    inspect.DateTimeType: pa.timestamp("us", tz="UTC"),
    inspect.DateType: pa.date32(),
    inspect.TimeType: pa.time64("us"),
    inspect.DecimalType: pa.decimal128(38, 9),
    inspect.UUIDType: pa.string(),
    inspect.NoneType: pa.null(),
}


COLUMNS_NESTED_MAX = 60
"""How deep a column's type may be nested. The limit of Arrow's files is 63."""


def too_deep(schema: pa.Schema, depth: int = COLUMNS_NESTED_MAX) -> str | None:
    """The first column whose type is nested more than `depth` deep."""
    for field in schema:
        layer, level = [field.type], 0
        while layer := [
            kind.field(i).type for kind in layer if pa.types.is_nested(kind)
            for i in range(kind.num_fields)
        ]:  # fmt: skip
            level += 1
        if level > depth:
            return str(field.name)
    return None


def arrow_fields(cls: type, *, where: str) -> Iterator[pa.Field]:
    """The columns that a dataclass, Struct or TypedDict declares."""
    where = f"{where}, {cls.__qualname__}"
    if issubclass(cls, msgspec.Struct) and cls.__struct_config__.array_like:
        raise InvalidPipeline(f"{where}: array_like structs have no column names")
    try:
        info: Any = inspect.type_info(cls)
    except (TypeError, NameError) as error:
        raise InvalidPipeline(f"{where}: {error}") from None
    order = list(getattr(cls, "__annotations__", ())) if is_typeddict(cls) else []
    for field in sorted(info.fields, key=lambda f: order.index(f.name) if f.name in order else -1):
        if field.name != field.encode_name:
            raise InvalidPipeline(f"{where}: rename= is not for schemas ({field.name!r})")
        kind, nullable = _type(field.type, f"{where}.{field.name}")
        optional = not field.required and field.name not in class_defaults(cls)
        yield pa.field(field.name, kind, nullable=nullable or optional)


def class_defaults(cls: Any) -> dict[str, Any]:
    """The defaults of a class's fields."""
    info: Any = inspect.type_info(cls)
    found = {}
    for field in info.fields:
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
    return found


def _type(declared: Any, where: str) -> tuple[pa.DataType, bool]:
    """The Arrow type of a declared type, and whether it may be null."""
    kind = type(declared)
    if kind in _SIMPLE:
        return _SIMPLE[kind], kind is inspect.NoneType
    if kind is inspect.UnionType:
        options = [t for t in declared.types if not isinstance(t, inspect.NoneType)]
        if len(options) == 1:
            return _type(options[0], where)[0], True
    if kind is inspect.EnumType:
        values = {type(member.value) for member in declared.cls}
        if len(values) == 1 and (only := values.pop()) in (int, str):
            return (pa.int64() if only is int else pa.string()), False
    if kind is inspect.LiteralType:
        values = {type(value) for value in declared.values}
        if len(values) == 1 and (only := values.pop()) in (int, str):
            return (pa.int64() if only is int else pa.string()), False
    if kind in (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType):
        return pa.list_(_type(declared.item_type, where)[0]), False
    if kind is inspect.DictType:
        key, value = _type(declared.key_type, where)[0], _type(declared.value_type, where)[0]
        return pa.map_(key, value), False
    if kind in (inspect.StructType, inspect.DataclassType, inspect.TypedDictType):
        return pa.struct(list(arrow_fields(declared.cls, where=where))), False
    raise InvalidPipeline(
        f"{where}: a column is int, float, str, bytes, bool, datetime, date, time, Decimal, UUID, "
        f"an enum, a list or dict of those, a class, or one of these or None; not {kind.__name__}"
    )


def row_type(schema: pa.Schema) -> Any:
    """A Python type with the columns of an Arrow schema, to check values."""
    fields: dict[str, Any] = {}
    for field in schema:
        kind = python_type(field.type)
        fields[field.name] = NotRequired[kind | None] if field.nullable else kind
    return TypedDict("Row", fields)  # type: ignore[operator]


def python_type(kind: pa.DataType) -> Any:
    """The Python type of a column's values; Any if there is no simple one."""
    if pa.types.is_dictionary(kind):
        return python_type(kind.value_type)
    for test, found in (
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_boolean, bool),
        (pa.types.is_decimal, decimal.Decimal),
        (pa.types.is_timestamp, datetime.datetime),
        (pa.types.is_date, datetime.date),
        (pa.types.is_time, datetime.time),
        (pa.types.is_duration, datetime.timedelta),
    ):
        if test(kind):
            return found
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = python_type(kind.value_type)
        return list[item | None if kind.value_field.nullable else item]  # type: ignore[misc]
    return Any
