"""State fields, as users declare them.

    class Orders(Computation):
        status: str = state("new")            # a field: read and written whole
        recent: Map[str, float] = state()     # a map: stored entry by entry

`state()` only marks the declaration; `declared_fields` turns the marks and annotations of a class
into `Field`s.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.map import Map
from headrace.model.values.codec import Codec
from headrace.model.values.time import Duration, duration


class _Unset(enum.Enum):
    """Marks a value that was not given. An enum keeps its identity through pickling."""

    UNSET = 0


_UNSET: Any = _Unset.UNSET


class _Mark:
    """The placeholder that `state()` puts into the class body until the class is complete."""

    def __init__(self, default: Any, factory: Callable[[], Any] | None, ttl: Duration | None):
        self.default, self.factory, self.ttl = default, factory, ttl


def state(
    default: Any = _UNSET, *, factory: Callable[[], Any] | None = None, ttl: Duration | None = None
) -> Any:
    """Declares a state field: `state(default)`, `state(factory=f)` or `state()`.

    Without either, the initial value is the empty value of the annotated type.
    With `ttl`, a value that was not written for that long is forgotten.
    """
    if default is not _UNSET and factory is not None:
        raise InvalidPipeline("state() takes a default or a factory, not both")
    return _Mark(default, factory, ttl)


class Field:
    """One declared state field."""

    __slots__ = (
        "codec",
        "initial",
        "initial_data",
        "is_map",
        "key_type",
        "name",
        "shared",
        "ttl_us",
        "type_text",
    )

    def __init__(self, name: str, declared: Any, mark: _Mark, owner: str) -> None:
        where = f"{owner}.{name}"
        self.name = name
        self.is_map = typing.get_origin(declared) is Map or declared is Map
        self.ttl_us = None if mark.ttl is None else duration(mark.ttl, what=f"{where}: ttl")
        self.type_text = str(declared)
        self.key_type: Any = Any
        if self.is_map:
            _check_map_key(declared, where)
            _check_begins_empty(mark, where)
            arguments = typing.get_args(declared)
            self.key_type = arguments[0] if arguments else Any
            self.codec = Codec(arguments[1] if len(arguments) == 2 else Any, where=where)
            self.initial: Callable[[], Any] = dict
            self.initial_data = b""
            self.shared = _UNSET
            return
        self.codec = Codec(declared, where=where)
        self.initial = _initial(declared, mark, where)
        try:
            value = self.initial()
            self.initial_data = self.codec.encode(value)
        except (TypeError, ValueError) as error:
            raise InvalidPipeline(
                f"{where}: the initial value does not fit the declared type: {error}"
            ) from None
        # Immutable initial values are shared; others are decoded again for each key.
        immutable = isinstance(value, str | int | float | bool | bytes | type(None))
        self.shared = value if immutable else _UNSET

    def fresh(self) -> Any:
        """An initial value that is not shared with other keys, unless it is immutable."""
        return self.shared if self.shared is not _UNSET else self.codec.decode(self.initial_data)


def declared_fields(cls: type) -> tuple[Field, ...]:
    """The fields of a computation class, in the order of their declaration."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        annotations = vars(base).get("__annotations__", {})
        for name, mark in vars(base).items():
            if not isinstance(mark, _Mark):
                continue
            if name not in annotations:
                raise InvalidPipeline(
                    f"{cls.__qualname__}.{name} has no annotation; write `{name}: int = state(0)`"
                )
            declared = _resolved(base, name, annotations[name])
            found[name] = Field(name, declared, mark, cls.__qualname__)
    return tuple(found.values())


def check_names(cls: type, reserved: type) -> None:
    """Refuses state fields whose names `reserved` already has."""
    for base in cls.__mro__:
        for name, mark in vars(base).items():
            if isinstance(mark, _Mark) and hasattr(reserved, name):
                raise InvalidPipeline(
                    f"{cls.__qualname__}.{name}: {name!r} is a name of {reserved.__name__} itself, "
                    f"so no state can have it; call it otherwise, such as {name}_now"
                )


def _resolved(base: type, name: str, annotation: Any) -> Any:
    """The type of an annotation, even if the annotation is text."""
    module = sys.modules.get(base.__module__)
    names = {**vars(typing), **(vars(module) if module else {}), "Map": Map}
    bare = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(bare, globalns=names, localns=dict(vars(base)))[name]
    except Exception as error:
        raise InvalidPipeline(
            f"{base.__qualname__}.{name}: its annotation cannot be resolved: {error}"
        ) from None


def _initial(declared: Any, mark: _Mark, where: str) -> Callable[[], Any]:
    if mark.factory is not None:
        return mark.factory
    if mark.default is not _UNSET:
        return lambda: mark.default
    origin = typing.get_origin(declared) or declared
    if origin is typing.Union or (type(None) in typing.get_args(declared)):
        return lambda: None
    if origin in (Any, type(None)):
        return lambda: None
    if inspect.isclass(origin):
        try:
            origin()
        except TypeError:
            pass
        else:
            return origin
    raise InvalidPipeline(
        f"{where}: {declared!r} has no empty value; give one: state(default) or state(factory=f)"
    )


def _check_begins_empty(mark: _Mark, where: str) -> None:
    given = mark.factory() if mark.factory is not None else mark.default
    if given is not _UNSET and given != {}:
        raise InvalidPipeline(
            f"{where}: a Map begins empty, and {given!r:.80} would be lost: write state(), and "
            "read with .get(key, default)"
        )


def _check_map_key(declared: Any, where: str) -> None:
    arguments = typing.get_args(declared)
    if arguments and (typing.get_origin(arguments[0]) or arguments[0]) not in (
        str,
        int,
        bytes,
        tuple,
    ):
        raise InvalidPipeline(
            f"{where}: a Map's key is str, int, bytes or a tuple of those, not {arguments[0]!r}"
        )
