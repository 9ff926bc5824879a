"""The `ctx` of computations that call the outside, or that feed one that does.

It knows what caused the running hook, so that calls and productions have names that
a rerun finds again. Only pipelines that use `ctx.http` or `ctx.call` have it.

- Calls logged before use are named by computation, stream, key, cause and the
  ordinal among such calls of the hook; the others by plan, computation, key, hook
  and ordinal. The two count apart: an answer that changes from one try to the next
  must not shift the names of calls that must not repeat.
- Within a task a name is asked once, though the key's hooks may run again.
"""

from __future__ import annotations

import hashlib
import inspect
import json as jsons
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import msgspec

from headrace.causal import outside
from headrace.causal.journal import Journal
from headrace.causal.lineage import production_identity
from headrace.errors import CorruptCheckpoint, Fenced, NondeterministicCode, StoreError
from headrace.log import paths
from headrace.model.codec import Codec
from headrace.model.context import Result
from headrace.model.services import (
    BEFORE_USE,
    GET,
    POST,
    CallOptions,
    Http,
    Response,
    call_options,
    options_of,
)
from headrace.model.time import Instant, instant
from headrace.pipeline.graph import Node
from headrace.plan.epoch import Determinant
from headrace.worker.context import HookContext, Outputs, TimerChanges
from headrace.worker.emitter import Emitter

BROKEN = (StoreError, Fenced, CorruptCheckpoint, NondeterministicCode)
"""Errors of a call that are nobody's answer: the task cannot go on."""


def is_traced(emitter: Emitter, node: Node) -> bool:
    """Whether a computation must know what causes its hooks."""
    needing = emitter.runtime.topology.needs_identity
    return node.services or not needing.isdisjoint(node.emitted())


