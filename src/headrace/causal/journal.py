"""Calls that must not repeat, logged before use (protocol E2).

A call has two kinds of files, both put-if-absent, in a directory that the driver made:

    <name>.intent-1    who calls, until when, and what is asked
    <name>.result      what came of it

1. A result that is there is the answer; nobody calls.
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
import secrets
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

import msgspec

from headrace.errors import CorruptCheckpoint, Fenced, ServiceError, StoreError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.epochlog import seal, unseal
from headrace.log.store import Store
from headrace.model.services import AGAIN, CallOptions
from headrace.plan.epoch import Determinant

UNCERTAIN = "uncertain"
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


class TooLate(Exception):
    """The owner of an intent came to its call only past its deadline; it has not called."""


class Journal:
    """The calls of one directory."""

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._directory = store, directory
        self._clock, self._sleep = clock, sleep

    def once(
        self,
        name: str,
        request: bytes,
        options: CallOptions,
        perform: Callable[[float], Determinant],
    ) -> Determinant:
        """The one outcome of a call; `perform(deadline)` calls, and tells what came of it."""
        file = self._file(name)
        for number in count(1):
            known = self._result(file, name, request)
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
                    return self._settle(file, outcome)
            known = self._wait(file, name, request, intent.deadline)
            if known is not None:
                return known
            if options.uncertain != AGAIN:
                return self._settle(file, _uncertain(name, request))
        raise StoreError("unreachable")  # count() does not end

    def known(self, name: str, request: bytes) -> Determinant | None:
        """The outcome of a call that was made before; None where none is logged. Nobody calls."""
        found = self._result(self._file(name), name, request)
        if found is None:
            above, _, own = self._directory.rpartition("/")
            if own not in self._store.list(above):
                raise StoreError(
                    f"{self._directory} is not there, so what was answered cannot be told: is the "
                    "checkpoint away?"
                )
        return found

    def _file(self, name: str) -> str:
        return f"{self._directory}/{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"

    def _result(self, file: str, name: str, request: bytes) -> Determinant | None:
        full = f"{file}.result"
        try:
            data = self._store.read(full)
        except FileNotFoundError:
            return None
        found = _decoded(full, unseal(_RESULT_MAGIC, data, full), Determinant)
        if found.name != name or found.request != request:
            raise _another_request(name)
        try:
            self._store.sync(self._directory)
        except FileNotFoundError:
            raise self._gone() from None
        return found

    def _intend(
        self, full: str, name: str, request: bytes, options: CallOptions
    ) -> tuple[Intent, bool]:
        """The intent that lies there, and whether it is this caller's."""
        deadline = self._clock() + options.longest_us() / 1e6 + SLACK_S
        intent = Intent(name, secrets.token_hex(8), deadline, request)
        data = self._put(full, seal(_INTENT_MAGIC, msgspec.json.encode(intent)))
        found = _decoded(full, unseal(_INTENT_MAGIC, data, full), Intent)
        return found, found.nonce == intent.nonce

    def _refuse_closed(self) -> None:
        """The directory may have been taken away, and made again by a driver that slept."""
        first = int(self._directory.rpartition("/")[2])
        # In this order: the first goes only when the second is there.
        for marker in (paths.closed_marker(self._directory), paths.closed_span_marker(first)):
            try:
                self._store.read(marker)
            except FileNotFoundError:
                continue
            raise self._gone()

    def _settle(self, file: str, outcome: Determinant) -> Determinant:
        """Puts a result; gives the one that counts."""
        full = f"{file}.result"
        sealed = seal(_RESULT_MAGIC, msgspec.json.encode(outcome))
        data = self._put(full, sealed, tries=_RESULT_PUTS_MAX)
        reach("after-result-write")
        return _decoded(full, unseal(_RESULT_MAGIC, data, full), Determinant)

    def _wait(self, file: str, name: str, request: bytes, deadline: float) -> Determinant | None:
        """A stranger's result; None where its deadline passed without one."""
        while (known := self._result(file, name, request)) is None:
            left = deadline - self._clock()
            if left <= 0:
                return None
            self._sleep(min(_POLL_S, left))
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
            self._sleep(min(_PAUSE_MAX_S, 0.05 * 2**attempt))
        raise StoreError(f"{full} could not be written: {failure}") from failure

    def _gone(self) -> Fenced:
        return Fenced(
            f"{self._directory} is gone: this task belongs to an epoch that is long closed, and "
            "must not call the outside"
        )


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
        'it may have got through or not. Look there, or say uncertain="again" where a call '
        "may be repeated",
    )


def _decoded(full: str, body: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{full} cannot be decoded: {error}") from None
