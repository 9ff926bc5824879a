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


def names_outputs(emitter: Emitter, node: Node) -> bool:
    """Whether somebody downstream must know what a computation's productions came from."""
    return not emitter.runtime.topology.needs_identity.isdisjoint(node.outputs.values())


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
        self._names_outputs = names_outputs(emitter, node)
        self._produced = self._called_once = self._called_each = 0
        self._logged: dict[str, Determinant] | None = None

    def caused_by(self, stream: str, identity: bytes) -> None:
        """A hook begins; its cause is a record of `stream`, or, without one, a timer."""
        self.cause_stream, self.cause = stream, identity
        self._produced = self._called_once = self._called_each = 0

    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        if not self._names_outputs:
            super().produce(value, to=to, timestamp=timestamp)
            return
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

        def perform(key: Callable[[], str]) -> bytes:
            given = {"idempotency_key": key(), **kwargs} if wants_key else kwargs
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
        perform: Callable[[Callable[[], str]], bytes],
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
        perform: Callable[[Callable[[], str]], bytes],
        repeats: bool,
    ) -> Determinant:
        first = options.log == BEFORE_USE
        if first:
            ordinal, self._called_once = self._called_once, self._called_once + 1
        else:
            ordinal, self._called_each = self._called_each, self._called_each + 1
        in_plan = f"{self._name}:{self.key_bytes.hex()}:{self.hook}:{ordinal}"
        request = _digest(asked).hex()
        # Bound now: a try that outlives its timeout may ask when the next hook runs.
        stream, cause, own_key = self.cause_stream, self.cause, self._own_key()

        def lasting() -> str:
            if repeats:
                return f"{self._plan_name}:{in_plan}"
            sort = "once" if first else "each"
            return f"{self._name}:{stream}:{own_key.hex()}:{cause.hex()}:{sort}:{ordinal}"

        def key() -> str:
            """Made only for those who send it."""
            named = _digest(self._emitter.task.checkpoint.encode(), lasting().encode())
            return str(uuid.UUID(bytes=named))

        if not first:
            return self._with_commit(in_plan, request, what, options, lambda: perform(key))
        if self._journal is None:
            raise StoreError("this plan was made without a place for answers from outside")
        name = lasting()
        return self._journal.once(
            name,
            request,
            options,
            lambda deadline: outside.tried(
                name, request, what, options, lambda: perform(key), deadline=deadline
            ),
        )

    def _with_commit(
        self, name: str, request: str, what: str, options: CallOptions, call: Callable[[], bytes]
    ) -> Determinant:
        emitter = self._emitter
        known = emitter.determinants.get(name)
        if known is None:
            if emitter.task.answers is None:
                known = outside.tried(name, request, what, options, call)
            else:
                if self._logged is None:
                    answers = emitter.task.answers.get(emitter.label, ())
                    self._logged = {answer.name: answer for answer in answers}
                known = self._logged.get(name)
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

        def perform(key: Callable[[], str]) -> bytes:
            sent = {"Idempotency-Key": key(), **headers}
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
    joined = b"".join([b"%d:%s" % (len(part), part) for part in parts])
    return hashlib.blake2b(joined, digest_size=16).digest()
