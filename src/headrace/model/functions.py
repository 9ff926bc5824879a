"""Checks the functions that users give, while the pipeline is built.

A call of a generator function or an async function runs none of its code, so such a hook would do
nothing, without an error. Signatures are checked if Python knows them. Builtins and other callables
without a signature are accepted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from headrace.errors import InvalidPipeline

HOOKS: Mapping[str, tuple[str, ...]] = {
    "setup": (),
    "process_record": ("record", "ctx"),
    "process_timer": ("timer", "ctx"),
    "process_table": ("table", "ctx"),
    "process_timers": ("table", "ctx"),
    "combine_table": ("table",),
    "migrate": ("fields", "version"),
}
"""The hooks of a computation and their arguments."""

INSTEAD_OF_YIELD = {
    "process_record": "call ctx.produce(...) instead of yield",
    "process_timer": "call ctx.produce(...) instead of yield",
    "process_table": "call ctx.produce_table(...) instead of yield",
    "process_timers": "call ctx.produce_table(...) instead of yield",
}

INSTEAD_OF_AWAIT = "use ctx.http, or ctx.call with concurrency="


_WRITTEN = (FunctionType, MethodType, type, partial)
"""Types of callables whose signature is written in Python."""


def check_hooks(cls: type) -> None:
    """Raises InvalidPipeline for a hook that cannot be called, or would do nothing."""
    for name, arguments in HOOKS.items():
        hook = inspect.getattr_static(cls, name)
        bound = isinstance(hook, staticmethod | classmethod)
        function = getattr(cls, name) if bound else hook
        if not inspect.isroutine(function):
            continue
        what = f"{name} of {cls.__qualname__!r}"
        if is_async(function):
            raise InvalidPipeline(f"{what} is async: {INSTEAD_OF_AWAIT}")
        if inspect.isgeneratorfunction(function):
            advice = INSTEAD_OF_YIELD.get(name, "return instead of yield")
            raise InvalidPipeline(f"{what} is a generator: {advice}")
        bound = bound or name == "migrate"  # it is called on the class
        given = arguments if bound else ("self", *arguments)
        if not takes(function, len(given)):
            hint = ", as a @classmethod behind cls" if name == "migrate" else ""
            raise InvalidPipeline(
                f"{what} takes ({', '.join(given)}){hint}, but is written with "
                f"{inspect.signature(function, follow_wrapped=False)}"
            )


def checked_function(
    function: Any, what: str, *arguments: str, yields: str = "return instead of yield"
) -> Callable[..., Any]:
    """Checks a function of these arguments.

    `yields` is the advice for a generator function; empty if generators are allowed.
    """
    form = f"f({', '.join(arguments)})"
    if not callable(function):
        raise InvalidPipeline(f"{what} takes a function, {form}, not {function!r:.80}")
    if is_async(function):
        raise InvalidPipeline(
            f"{what}: its function is async, and nothing would await it. To call the outside, "
            f"write a Computation: {INSTEAD_OF_AWAIT}"
        )
    called = type(function).__call__ if not isinstance(function, type) else function
    if yields and (inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(called)):
        raise InvalidPipeline(f"{what}: its function is a generator: {yields}")
    if not takes(function, len(arguments)):
        more = "; for ctx write a Computation" if len(arguments) == 1 else ""
        raise InvalidPipeline(
            f"{what} calls its function as {form}, but it is written with "
            f"{inspect.signature(function, follow_wrapped=False)}{more}"
        )
    found: Callable[..., Any] = function
    return found


def is_async(function: Any) -> bool:
    """Whether a call returns an awaitable."""
    asked = [function] if isinstance(function, type) else [function, type(function).__call__]
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in asked)


def takes(function: Any, count: int) -> bool:
    """Whether a function accepts this number of arguments, as far as its signature is known.

    For a wrapper its own parameters count, because the wrapped function may have others.
    """
    written = function if isinstance(function, _WRITTEN) else type(function).__call__
    if not isinstance(written, _WRITTEN):
        return True
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def mentions(owners: list[type], names: frozenset[str]) -> bool:
    """Whether some method of these classes mentions an attribute or a global of these names."""
    todo = [code for cls in owners for f in vars(cls).values() if (code := _code(f)) is not None]
    while todo:
        code = todo.pop()
        if not names.isdisjoint(code.co_names):
            return True
        todo.extend(c for c in code.co_consts if isinstance(c, CodeType))
    return False


def _code(member: Any) -> CodeType | None:
    function = getattr(member, "__func__", member)
    found = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return found if isinstance(found, CodeType) else None
