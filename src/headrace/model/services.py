"""The outside world, as hooks reach it: `ctx.http`, `ctx.call` and `@service`.

A call is logged in one of two ways. *Before use*: its answer is durable before the
hook sees it, so the outside is reached once although the task, the executor or the
driver dies. *With the commit*: its answer travels with the epoch and costs no write
on the path; a retried task calls again, and nothing of its first try was visible.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

import msgspec

from headrace.errors import InvalidPipeline, ServiceError
from headrace.model.values.time import Duration, duration

BEFORE_USE, WITH_COMMIT = "before use", "with the commit"
RAISE, AGAIN = "raise", "again"
BACKOFF_MAX_US = 30_000_000

_OPTIONS = "__headrace_service__"

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Kind = TypeVar("Kind")


class CallOptions(msgspec.Struct, frozen=True):
    """How a service is called."""

    timeout_us: int = 30_000_000
    """How long one try may take; 0 is no limit, and then it runs in the hook's own thread."""
    retries: int = 0
    """How often a failed try is repeated. Each repeats the same Idempotency-Key."""
    backoff_us: int = 100_000
    """The pause before the first repetition; it doubles from one to the next, up to 30 s."""
    log: str = BEFORE_USE
    uncertain: str = RAISE
    """Of calls logged before use, where a try died half-way: raise CallUncertain, or call again."""

    @property
    def doubts(self) -> bool:
        """Whether a call that may have got through is an uncertain one, and not a failed one."""
        return self.log == BEFORE_USE and self.uncertain == RAISE

    def pause_us(self, number: int) -> int:
        """How long to wait before repetition `number`, from 1."""
        return min(self.backoff_us << (number - 1), max(self.backoff_us, BACKOFF_MAX_US))

    def longest_us(self) -> int:
        """How long all tries and pauses together may take."""
        pauses = sum(self.pause_us(number) for number in range(1, self.retries + 1))
        return self.timeout_us * (self.retries + 1) + pauses


GET = CallOptions(10_000_000, 2, log=WITH_COMMIT, uncertain=AGAIN)
POST = CallOptions(10_000_000)
CALL = CallOptions()


def call_options(
    base: CallOptions,
    *,
    where: str,
    timeout: Duration | None = None,
    retries: int | None = None,
    backoff: Duration | None = None,
    log: str | None = None,
    uncertain: str | None = None,
) -> CallOptions:
    """`base` with what was given in its place, checked."""
    if log not in (None, BEFORE_USE, WITH_COMMIT):
        raise InvalidPipeline(f'{where}: log= is "{BEFORE_USE}" or "{WITH_COMMIT}", not {log!r}')
    if uncertain not in (None, RAISE, AGAIN):
        raise InvalidPipeline(f'{where}: uncertain= is "{RAISE}" or "{AGAIN}", not {uncertain!r}')
    if retries is not None and (type(retries) is not int or not 0 <= retries <= 20):
        raise InvalidPipeline(f"{where}: retries= is a number from 0 to 20, not {retries!r}")
    changes: dict[str, Any] = {"retries": retries, "log": log, "uncertain": uncertain}
    if timeout is not None:
        changes["timeout_us"] = duration(timeout, what=f"{where}: timeout=")
        if changes["timeout_us"] <= 0:
            raise InvalidPipeline(f"{where}: timeout= is longer than nothing, not {timeout!r}")
    if backoff is not None:
        changes["backoff_us"] = duration(backoff, what=f"{where}: backoff=")
    given = {name: value for name, value in changes.items() if value is not None}
    return msgspec.structs.replace(base, **given) if given else base


class _Register(Protocol):
    def __call__(self, function: Function) -> Function: ...


@overload
def service(function: Function) -> Function: ...
@overload
def service(
    *,
    timeout: Duration | None = None,
    retries: int | None = None,
    backoff: Duration | None = None,
    log: str | None = None,
    uncertain: str | None = None,
) -> _Register: ...
def service(function: Any = None, **options: Any) -> Any:
    """Says how `ctx.call` calls a function; its result decodes by the return annotation.

    - `timeout`, `retries`, `backoff`: of one try ("30s"; none where logged with the commit, as
      such a call holds up nobody but its own task), how many more (0), the first pause.
    - `log`: "before use" (default) or "with the commit".
    - `uncertain`: "raise" (default) or "again", where a try may or may not have got through.

    A parameter called `idempotency_key` gets the call's own: the same on every retry. A function
    that raises has failed, and may be called again when the run starts again. One that cannot
    know whether it got through raises CallUncertain; TimeoutError, ConnectionResetError,
    ConnectionAbortedError and BrokenPipeError mean that too.
    """

    def register(found: Any) -> Any:
        where = f"@service of {getattr(found, '__qualname__', found)!r}"
        base = CALL
        if options.get("log") == WITH_COMMIT:
            # Nothing waits for its result but the hook: it need not end in time, and a call that
            # runs in the hook's own thread costs a tenth.
            base = msgspec.structs.replace(CALL, timeout_us=0)
        setattr(found, _OPTIONS, call_options(base, where=where, **options))
        return found

    return register if function is None else register(function)


def options_of(function: Callable[..., Any]) -> CallOptions:
    """How a function is to be called."""
    found = getattr(function, _OPTIONS, CALL)
    return found if isinstance(found, CallOptions) else CALL


class Response(msgspec.Struct, frozen=True):
    """What a web server answered. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text, by the charset that the server named (UTF-8 if none)."""
        _, _, charset = self.headers.get("content-type", "").partition("charset=")
        try:
            return self.body.decode(charset.split(";")[0].strip(' "') or "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; a body that is not JSON is a ServiceError."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ServiceError(f"the answer (status {self.status}) is not JSON: {error}") from None


class Http(ABC):
    """`ctx.http`. A status of 400 or more is an answer, not a failure: look at `.status`.

    `retries` repeats a failed try, and one that was answered with 429, 502, 503 or 504, after
    pauses that begin with `backoff` and double. All tries send the same Idempotency-Key. Where no
    try was answered and one may have got through, a POST is uncertain, and not failed.
    """

    @abstractmethod
    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        retries: int | None = None,
        backoff: Duration | None = None,
        log: str | None = None,
        uncertain: str | None = None,
    ) -> Response:
        """Fetches `url`. By default 10 s a try, two retries, logged with the commit."""

    @abstractmethod
    def post(
        self,
        url: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        retries: int | None = None,
        backoff: Duration | None = None,
        log: str | None = None,
        uncertain: str | None = None,
    ) -> Response:
        """Posts `json` or `body`. By default 10 s, no retry, logged before use.

        With `retries` a try that may have got through is repeated as well: ask for it where the
        server takes two requests of one Idempotency-Key for one.
        """


class Call(ABC):
    """`ctx.call`."""

    @abstractmethod
    def __call__(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        """Calls a function of the outside world; a replay gets what it returned, or raised."""


class OutsideService(Generic[Kind]):
    """An attribute of `ctx` that reaches the outside world.

    To declare one on a context makes its name known: computations that mention it are prepared for
    calls. The context itself decides what stands behind it, or refuses it (`outside(name)`).
    """

    names: ClassVar[set[str]] = set()
    """The names of all that are declared."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self.names.add(name)

    @overload
    def __get__(self, context: None, owner: type) -> OutsideService[Kind]: ...
    @overload
    def __get__(self, context: object, owner: type) -> Kind: ...
    def __get__(self, context: Any, owner: type) -> Any:
        if context is None:
            return self
        # Kept on the context, where the next look finds it without coming here.
        found = vars(context)[self._name] = context.outside(self._name)
        return found
