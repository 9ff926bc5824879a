"""Pickles a pipeline by value, including msgspec Structs.

cloudpickle builds a class in two steps: first an empty class, then its attributes. The fields of a
Struct are fixed in the first step, so it would arrive without any. Therefore Struct classes are
defined again from the names, defaults and options of their fields. In the second step they get
their types and methods, which may refer to the class itself.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark import cloudpickle

from headrace.errors import InvalidPipeline

StructMeta: Any = type(msgspec.Struct)

_CONFIG = (
    "frozen", "eq", "order", "array_like", "tag", "tag_field", "omit_defaults",
    "forbid_unknown_fields", "repr_omit_defaults", "weakref", "dict", "cache_hash", "gc",
)  # fmt: skip
_MADE = {
    "__module__", "__qualname__", "__doc__", "__slots__", "__match_args__", "__annotations__",
    "__dict__", "__weakref__",
}  # fmt: skip
_EARLY = {"__orig_bases__", "__post_init__", "__init_subclass__"}
"""The members that must exist when the class is created."""

_META = [name for name in inspect.signature(msgspec.Meta).parameters if hasattr(msgspec.Meta, name)]

_CACHE = "__msgspec_cache__"


def dumps(value: Any) -> bytes:
    """`value` as bytes that `cloudpickle.loads` understands."""
    out = io.BytesIO()
    _Pickler(out).dump(value)  # type: ignore[no-untyped-call]
    return out.getvalue()


class _Pickler(cloudpickle.CloudPickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, StructMeta) and _by_value(value):
            return define, _definition(value), _rest(value), None, None, complete
        if isinstance(value, msgspec.Meta):
            given = {name: getattr(value, name) for name in _META}
            return constraint, ({name: each for name, each in given.items() if each is not None},)
        if isinstance(value, type) and _CACHE in vars(value):
            delattr(value, _CACHE)  # msgspec's cache cannot be pickled; msgspec builds it again
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _by_value(cls: Any) -> bool:
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        return True
    registered = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    return any(cls.__module__ == m or cls.__module__.startswith(f"{m}.") for m in registered)


def _definition(cls: Any) -> tuple[Any, ...]:
    if type(cls) is not StructMeta:
        raise InvalidPipeline(
            f"{cls.__qualname__} is a Struct with a metaclass of its own, {type(cls).__name__}, "
            "and cannot be sent to workers: define it in a module that they can import"
        )
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in _CONFIG if hasattr(config, name)}
    by_name = {field.name: field for field in msgspec.structs.fields(cls)}
    fields = []
    for name in _own(cls):
        field = by_name[name]
        if field.default_factory is not msgspec.NODEFAULT:
            default: Any = ("factory", field.default_factory)
        elif field.default is not msgspec.NODEFAULT:
            default = ("value", field.default)
        else:
            default = None
        fields.append((name, field.encode_name, default))
    parameters = inspect.signature(cls).parameters
    options["kw_only"] = any(
        parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name, _, _ in fields
    )
    early = {name: member for name, member in _members(cls) if name in _EARLY}
    names = (cls.__name__, cls.__module__, cls.__qualname__, cls.__doc__)
    return (*names, cls.__bases__, fields, options, early, _shape(cls))


def _rest(cls: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of the fields, and all other members."""
    by_name = {field.name: field.type for field in msgspec.structs.fields(cls)}
    late = {name: member for name, member in _members(cls) if name not in _EARLY}
    return {name: by_name[name] for name in _own(cls)}, late


def _own(cls: Any) -> list[str]:
    """The fields that the class itself declares, including inherited ones that it redeclares."""
    known = set(cls.__struct_fields__)
    return [name for name in vars(cls).get("__annotations__", ()) if name in known]


def _members(cls: Any) -> Iterator[tuple[str, Any]]:
    fields = set(cls.__struct_fields__)
    for name, member in vars(cls).items():
        made = name in _MADE or name.startswith(("__struct_", "__msgspec_"))
        if not made and name not in fields and name != "__parameters__":
            yield name, member


def _shape(cls: Any) -> tuple[Any, ...]:
    """The properties that determine how values of the class are written and read."""
    config = cls.__struct_config__
    options = tuple(getattr(config, name, None) for name in _CONFIG)
    return cls.__struct_fields__, cls.__struct_encode_fields__, options


def define(
    name: str,
    module: str,
    qualname: str,
    doc: str | None,
    bases: tuple[type, ...],
    fields: list[tuple[str, str, tuple[str, Any] | None]],
    options: dict[str, Any],
    namespace: dict[str, Any],
    shape: tuple[Any, ...],
) -> type:
    """Creates the Struct class of a definition, without the members of the second step."""
    given: list[Any] = []
    for field, _, default in fields:
        if default is None:
            given.append((field, Any))
        elif default[0] == "factory":
            given.append((field, Any, msgspec.field(default_factory=default[1])))
        else:
            given.append((field, Any, default[1]))
    made = msgspec.defstruct(
        name,
        given,
        bases=bases,
        namespace=namespace or None,
        module=module,
        rename={field: encoded for field, encoded, _ in fields},
        **options,
    )
    made.__qualname__ = qualname
    made.__doc__ = doc
    if _shape(made) != shape:
        raise InvalidPipeline(
            f"the Struct {qualname} would arrive at workers as {_shape(made)}, and it is {shape}: "
            "define it in a module that they can import"
        )
    return made


def constraint(given: dict[str, Any]) -> msgspec.Meta:
    """The constraints of an annotated type."""
    return msgspec.Meta(**given)


def complete(made: Any, rest: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """The second step, when the class exists and can be referred to: its types and members."""
    types, members = rest
    made.__annotations__ = types
    for name, member in members.items():
        setattr(made, name, member)
