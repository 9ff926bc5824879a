"""`ctx.call` and `ctx.call_many`: calls of user functions that use the outside, as questions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, Sequence, Set
from functools import lru_cache, reduce
from operator import or_
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from headrace.causal import outside
from headrace.causal.questions import Asker, Batching, Question, digest, encode_plain
from headrace.errors import HeadraceError, InvalidPipeline
from headrace.model.services import Call, CallMany, CallOptions, Result, options_of
from headrace.model.values.codec import Codec


class FunctionService(Call):
    """`ctx.call` of one context."""

    def __init__(self, context: Asker) -> None:
        self._context = context

    def __call__(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        service = _service(function)
        if service.options.batch and len(args) != 1:
            raise TypeError(
                f"ctx.call({service.name}): a service with batch= takes one request for each call, "
                f"not {len(args)}; put what belongs together into one list or dict"
            )
        question = _question(service, args, kwargs, f"ctx.call({service.name})")
        answer: Result = service.codec.decode(self._context.ask(question))
        return answer


class ManyFunctionService(CallMany):
    """`ctx.call_many` of one context."""

    def __init__(self, context: Asker) -> None:
        self._context = context

    def __call__(
        self,
        function: Callable[..., Any],
        requests: Iterable[Any],
        /,
        *,
        errors: str = "raise",
        **kwargs: Any,
    ) -> list[Any]:
        service = _service(function)
        where = f"ctx.call_many({service.name})"
        if errors not in ("raise", "return"):
            raise ValueError(f'{where}: errors= is "raise" or "return", not {errors!r}')
        listed = _listed(requests)
        if listed is None:
            raise TypeError(f"{where}: requests are a list, not {type(requests).__name__}")
        questions = [
            _question(service, (request,), kwargs, f"{where}, request {i}")
            for i, request in enumerate(listed)
        ]
        found = self._context.ask_many(questions)
        if errors == "raise":
            for one in found:
                if isinstance(one, HeadraceError):
                    raise one
        decode = service.codec.decode
        return [one if isinstance(one, HeadraceError) else decode(one) for one in found]


class _Service(NamedTuple):
    """The inspected signature and options of a function."""

    function: Callable[..., Any]
    name: str
    what: str
    options: CallOptions
    codec: Codec
    """How its result, or one of its results, is encoded."""
    key_parameter: str
    """Its parameter for the idempotency key or keys; empty if it has none."""

    def encoded(self, result: Any) -> bytes:
        """A result as bytes."""
        try:
            return self.codec.encode(result)
        except TypeError as error:
            raise outside.Unusable(f"its result is {error}") from None


class _FunctionCall(Question):
    """One call of a function, as a question."""

    __slots__ = ("_args", "_kwargs", "_kwargs_asked", "_service")

    def __init__(
        self,
        service: _Service,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        asked: bytes,
        kwargs_asked: bytes,
    ) -> None:
        self._service, self._args, self._kwargs = service, args, kwargs
        self._kwargs_asked = kwargs_asked
        self.what, self.options = service.what, service.options
        self.request = digest(asked)
        self.repeats, self.sends_key = False, bool(service.key_parameter)

    @property
    def batching(self) -> Batching:
        options = self.options
        group = (self._service.function, self._kwargs_asked)
        return Batching(group, options.batch or 1, options.in_flight)

    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        service, given = self._service, self._kwargs
        if service.key_parameter:
            given = {service.key_parameter: key(), **given}
        one.begin()
        return service.encoded(service.function(*self._args, **given))

    def perform_many(
        self, asked: Sequence[tuple[Question, Callable[[], str]]], one: outside.Try
    ) -> Sequence[bytes | Exception]:
        service, given = self._service, self._kwargs
        if not self.options.batch:
            return [question.perform(key, one) for question, key in asked]
        if service.key_parameter:
            given = {service.key_parameter: [key() for _, key in asked], **given}
        requests = [q._args[0] for q, _ in asked if isinstance(q, _FunctionCall)]
        one.begin()
        results = service.function(requests, **given)
        listed = _listed(results)
        if listed is None:
            raise outside.Unusable(
                f"it takes a batch, so its result is a list with one answer for each request, not "
                f"{type(results).__name__}"
            )
        if len(listed) != len(requests):
            raise outside.Unusable(
                f"it gave {len(listed)} answers to {len(requests)} requests, so no answer can be "
                "told from another; it must give one for each, in their order, or an exception in "
                "the place of one that failed"
            )
        return [self._answer(result) for result in listed]

    def _answer(self, result: Any) -> bytes | Exception:
        if isinstance(result, Exception):
            return result
        try:
            return self._service.encoded(result)
        except Exception as error:
            return error


def _question(
    service: _Service, args: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> _FunctionCall:
    try:
        asked = encode_plain((service.name, args, kwargs))
        with_others = encode_plain(kwargs) if kwargs else b""
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{where}: its arguments must be plain data, as they are part of what is logged: "
            f"{error}"
        ) from None
    return _FunctionCall(service, args, kwargs, asked, with_others)


def _listed(given: Any) -> list[Any] | None:
    """A list, an array of numpy or Arrow, or a column of a DataFrame; None for anything else."""
    for name in ("to_pylist", "tolist", "to_list"):
        if hasattr(given, name):
            found = getattr(given, name)()
            return found if isinstance(found, list) else None
    # A set has no order, and a DataFrame would give the names of its columns. Of a dict, the keys
    # and the pairs are sets to Python, but have its order.
    others = (str, bytes, bytearray, Mapping, Set)
    ordered = isinstance(given, KeysView | ItemsView) or not isinstance(given, others)
    if isinstance(given, Iterable) and ordered:
        return None if hasattr(given, "columns") else list(given)
    return None


@lru_cache(maxsize=1000)
def _service(function: Callable[..., Any]) -> _Service:
    """Inspects a function before its first call."""
    options = options_of(function)
    try:
        declared = get_type_hints(function).get("return", Any)
    except (TypeError, NameError):
        declared = Any
    if options.batch:
        declared = _one_of(declared)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    codec = Codec(type(None) if declared is None else declared, where=f"the result of {name}")
    try:
        parameters = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = set()
    right, wrong = "idempotency_key", "idempotency_keys"
    if options.batch:
        right, wrong = wrong, right
        if wrong in parameters:
            raise InvalidPipeline(
                f"service {name!r} takes batches, so it gets a list: call its parameter {right}, "
                f"not {wrong}"
            )
    key_parameter = right if right in parameters else ""
    return _Service(function, name, f"service {name!r}", options, codec, key_parameter)


def _one_of(declared: Any) -> Any:
    """The type of one answer of a function that returns a list of answers, without exceptions."""
    if get_origin(declared) not in (list, Sequence, Iterable, tuple):
        return Any
    found = get_args(declared)[0]
    if get_origin(found) in (Union, UnionType):
        kept = [
            k for k in get_args(found) if not (isinstance(k, type) and issubclass(k, Exception))
        ]
        return reduce(or_, kept) if kept else Any
    return found
