"""Pickles a pipeline by value, msgspec Structs included.

cloudpickle makes a class in two steps, an empty one and then its attributes. A
Struct's fields are fixed in the first, so it would arrive without any: such
classes travel as the definition of their fields and are defined anew.
"""

from __future__ import annotations

import inspect
import io
from typing import Any

import msgspec
from pyspark import cloudpickle

StructMeta: Any = type(msgspec.Struct)

_CONFIG = (
    "frozen", "eq", "order", "array_like", "tag", "tag_field", "omit_defaults",
    "forbid_unknown_fields", "weakref", "dict", "cache_hash", "gc",
)  # fmt: skip
_MADE = ("__module__", "__qualname__", "__doc__", "__slots__", "__match_args__", "__annotations__")


_CACHE = "__msgspec_cache__"


def dumps(value: Any) -> bytes:
    """`value` as bytes that `cloudpickle.loads` understands."""
    out = io.BytesIO()
    _Pickler(out).dump(value)  # type: ignore[no-untyped-call]
    return out.getvalue()


class _Pickler(cloudpickle.CloudPickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, StructMeta) and _by_value(value):
            return define, _definition(value)
        if isinstance(value, type) and _CACHE in vars(value):
            delattr(value, _CACHE)  # what msgspec knows of it cannot travel, and it finds it again
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _by_value(cls: Any) -> bool:
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        return True
    registered = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    return any(cls.__module__ == m or cls.__module__.startswith(f"{m}.") for m in registered)


def _definition(cls: Any) -> tuple[Any, ...]:
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in _CONFIG if hasattr(config, name)}
    inherited = {
        field.name
        for base in cls.__bases__
        if isinstance(base, StructMeta)
        for field in msgspec.structs.fields(base)
    }
    fields = []
    for field in msgspec.structs.fields(cls):
        if field.name in inherited:
            continue
        if field.default_factory is not msgspec.NODEFAULT:
            default: Any = ("factory", field.default_factory)
        elif field.default is not msgspec.NODEFAULT:
            default = ("value", field.default)
        else:
            default = None
        fields.append((field.name, field.type, default))
    parameters = inspect.signature(cls).parameters
    options["kw_only"] = any(
        parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name, _, _ in fields
    )
    slots = {field.name for field in msgspec.structs.fields(cls)}
    namespace = {
        name: member
        for name, member in vars(cls).items()
        if name not in _MADE and name not in slots and not name.startswith("__struct_")
    }
    bases = tuple(base for base in cls.__bases__ if base is not msgspec.Struct)
    names = (cls.__name__, cls.__module__, cls.__qualname__, cls.__doc__)
    return (*names, bases, fields, options, namespace)


def define(
    name: str,
    module: str,
    qualname: str,
    doc: str | None,
    bases: tuple[type, ...],
    fields: list[tuple[str, Any, tuple[str, Any] | None]],
    options: dict[str, Any],
    namespace: dict[str, Any],
) -> type:
    """The Struct class of a definition."""
    given: list[Any] = []
    for field, kind, default in fields:
        if default is None:
            given.append((field, kind))
        elif default[0] == "factory":
            given.append((field, kind, msgspec.field(default_factory=default[1])))
        else:
            given.append((field, kind, default[1]))
    made = msgspec.defstruct(
        name,
        given,
        bases=bases or None,
        namespace=namespace or None,
        module=module,
        **options,
    )
    made.__qualname__ = qualname
    made.__doc__ = doc
    return made
