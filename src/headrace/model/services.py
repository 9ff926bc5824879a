"""The interface of outside services: `ctx.http`, `ctx.call` and `@service`.

A call is logged in one of two ways. *Before use*: its answer is durable before the hook sees it, so
the service is called once even if the task, the executor or the driver dies. *With the commit*: its
answer is part of the epoch's commit, and the call needs no extra write. A retried task calls again;
the results of its first attempt were not visible.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

import msgspec

from headrace.errors import InvalidPipeline, ServiceError
from headrace.model.values.time import Duration, duration

BEFORE_USE, WITH_COMMIT = "before use", "with the commit"
RAISE, AGAIN = "raise", "again"
BACKOFF_MAX_US = 30_000_000
BATCH_MAX = 10_000
IN_FLIGHT_MAX = 64

_OPTIONS = "__headrace_service__"

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Kind = TypeVar("Kind")


class CallOptions(msgspec.Struct, frozen=True):
    """How a service is called."""

    timeout_us: int = 30_000_000
    """How long one try may take. 0: no limit, and the call runs in the hook's own thread."""
    retries: int = 0
    """How often a failed try is repeated. All tries send the same Idempotency-Key."""
    backoff_us: int = 100_000
    """The pause before the first retry. It doubles with each retry, up to 30 s."""
    log: str = BEFORE_USE
    uncertain: str = RAISE
    """For calls logged before use, if a caller died during a try: raise CallUncertain, or retry."""
    batch: int = 0
    """The most requests that the function takes at once, as a list. 0: it takes one request."""
    in_flight: int = 1
    """How many batches (without `batch`: calls of a `call_many`) are under way at once."""

    @property
    def doubts(self) -> bool:
        """Whether a call that may have reached the service is uncertain, and not failed."""
        return self.log == BEFORE_USE and self.uncertain == RAISE

    def pause_us(self, number: int) -> int:
        """The backoff before retry `number`, counted from 1."""
        return min(self.backoff_us << (number - 1), max(self.backoff_us, BACKOFF_MAX_US))

    def longest_us(self) -> int:
        """The maximum duration of all tries and pauses together."""
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
    """`base` with the given options instead of its own, checked."""
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
    batch: int | None = None,
    in_flight: int | None = None,
) -> _Register: ...
def service(function: Any = None, **options: Any) -> Any:
    """Declares how `ctx.call` calls a function. The return annotation gives the type of its result.

    - `timeout`: of one try ("30s"). A call that is logged with the commit has none by default, as
      it delays only its own task.
    - `retries`: how many more tries (0). `backoff`: the first pause between tries.
    - `log`: "before use" (default) or "with the commit".
    - `uncertain`: "raise" (default) or "again", if a try may or may not have reached the service.
    - `batch`: the function takes a list of up to so many requests, and returns a list with one
      answer for each, or an exception in the place of one that failed. `ctx.call` and
      `ctx.call_many` still give single requests.
    - `in_flight`: how many batches are under way at once in a slot (1). Without `batch`, how many
      calls of a `ctx.call_many`.

    A parameter called `idempotency_key` gets the key of the call: the same on every retry. With
    `batch`, `idempotency_keys` gets the list of them. A
    function that raises has failed, and may be called again when the run starts again. A function
    that cannot know whether it reached the service raises CallUncertain. TimeoutError,
    ConnectionResetError, ConnectionAbortedError and BrokenPipeError mean the same.
    """

    def register(found: Any) -> Any:
        where = f"@service of {getattr(found, '__qualname__', found)!r}"
        base = CALL
        limits = {"batch": (options.pop("batch", None), BATCH_MAX)}
        limits["in_flight"] = (options.pop("in_flight", None), IN_FLIGHT_MAX)
        for name, (given, most) in limits.items():
            if given is not None and (type(given) is not int or not 1 <= given <= most):
                raise InvalidPipeline(
                    f"{where}: {name}= is a number from 1 to {most:,}, not {given!r}"
                )
        if options.get("log") == WITH_COMMIT:
            # Only the hook waits for its result, so it needs no time limit. A call in the hook's
            # own thread costs a tenth of a call in another thread.
            base = msgspec.structs.replace(CALL, timeout_us=0)
        base = msgspec.structs.replace(
            base, **{name: given for name, (given, _) in limits.items() if given is not None}
        )
        setattr(found, _OPTIONS, call_options(base, where=where, **options))
        return found

    return register if function is None else register(function)


def options_of(function: Callable[..., Any]) -> CallOptions:
    """The call options of a function."""
    found = getattr(function, _OPTIONS, CALL)
    return found if isinstance(found, CallOptions) else CALL


class Response(msgspec.Struct, frozen=True):
    """The answer of a web server. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status means success."""
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
    """`ctx.http`. A status of 400 or more is an answer, not a failure: check `.status`.

    `retries` repeats a failed try, and a try that was answered with 429, 502, 503 or 504. The
    pauses begin with `backoff` and double. All tries send the same Idempotency-Key. If no try was
    answered, and one may have reached the server, a POST is uncertain, not failed.
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

        With `retries`, a try that may have reached the server is repeated as well. Use it if the
        server treats two requests with one Idempotency-Key as one request.
        """


class Call(ABC):
    """The type of `ctx.call`."""

    @abstractmethod
    def __call__(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        """Calls a function of the outside world; a replay gets what it returned, or raised."""


class CallMany(ABC):
    """The type of `ctx.call_many`."""

    @abstractmethod
    def __call__(
        self,
        function: Callable[..., Any],
        requests: Iterable[Any],
        /,
        *,
        errors: str = "raise",
        **kwargs: Any,
    ) -> list[Any]:
        """Calls a function of the outside world for every request; returns the answers in order.

        Each request is one call, with its own idempotency key and its own logged outcome, as with
        `ctx.call`. A service with `batch=` gets them in lists of at most that size.

        `errors="raise"` (default) raises the first failure, after all calls were made.
        `errors="return"` gives the `ServiceError` or `CallUncertain` in the place of the answer.
        """


class OutsideService(Generic[Kind]):
    """An attribute of `ctx` that calls the outside world.

    Declaring one on a context registers its name: computations that mention the name are prepared
    for calls. The context provides the implementation, or refuses it (`outside(name)`).
    """

    names: ClassVar[set[str]] = set()
    """The names of all declared services."""

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
        # Store it on the context, so that the next access does not come here.
        found = vars(context)[self._name] = context.outside(self._name)
        return found