class TracedContext(HookContext):
    """`ctx` of hooks whose causes are known."""

    def __init__(
        self,
        emitter: Emitter,
        node: Node,
        outputs: Outputs,
        timers: TimerChanges | None,
        origin: bytes,
    ) -> None:
        super().__init__(emitter, node, outputs, timers, origin)
        plan = emitter.task.plan
        directory = paths.determinants_directory(plan.determinants)
        self._journal = Journal(emitter.runtime.store, directory) if plan.determinants else None
        self._plan_name = f"{plan.epoch}.{plan.wall}.{plan.seed}"
        self._services_allowed = node.services
        self._asking = _Asking(self)
        self.cause = b""
        """The identity of the record or timer that runs."""
        self.cause_stream = ""
        self._hook_here: tuple[bytes, int] | None = None
        self._produced = 0
        self._ordinals = {True: 0, False: 0}

    def enter(self, key: Any, key_bytes: bytes) -> None:
        super().enter(key, key_bytes)
        self._hook_here = None

    def caused_by(self, stream: str, identity: bytes) -> None:
        """The next hook's cause: a record of `stream`, or, without one, a timer."""
        self.cause_stream, self.cause = stream, identity

    def _begin_hook(self) -> None:
        here = (self.key_bytes, self.hook)
        if self._hook_here != here:
            self._hook_here = here
            self._produced = 0
            self._ordinals = {True: 0, False: 0}

    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        self._begin_hook()
        at = self.time if timestamp is None else instant(timestamp, what="produce: timestamp=")
        identity = production_identity(self._name, self._own_key(), self.cause, self._produced)
        self._produced += 1
        self._outputs.add(value, to, at, self._origin + identity)

    def _own_key(self) -> bytes:
        """The key's bytes; without key nothing, as a label depends on how the input is cut."""
        return b"" if self._timers is None else self.key_bytes

    # Calls ----------------------------------------------------------------

    @property
    def http(self) -> Http:
        return self._asking

    def call(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        options = options_of(function)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        codec, wants_key = _signature(function)
        try:
            asked = msgspec.msgpack.encode([name, args, kwargs], order="deterministic")
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(
                f"ctx.call({name}): its arguments must be plain data, as they are part of what is "
                f"logged: {error}"
            ) from None

        def perform(key: str) -> bytes:
            given = {"idempotency_key": key, **kwargs} if wants_key else kwargs
            result = function(*args, **given)
            try:
                return codec.encode(result)
            except TypeError as error:
                raise outside.Unusable(f"its result is {error}") from None

        return codec.decode(self.ask(f"service {name!r}", asked, options, perform, repeats=False))

    def ask(
        self,
        what: str,
        asked: bytes,
        options: CallOptions,
        perform: Callable[[str], bytes],
        *,
        repeats: bool,
    ) -> bytes:
        """One call: its answer, as bytes; ServiceError where it came to something else."""
        if not self._services_allowed:
            raise self._unseen("http and ctx.call")
        try:
            outcome = self._outcome(what, asked, options, perform, repeats)
        except BROKEN as error:
            self._emitter.broken = error
            raise
        outside.raised(outcome)
        return outcome.value

    def _outcome(
        self,
        what: str,
        asked: bytes,
        options: CallOptions,
        perform: Callable[[str], bytes],
        repeats: bool,
    ) -> Determinant:
        self._begin_hook()
        first = options.log == BEFORE_USE
        ordinal = self._ordinals[first]
        self._ordinals[first] += 1
        in_plan = f"{self._name}:{self.key_bytes.hex()}:{self.hook}:{ordinal}"
        by_cause = (
            f"{self._name}:{self.cause_stream}:{self._own_key().hex()}:{self.cause.hex()}"
            f":{'once' if first else 'each'}:{ordinal}"
        )
        lasting = f"{self._plan_name}:{in_plan}" if repeats else by_cause
        checkpoint = self._emitter.task.checkpoint
        key = str(uuid.UUID(bytes=_digest(checkpoint.encode(), lasting.encode())))
        request = _digest(asked).hex()
        if not first:
            return self._with_commit(in_plan, request, what, options, lambda: perform(key))
        if self._journal is None:
            raise StoreError("this plan was made without a place for answers from outside")
        if self._emitter.task.answers is not None:
            logged = self._journal.known(lasting, request)
            if logged is None:
                raise NondeterministicCode(
                    f"{what}: no answer to it is logged, so the epoch did not ask this the first "
                    "time, and a replay never calls the outside"
                )
            return logged
        return self._journal.once(
            lasting,
            request,
            options,
            lambda deadline: outside.tried(
                lasting, request, what, options, lambda: perform(key), deadline=deadline
            ),
        )

    def _with_commit(
        self, name: str, request: str, what: str, options: CallOptions, call: Callable[[], bytes]
    ) -> Determinant:
        emitter = self._emitter
        known = emitter.determinants.get(name)
        if known is None:
            logged = emitter.task.answers
            if logged is None:
                known = outside.tried(name, request, what, options, call)
            else:
                found = {d.name: d for d in logged.get(emitter.label, ())}
                known = found.get(name)
        if known is None or known.request != request:
            raise NondeterministicCode(
                f"{what} was asked for something that it was not asked for the first time: does "
                "the code use the clock or dice other than ctx.now() and ctx.random?"
            )
        emitter.determinants[name] = known
        return known


class _Asking(Http):
    """`ctx.http` of one context."""

    def __init__(self, context: TracedContext) -> None:
        self._context = context

    def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        return self._send("GET", url, headers or {}, None, call_options(GET, where=url, **options))

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
        return self._send("POST", url, sent, body, call_options(POST, where=url, **options))

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        options: CallOptions,
    ) -> Response:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"ctx.http: {url[:100]!r} is not an address of http or https")
        timeout = options.timeout_us / 1e6

        def perform(key: str) -> bytes:
            sent = {"Idempotency-Key": key, **headers}
            return outside.fetch(outside.Request(method, url, sent, body), timeout)

        # Headers are no part of what is asked: a token that was renewed is the same request.
        asked = msgspec.msgpack.encode([method, url, body])
        what = outside.Request(method, url, {}).what()
        repeats = method == "GET"
        return outside.response(self._context.ask(what, asked, options, perform, repeats=repeats))


@lru_cache(maxsize=1000)
def _signature(function: Callable[..., Any]) -> tuple[Codec, bool]:
    """How a function's result is encoded, and whether it takes the idempotency key."""
    try:
        declared = get_type_hints(function).get("return", Any)
    except (TypeError, NameError):
        declared = Any
    name = getattr(function, "__qualname__", repr(function))
    codec = Codec(type(None) if declared is None else declared, where=f"the result of {name}")
    try:
        wants_key = "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        wants_key = False
    return codec, wants_key


def _digest(*parts: bytes) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()
