"""The fingerprint of a pipeline, made from source text and wiring, not from pickle bytes.

A plan carries it. A driver that recovers an open plan with another fingerprint voids that plan,
because the plan could not be repeated with the new code.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import CodeType
from typing import Any

import xxhash

from headrace.pipeline.graph.graph import EXACTLY_ONCE, Graph, Shed, To


def fingerprint(graph: Graph) -> str:
    """Sixteen hex digits that change when the meaning of the pipeline may have changed."""
    lines = [graph.name]
    if graph.guarantee != EXACTLY_ONCE:
        lines.append(f"guarantee {graph.guarantee}")
    for injector in graph.injectors.values():
        source = injector.source
        lines.append(f"read {injector.stream} {source.describe()} {_policy(injector.errors)}")
        timing = source.timing
        lines.extend(f"timing {k}={text_of(getattr(timing, k))}" for k in timing.__slots__)
    for node in graph.nodes.values():
        cls = type(node.template)
        lines.append(
            f"compute {node.name} {cls.__qualname__} {dict(node.outputs)} {node.percentile}"
        )
        lines.append(f"policies {_policy(node.late)} {_policy(node.errors)} {node.strong}")
        if node.guarantee != EXACTLY_ONCE:
            lines.append(f"guarantee {node.guarantee}")
        if isinstance(node.overload, Shed):
            lines.append(f"shed by {text_of(node.overload.priority)}")
        lines.extend(_class_text(base) for base in cls.__mro__[:-1])
        lines.extend(f"parameter {k}={text_of(v)}" for k, v in sorted(vars(node.template).items()))
        for given in node.inputs:
            key = given.key
            lines.append(f"input {given.stream} {key.columns} {text_of(key.function)}")
    lines.extend(
        f"write {outlet.stream} {type(outlet.sink).__qualname__}"
        for outlet in graph.outlets.values()
    )
    lines.extend(sorted(graph.feedback))
    lines.extend(f"schema {stream} {schema!r}" for stream, schema in sorted(graph.schemas.items()))
    return xxhash.xxh3_64_hexdigest("\n".join(lines).encode())


def _policy(policy: str | To) -> str:
    if not isinstance(policy, To):
        return policy
    return f"to {policy.stream} {[kind.__qualname__ for kind in policy.only]} {policy.limit}"


def _class_text(cls: type) -> str:
    # Built-in classes do not change while a process lives, and parsing files takes time.
    return _house_text(cls) if cls.__module__.startswith("headrace.") else _source_text(cls)


@functools.lru_cache(maxsize=1000)
def _house_text(cls: type) -> str:
    return _source_text(cls)


def _source_text(cls: type) -> str:
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        functions = (f for f in vars(cls).values() if callable(f))
        return cls.__qualname__ + "".join(sorted(text_of(f) for f in functions))


def text_of(value: Any) -> str:
    """A value as text that changes with its meaning: of a function its source text."""
    if inspect.isfunction(value):
        return _function_text(value)
    if isinstance(value, tuple):
        return f"({', '.join(text_of(part) for part in value)})"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{f.name}={text_of(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__qualname__}({', '.join(parts)})"
    if isinstance(value, str | int | float | bool | bytes | type(None)):
        return repr(value)
    named = callable(value) and hasattr(value, "__qualname__")  # str.lower, a class
    return f"{getattr(value, '__module__', '')}.{value.__qualname__}" if named else _kind(value)


def _kind(value: Any) -> str:
    return type(value).__qualname__


def _function_text(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return function.__qualname__ + _code_text(function.__code__)


def _code_text(code: CodeType) -> str:
    constants = (_constant_text(constant) for constant in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} {' '.join(constants)}"


def _constant_text(constant: Any) -> str:
    """The same in every process: a set is walked in an order that depends on the hash seed."""
    if isinstance(constant, CodeType):
        return _code_text(constant)
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
