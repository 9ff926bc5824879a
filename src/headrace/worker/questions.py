"""`ctx.http` and `ctx.call`: from what a hook asks for to a question with a name.

What is asked is encoded, so that a rerun that asks something else is found out; only a
digest of it is kept, as it may hold secrets. Who names the question, and where its
answer is logged, is the context's business (`ask`): hooks of records and timers do so in
`calls`, tables in `table`.
"""

from __future__ import annotations

import hashlib
import inspect
import json as jsons
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, get_type_hints

import msgspec

from headrace.causal import outside, web
from headrace.causal.journal import Journal
from headrace.errors import (
    CorruptCheckpoint,
    Fenced,
    InvalidPipeline,
    NondeterministicCode,
    StoreError,
)
from headrace.log import paths
from headrace.model.context import Result
from headrace.model.services import GET, POST, CallOptions, Http, Response, call_options, options_of
from headrace.model.values.codec import Codec
from headrace.plan.epoch import Determinant, unpack_determinants
from headrace.worker.exchange.emitter import Emitter

_plain = msgspec.msgpack.Encoder(order="deterministic")

BROKEN = (StoreError, Fenced, CorruptCheckpoint, NondeterministicCode)
"""Errors of a call that are nobody's answer: the task cannot go on."""


class Question(ABC):
    """What a hook asks of the outside."""

    __slots__ = ("options", "repeats", "request", "sends_key", "what")

    what: str
    """How errors name it, without anything that may be a secret."""
    request: bytes
    """A digest of all that is asked."""
    options: CallOptions
    repeats: bool
    """Whether the same may be asked again under another name: a GET may, all others not."""
    sends_key: bool

    @abstractmethod
    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        """Calls; it is given what makes the idempotency key, for those who send one."""


class Asking(ABC):
    """A context that can ask the outside."""

    @abstractmethod
    def ask(self, question: Question) -> bytes:
        """One call: its answer, as bytes; ServiceError or CallUncertain where there is none."""

    @property
    def http(self) -> Http:
        return _Asking(self)

    def call(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        service = _service(function)
        try:
            asked = _plain.encode((service.name, args, kwargs))
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(
                f"ctx.call({service.name}): its arguments must be plain data, as they are part of "
                f"what is logged: {error}"
            ) from None
        answer: Result = service.codec.decode(self.ask(_Call(service, args, kwargs, asked)))
        return answer


class Answers:
    """The answers that travel with the commit, of one computation in one unit of work."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._logged: dict[str, Determinant] | None = None

    def answer(self, name: str, question: Question, key: Callable[[], str]) -> Determinant:
        """What a call came to: once in a task, though a key's hooks may run again."""
        emitter, request = self._emitter, question.request
        known = emitter.determinants.get(name)
        if known is not None and known.request != request:
            # The key's hooks run again, without a record that had failed. What the first pass was
            # told stays in the log: a replay goes through both.
            name = f"{name}:again"
            known = emitter.determinants.get(name)
        if known is None:
            if emitter.task.answers is None:
                known = outside.tried(
                    name, request, question.what, question.options, partial(question.perform, key)
                )
            else:
                known = self._known(emitter.task.answers).get(name)
        if known is None or known.request != request:
            raise NondeterministicCode(
                f"{question.what} was asked for something that it was not asked for the first "
                "time: does the code use the clock or dice other than ctx.now() and ctx.random?"
            )
        emitter.determinants[name] = known
        return known

    def _known(self, answers: Mapping[str, bytes]) -> dict[str, Determinant]:
        if self._logged is None:
            found = unpack_determinants(answers.get(self._emitter.label, b""))
            self._logged = {determinant.name: determinant for determinant in found}
        return self._logged


def unseen(computation: str, what: str) -> InvalidPipeline:
    """The error of one who asks without having said so."""
    return InvalidPipeline(
        f"{computation!r} uses ctx.{what}, but its class does not mention it, so nothing was made "
        "ready for it: p.compute(..., services=True)"
    )


def plan_name(emitter: Emitter) -> str:
    """What tells an epoch's plan from those that were voided before it."""
    plan = emitter.task.plan
    return f"{plan.epoch}.{plan.wall}.{plan.seed}"


def journal_of(emitter: Emitter) -> Journal | None:
    """Where calls of this plan are logged before use."""
    plan = emitter.task.plan
    if not plan.determinants:
        return None
    directory = paths.determinants_directory(plan.determinants)
    return Journal(emitter.runtime.store, directory, plan.epoch, plan.wall, plan.given_up)


def once(
    emitter: Emitter,
    journal: Journal | None,
    name: str,
    question: Question,
    key: Callable[[], str],
) -> Determinant:
    """What a call that is logged before use came to."""
    if journal is None:
        raise StoreError("this plan was made without a place for answers from outside")
    what, request, options = question.what, question.request, question.options
    if emitter.task.answers is not None:
        logged = journal.known(name, request, options)
        if logged is None:
            raise NondeterministicCode(
                f"{what}: no answer to it is logged, so the epoch did not ask this the first "
                "time, and a replay never calls the outside"
            )
        return logged
    return journal.once(
        name,
        request,
        options,
        lambda deadline: outside.tried(
            name, request, what, options, partial(question.perform, key), deadline=deadline
        ),
    )


def idempotency_key(emitter: Emitter, name: str) -> str:
    """What tells the outside that two requests are one."""
    checkpoint = emitter.task.checkpoint.encode()
    named = b"%d:%s%s" % (len(checkpoint), checkpoint, name.encode())
    return str(uuid.UUID(bytes=digest(named)))


def no_key() -> str:
    """The idempotency key of a question that sends none."""
    raise AssertionError("a question that sends no key asked for one")


def digest(data: bytes) -> bytes:
    """A digest from which nobody finds what was digested."""
    return hashlib.blake2b(data, digest_size=16).digest()


class _Asking(Http):
    """`ctx.http` of one context."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        checked = call_options(GET, where="ctx.http.get", **options)
        return self._send("GET", url, headers or {}, None, checked)

    def post(
        self,
        url: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Response:
        if json is not None and body is not None:
            raise ValueError("ctx.http.post takes json= or body=, not both")
        sent = dict(headers or {})
        if body is None:
            body = jsons.dumps(json).encode()
            sent.setdefault("Content-Type", "application/json")
        checked = call_options(POST, where="ctx.http.post", **options)
        return self._send("POST", url, sent, body, checked)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        options: CallOptions,
    ) -> Response:
        web.check_address(url)
        asked = _Request(web.Request(method, url, headers, body), options)
        return web.response(self._context.ask(asked))


class _Request(Question):
    """A web request."""

    __slots__ = ("_sent",)

    def __init__(self, sent: web.Request, options: CallOptions) -> None:
        # Headers are no part of what is asked: a token that was renewed is the same request.
        self.request = digest(_plain.encode((sent.method, sent.url, sent.body)))
        self.what = sent.what()
        self.options = options
        self.repeats, self.sends_key = sent.method == "GET", True
        self._sent = sent

    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        sent = self._sent
        headers = {"Idempotency-Key": key(), **sent.headers}
        request = web.Request(sent.method, sent.url, headers, sent.body)
        return web.fetch(request, self.options.timeout_us / 1e6, one)


class _Service(NamedTuple):
    """A function of the outside world, looked at once."""

    function: Callable[..., Any]
    name: str
    what: str
    options: CallOptions
    codec: Codec
    """How its result is encoded."""
    wants_key: bool
    """Whether it takes the idempotency key."""


class _Call(Question):
    """A call of a function."""

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
    """All that is known of a function before it is called."""
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
