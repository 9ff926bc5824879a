"""Calls that must not repeat, logged before use (protocol E2).

A call has two kinds of files, both put-if-absent, in a directory that the driver made:

    <name>-1.intent-1    who calls, until when, and what is asked
    <name>-1.result      what came of it, and in which plan

1. A result that is there is the answer, and no call is made. Except a result of which nothing came
   (a failure, a refusal) in a plan that was voided since: no hook that happened has used it. It
   is void, and the call is made again, in its next round: `<name>-2.intent-1`. So is an
   uncertain one of such a plan for those who say that it may be repeated.
2. The intent is put, and read back: only the owner of the nonce that lies there calls.
3. What came of it, a failure too, is put as the result, and used only as read back, when
   it is on disk: that a file exists does not prove it, whoever put it.
4. Whoever finds a stranger's intent waits for its result. Past the intent's deadline
   the call is *uncertain*: then either that is put as the result (CallUncertain), or
   the next intent is put, and its owner calls again.

The window that remains: between the moment in which the outside acts and the moment
in which the result is durable, a death leaves the call uncertain. And an owner that
is frozen after its last look at the clock may call past its deadline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeVar

import msgspec

from headrace.errors import CorruptCheckpoint, Fenced, ServiceError, StoreError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.model.services import AGAIN, CallOptions
from headrace.plan.epoch import Determinant
from headrace.store.store import Store

UNCERTAIN = "uncertain"
IN_DOUBT = (
    'may have got through or not. Look there, or say uncertain="again" where a call may be repeated'
)
SLACK_S = 0.5
"""Beyond the longest that a call may take: time to write its result."""

_INTENT_MAGIC, _RESULT_MAGIC = b"headrace-intent", b"headrace-result"
_POLL_S = 0.02
_PUTS_MAX = 5
_RESULT_PUTS_MAX = _PUTS_MAX + 8
"""Longer: whoever gives up loses an answer that it has, and the call becomes uncertain."""
_PAUSE_MAX_S = 5.0

_Kind = TypeVar("_Kind")


class Intent(msgspec.Struct, frozen=True):
    """Who is going to call, until when (wall time in seconds), and what is asked."""

    name: str
    nonce: str
    deadline: float
    request: bytes


class CallResult(msgspec.Struct, frozen=True):
    """What came of a call, and the plan whose task logged it: its epoch and its wall time."""

    epoch: int
    wall: int
    outcome: Determinant


class TooLate(Exception):
    """The owner of an intent came to its call only past its deadline; it has not called."""


class Journal:
    """The calls of one directory, as a plan sees them."""

    def __init__(
        self,
        store: Store,
        directory: str,
        epoch: int = 0,
        wall: int = 0,
        given_up: Mapping[int, int] | None = None,
    ) -> None:
        """`epoch`, `wall` and `given_up` are those of the plan."""
        self._store, self._directory = store, directory
        self._epoch, self._wall, self._given_up = epoch, wall, given_up or {}
        self._system = store.system

    def once(
        self,
        name: str,
        request: bytes,
        options: CallOptions,
        perform: Callable[[float], Determinant],
    ) -> Determinant:
        """The one outcome of a call; `perform(deadline)` calls, and tells what came of it."""
        for turn in count(1):
            found = self._round(self._file(name, turn), name, request, options, perform)
            if not self._is_void(found, options):
                return _checked(found, name, request)
        raise StoreError("unreachable")  # count() does not end

    def _round(
        self,
        file: str,
        name: str,
        request: bytes,
        options: CallOptions,
        perform: Callable[[float], Determinant],
    ) -> CallResult:
        """What came of one round of a call."""
        for number in count(1):
            known = self._result(file)
            if known is not None:
                return known
            intent, mine = self._intend(f"{file}.intent-{number}", name, request, options)
            if intent.name != name or intent.request != request:
                raise _another_request(name)
            if mine:
                self._refuse_closed()
                reach("after-intent-write")
                try:
                    outcome = perform(intent.deadline)
                except TooLate:
                    pass
                else:
                    reach("after-call")
                    return self._put_result(file, outcome)
            known = self._wait(file, intent.deadline)
            if known is not None:
                return known
            if options.uncertain != AGAIN:
                return self._put_result(file, _uncertain(name, request))
        raise StoreError("unreachable")  # count() does not end

    def known(self, name: str, request: bytes, options: CallOptions) -> Determinant | None:
        """The outcome of a call that was made before; None if none is logged. Never calls."""
        for turn in count(1):
            found = self._result(self._file(name, turn))
            if found is None:
                break
            if not self._is_void(found, options):
                return _checked(found, name, request)
        above, _, own = self._directory.rpartition("/")
        if own not in self._store.list(above):
            raise StoreError(
                f"{self._directory} is not there, so the answer is unknown: is the checkpoint away?"
            )
        return None

    def _is_void(self, found: CallResult, options: CallOptions) -> bool:
        """Whether a result counts for nothing: nothing came of it, and no hook has happened."""
        if found.wall > self._given_up.get(found.epoch, -1):
            return False  # of this plan, of one that is committed, or of one after this one
        outcome = found.outcome
        return outcome.again or (outcome.kind == UNCERTAIN and options.uncertain == AGAIN)

    def _file(self, name: str, turn: int) -> str:
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        return f"{self._directory}/{digest}-{turn}"

    def _result(self, file: str) -> CallResult | None:
        full = f"{file}.result"
        try:
            data = self._store.read(full)
        except FileNotFoundError:
            return None
        found = _decoded(full, unseal(_RESULT_MAGIC, data, full), CallResult)
        try:
            self._store.sync(self._directory)
        except FileNotFoundError:
            raise self._gone() from None
        return found

    def _intend(
        self, full: str, name: str, request: bytes, options: CallOptions
    ) -> tuple[Intent, bool]:
        """The intent that lies there, and whether it is this caller's."""
        deadline = self._system.wall_s() + options.longest_us() / 1e6 + SLACK_S
        intent = Intent(name, self._system.token_hex(8), deadline, request)
        data = self._put(full, seal(_INTENT_MAGIC, msgspec.json.encode(intent)))
        found = _decoded(full, unseal(_INTENT_MAGIC, data, full), Intent)
        return found, found.nonce == intent.nonce

    def _refuse_closed(self) -> None:
        """The directory may have been taken away, and made again by a driver that slept."""
        first = int(self._directory.rpartition("/")[2])
        # In this order: the first goes only when the second is there.
        span = paths.closed_span_marker(first, self._system.limits)
        for marker in (paths.closed_marker(self._directory), span):
            try:
                self._store.read(marker)
            except FileNotFoundError:
                continue
            raise self._gone()

    def _put_result(self, file: str, outcome: Determinant) -> CallResult:
        """Puts a result; gives the one that counts."""
        full = f"{file}.result"
        result = CallResult(self._epoch, self._wall, outcome)
        sealed = seal(_RESULT_MAGIC, msgspec.json.encode(result))
        data = self._put(full, sealed, tries=_RESULT_PUTS_MAX)
        reach("after-result-write")
        return _decoded(full, unseal(_RESULT_MAGIC, data, full), CallResult)

    def _wait(self, file: str, deadline: float) -> CallResult | None:
        """A stranger's result; None where its deadline passed without one."""
        while (known := self._result(file)) is None:
            left = deadline - self._system.wall_s()
            if left <= 0:
                return None
            self._system.sleep(min(_POLL_S, left))
        return known

    def _put(self, full: str, data: bytes, *, tries: int = _PUTS_MAX) -> bytes:
        """Puts a file if absent; gives what lies there then. An unknown outcome is settled."""
        failure: Exception | None = None
        for attempt in range(tries):
            try:
                mine = self._store.put_if_absent(full, data)
            except FileNotFoundError:
                raise self._gone() from None
            except (OSError, StoreError) as error:
                failure, mine = error, False
            try:
                found = self._store.read(full)
                if not mine:
                    self._store.sync(self._directory)
                return found
            except (OSError, StoreError) as error:
                failure = failure or error
            self._system.sleep(min(_PAUSE_MAX_S, 0.05 * 2**attempt))
        raise StoreError(f"{full} could not be written: {failure}") from failure

    def _gone(self) -> Fenced:
        return Fenced(
            f"{self._directory} was removed: this task belongs to an epoch that is long closed, "
            "and must not call the outside"
        )


def _checked(found: CallResult, name: str, request: bytes) -> Determinant:
    """The outcome of a call, if it is the one that was asked for."""
    if found.outcome.name != name or found.outcome.request != request:
        raise _another_request(name)
    return found.outcome


def _another_request(name: str) -> ServiceError:
    return ServiceError(
        f"call {name}: another request was made under this name before (with other arguments, or "
        "by code that has changed since), and it may have got through: this one was not made"
    )


def _uncertain(name: str, request: bytes) -> Determinant:
    return Determinant(
        name,
        request,
        UNCERTAIN,
        message=f"call {name}: it was begun, but its caller died before the answer was logged, so "
        f"it {IN_DOUBT}",
    )


def _decoded(full: str, body: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{full} cannot be decoded: {error}") from None
