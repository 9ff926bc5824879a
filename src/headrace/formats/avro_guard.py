"""Walks over a message in Avro before it is read, where reading it could take the process down.

fastavro reads recursively in C: a message of a recursive type, nested some thousand deep, overflows
the stack. And an array of items without bytes has as many items as a message likes to claim. So
messages of such schemas are walked over first, without recursion beyond the limit of a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.model.values.codec import NESTED_MAX

EMPTY_ITEMS_MAX = 1_000_000
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")
_NESTED = ("array", "map", "record", "error")

Named = Mapping[str, Any]


def needs_a_walk(schema: Any, named: Named) -> bool:
    """Whether messages of a schema are walked over before they are read."""
    return _is_recursive(schema, named, ()) or any(
        _least(inner["items"], named, ()) == 0 for inner in _arrays(schema, named, set())
    )


def walk(raw: bytes, schema: Any, named: Named) -> None:
    """Raises ValueError if a message is nested too deeply, is cut off or claims too much."""
    _Walk(raw, named).skip(schema, 0, 0)


class _Walk:
    def __init__(self, raw: bytes, named: Named) -> None:
        self._raw = raw
        self._named = named

    def skip(self, schema: Any, at: int, depth: int) -> int:
        """Where a value ends that begins at `at`."""
        kind, schema = _kind(schema, self._named)
        if kind == "union":
            branch, at = self._number(at)
            if not 0 <= branch < len(schema):
                raise ValueError(f"it names branch {branch} of a union of {len(schema)}")
            return self.skip(schema[branch], at, depth)
        if kind in _FIXED:
            return self._end(at + _FIXED[kind])
        if kind in _NUMBERS:
            return self._number(at)[1]
        if kind == "fixed":
            return self._end(at + schema["size"])
        if kind in _NESTED:
            if depth >= NESTED_MAX:
                raise ValueError(
                    f"nested more than {NESTED_MAX} deep, which is too deep for a record"
                )
            return self._skip_nested(kind, schema, at, depth + 1)
        size, at = self._number(at)  # bytes and text
        if size < 0:
            raise ValueError(f"it has a text of {size} bytes")
        return self._end(at + size)

    def _skip_nested(self, kind: str, schema: Any, at: int, depth: int) -> int:
        if kind in ("record", "error"):
            for field in schema["fields"]:
                at = self.skip(field["type"], at, depth)
            return at
        inner, total = schema["items" if kind == "array" else "values"], 0
        while True:
            count, at = self._number(at)
            if count == 0:
                return at
            if count < 0:
                count, at = -count, self._number(at)[1]
            total += count
            if total > max(EMPTY_ITEMS_MAX, len(self._raw)):
                raise ValueError(f"it claims to have {total:,} items in {len(self._raw):,} bytes")
            for _ in range(count):
                if kind == "map":
                    at = self.skip("string", at, depth)
                at = self.skip(inner, at, depth)

    def _number(self, at: int) -> tuple[int, int]:
        found = shift = 0
        while shift < 70:
            if at >= len(self._raw):
                break
            byte = self._raw[at]
            at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1), at
            shift += 7
        raise ValueError("it is cut off, or not of this schema")

    def _end(self, at: int) -> int:
        if at > len(self._raw):
            raise ValueError("it is cut off, or not of this schema")
        return at


def _kind(schema: Any, named: Named) -> tuple[str, Any]:
    """What a schema is, without the names and layers around it."""
    while True:
        if isinstance(schema, list):
            return "union", schema
        if isinstance(schema, str):
            if schema not in named:
                return schema, schema
            schema = named[schema]
        elif isinstance(schema["type"], str) and schema["type"] not in named:
            return schema["type"], schema
        else:
            schema = schema["type"]


def _inner(kind: str, schema: Any) -> Iterable[Any]:
    if kind == "union":
        return list(schema)
    if kind in ("record", "error"):
        return [field["type"] for field in schema["fields"]]
    return [schema["items" if kind == "array" else "values"]] if kind in _NESTED else ()


def _is_recursive(schema: Any, named: Named, above: tuple[str, ...]) -> bool:
    kind, schema = _kind(schema, named)
    if kind in ("record", "error"):
        if schema["name"] in above:
            return True
        above = (*above, schema["name"])
    return any(_is_recursive(inner, named, above) for inner in _inner(kind, schema))


def _arrays(schema: Any, named: Named, seen: set[str]) -> Iterable[Any]:
    kind, schema = _kind(schema, named)
    if kind in ("record", "error"):
        if schema["name"] in seen:
            return
        seen.add(schema["name"])
    if kind == "array":
        yield schema
    for inner in _inner(kind, schema):
        yield from _arrays(inner, named, seen)


def _least(schema: Any, named: Named, above: tuple[str, ...]) -> int:
    """A lower bound of the bytes of a value; exact where it is 0."""
    kind, schema = _kind(schema, named)
    if kind in ("record", "error"):
        if schema["name"] in above:
            return 0
        above = (*above, schema["name"])
        return sum(_least(inner, named, above) for inner in _inner(kind, schema))
    return int(schema["size"]) if kind == "fixed" else _FIXED.get(kind, 1)
