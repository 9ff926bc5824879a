"""What the classes inside a declared state type consist of, as text.

A declared type names its classes only. A class that has other fields now has the same name, so a
contract tells these as well.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from headrace.model.values.codec import parts_of, types_inside

_SHOWN_MAX = 2000
"""Longer texts are cut, and have a digest: contracts stand in the log."""
_OPTIONS = ("tag_field", "tag", "array_like", "forbid_unknown_fields")


def shape_of(declared: Any) -> str:
    """The fields of all dataclasses, structs and the like inside a type, and the values of enums;
    "" if there are none. One that may be left out ends with `=`."""
    text = "; ".join(sorted({_shape(part) for part in parts_of(declared)} - {""}))
    if len(text) <= _SHOWN_MAX:
        return text
    return f"{text[:_SHOWN_MAX]}... ({xxhash.xxh3_64_hexdigest(text.encode())})"


def _shape(part: Any) -> str:
    fields, cls = getattr(part, "fields", None), getattr(part, "cls", None)
    if isinstance(part, msgspec.inspect.EnumType):
        return f"{_name(part)}({', '.join(repr(each.value) for each in part.cls)})"
    if fields is None or cls is None:
        return ""
    inside = [
        f"{each.encode_name}: {_name(each.type)}{'' if each.required else ' ='}" for each in fields
    ]
    inside += [f"{name}={value!r}" for name in _OPTIONS if (value := getattr(part, name, None))]
    return f"{_name(part)}({', '.join(inside)})"


def _name(part: Any) -> str:
    """A type as its annotation says it, or nearly so."""
    if (cls := getattr(part, "cls", None)) is not None:
        return str(getattr(cls, "__name__", cls))
    if isinstance(part, msgspec.inspect.UnionType):
        return " | ".join(map(_name, part.types))
    if isinstance(part, msgspec.inspect.LiteralType):
        return f"Literal[{', '.join(map(repr, part.values))}]"
    kind = type(part).__name__.removesuffix("Type").lower().replace("none", "None")
    given = [_name(each) for each in types_inside(part)]
    given += [
        f"{name}={value!r}"
        for name in part.__struct_fields__
        if isinstance(value := getattr(part, name), int | float | str)
    ]
    return f"{kind}[{', '.join(given)}]" if given else kind
