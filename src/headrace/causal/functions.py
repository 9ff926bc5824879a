"""`ctx.call`: calls of user functions that use the outside world, as questions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, get_type_hints

from headrace.causal import outside
from headrace.causal.questions import Asker, Question, digest, encode_plain
from headrace.model.services import Call, CallOptions, Result, options_of
from headrace.model.values.codec import Codec


class FunctionService(Call):
    """`ctx.call` of one context."""

    def __init__(self, context: Asker) -> None:
        self._context = context

    def __call__(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        service = _service(function)
        try:
            asked = encode_plain((service.name, args, kwargs))
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(
                f"ctx.call({service.name}): its arguments must be plain data, as they are part of "
                f"what is logged: {error}"
            ) from None
        question = _FunctionCall(service, args, kwargs, asked)
        answer: Result = service.codec.decode(self._context.ask(question))
        return answer


class _Service(NamedTuple):
    """The inspected signature and options of a function."""

    function: Callable[..., Any]
    name: str
    what: str
    options: CallOptions
    codec: Codec
    """How its result is encoded."""
    wants_key: bool
    """Whether the function has a parameter for the idempotency key."""


class _FunctionCall(Question):
    """One call of a function, as a question."""

    __slots__ = ("_args", "_kwargs", "_service")

    def __init__(
        self, service: _Service, args: tuple[Any, ...], kwargs: dict[str, Any], asked: bytes
    ) -> None:
        self._service, self._args, self._kwargs = service, args, kwargs
        self.what, self.options = service.what, service.options
        self.request = digest(asked)
        self.repeats, self.sends_key = False, service.wants_key

    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        service, given = self._service, self._kwargs
        if service.wants_key:
            given = {"idempotency_key": key(), **given}
        one.begin()
        result = service.function(*self._args, **given)
        try:
            return service.codec.encode(result)
        except TypeError as error:
            raise outside.Unusable(f"its result is {error}") from None


@lru_cache(maxsize=1000)
def _service(function: Callable[..., Any]) -> _Service:
    """Inspects a function before its first call."""
    try:
        declared = get_type_hints(function).get("return", Any)
    except (TypeError, NameError):
        declared = Any
    name = getattr(function, "__qualname__", type(function).__qualname__)
    codec = Codec(type(None) if declared is None else declared, where=f"the result of {name}")
    try:
        wants_key = "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        wants_key = False
    return _Service(function, name, f"service {name!r}", options_of(function), codec, wants_key)
