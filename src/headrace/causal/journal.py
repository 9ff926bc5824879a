"""Calls that must not repeat, logged before use (protocol E2).

A call has two kinds of files, both put-if-absent, in a directory that the driver made:

    <name>-1.intent-1    who calls, until when, and what is asked
    <name>-1.result      the outcome, and the plan in which it was logged

1. If a result exists, it is the answer, and no call is made. There is one exception: the result is
   a failure or a refusal, and its plan was voided since. No committed hook has used such a result,
   so it is void, and the call is made again in its next round: `<name>-2.intent-1`. An uncertain
   result of a voided plan is void too, if the caller allows the call to be repeated.
2. The caller puts the intent, and reads it back. Only the owner of the nonce in the file calls.
   A batch puts the intents of all its calls, then calls, then puts the results.
3. The outcome, also a failure, is put as the result. It is used only after it was read back and is
   on disk: the existence of a file does not prove that it is on disk, whoever put it. And only
   if its directory is not closed: a store without directories takes what a late task puts there.
4. A caller that finds the intent of another caller waits for its result. After the intent's
   deadline the call is *uncertain*. Then either this is put as the result (CallUncertain), or the
   next intent is put, and its owner calls again.

The window that remains: if the caller dies after the service has acted and before the result is
durable, the call is uncertain. And an owner that is suspended after its last check of the clock
may call after its deadline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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
"""Added to the maximum duration of a call: time to write its result."""
_MORE_SLACK_S = 0.2
"""Added for every further call of a batch: time to write its intent and its result."""

_INTENT_MAGIC, _RESULT_MAGIC = b"headrace-intent", b"headrace-result"
_POLL_S = 0.02
_PUTS_MAX = 5
_RESULT_PUTS_MAX = _PUTS_MAX + 8
"""More tries than for an intent: giving up loses a known answer, and makes the call uncertain."""
_PAUSE_MAX_S = 5.0

_Kind = TypeVar("_Kind")


class Intent(msgspec.Struct, frozen=True):
    """Who is going to call, until when (wall time in seconds), and what is asked."""

    name: str
    nonce: str
    deadline: float
    request: bytes


class CallResult(msgspec.Struct, frozen=True):
    """The outcome of a call, and the epoch and wall time of the plan whose task logged it."""

    epoch: int
    wall: int
    outcome: Determinant


class TooLate(Exception):
    """The deadline of an intent passed before its owner could call. It has not called."""


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
        """`epoch`, `wall` and `given_up` come from the plan."""
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
        """The single outcome of a call. `perform(deadline)` makes the call; returns its outcome."""
        (found,) = self.once_many(
            [(name, request)], options, lambda mine, deadline: [perform(deadline)]
        )
        if isinstance(found, ServiceError):
            raise found
        return found

    def once_many(
        self,
        asked: Sequence[tuple[str, bytes]],
        options: CallOptions,
        perform: Callable[[Sequence[int], float], Sequence[Determinant]],
    ) -> list[Determinant | ServiceError]:
        """The single outcome of each call of a batch, given as (name, request).

        `perform(positions, deadline)` makes those calls that are this caller's to make; returns
        their outcomes. Each call has its own intent and result, so a rerun may form other batches.
        A call is not made, and its outcome is an error, if its name was used for another request.
        """
        found: dict[int, CallResult | ServiceError] = {}
        turns = dict.fromkeys(range(len(asked)), 1)
        while turns:
            files = {i: self._file(asked[i][0], turn) for i, turn in turns.items()}
            for i, result in self._rounds(files, asked, options, perform).items():
                if isinstance(result, CallResult) and self._is_void(result, options):
                    turns[i] += 1
                else:
                    found[i] = result
                    del turns[i]
        # Looked for after the results were put or read: in a closed directory they are not those
        # that counted, which were deleted.
        self._refuse_closed()
        return [_checked(found[i], *asked[i]) for i in range(len(asked))]

    def _rounds(
        self,
        files: Mapping[int, str],
        asked: Sequence[tuple[str, bytes]],
        options: CallOptions,
        perform: Callable[[Sequence[int], float], Sequence[Determinant]],
    ) -> dict[int, CallResult | ServiceError]:
        """The outcomes of one round of each call, by its position."""
        found: dict[int, CallResult | ServiceError] = {}
        left = dict(files)
        for number in count(1):
            for i, file in left.items():
                if (known := self._result(file)) is not None:
                    found[i] = known
            left = {i: file for i, file in left.items() if i not in found}
            if not left:
                return found
            deadline = self._system.wall_s() + options.longest_us() / 1e6 + slack_s(len(left))
            intents, mine = {}, []
            for i, file in left.items():
                intents[i], is_mine = self._intend(f"{file}.intent-{number}", *asked[i], deadline)
                if (intents[i].name, intents[i].request) != asked[i]:
                    found[i] = _another_request(asked[i][0])
                elif is_mine:
                    mine.append(i)
            if mine:
                found.update(self._call(mine, files, deadline, perform))
            for i, file in left.items():
                if i in found:
                    continue
                waited = self._wait(file, intents[i].deadline)
                if waited is None and options.uncertain != AGAIN:
                    waited = self._put_result(file, _uncertain(*asked[i]))
                if waited is not None:
                    found[i] = waited
            left = {i: file for i, file in left.items() if i not in found}
            if not left:
                return found
        raise StoreError("unreachable")  # count() does not end

    def _call(
        self,
        mine: Sequence[int],
        files: Mapping[int, str],
        deadline: float,
        perform: Callable[[Sequence[int], float], Sequence[Determinant]],
    ) -> dict[int, CallResult]:
        """Makes the calls whose intents are this caller's. Nothing if their deadline has passed."""
        self._refuse_closed()
        reach("after-intent-write")
        try:
            outcomes = perform(mine, deadline)
        except TooLate:
            return {}
        reach("after-call")
        return {
            i: self._put_result(files[i], outcome)
            for i, outcome in zip(mine, outcomes, strict=True)
        }

    def known(self, name: str, request: bytes, options: CallOptions) -> Determinant | None:
        """The logged outcome of an earlier call; None if there is none. Never calls."""
        for turn in count(1):
            found = self._result(self._file(name, turn))
            if found is None:
                break
            if not self._is_void(found, options):
                outcome = _checked(found, name, request)
                if isinstance(outcome, ServiceError):
                    raise outcome
                return outcome
        # Looked for after the results: it is deleted before they are.
        try:
            self._store.read(paths.opened_marker(self._directory))
        except FileNotFoundError:
            raise StoreError(
                f"{self._directory} is not there, so the answer is unknown: is the checkpoint away?"
            ) from None
        self._refuse_closed()
        return None

    def _is_void(self, found: CallResult, options: CallOptions) -> bool:
        """Whether a result is void: it is no answer, and no committed hook has used it."""
        if found.wall > self._given_up.get(found.epoch, -1):
            return False  # its plan is this one, a committed one, or a later one
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

    def _intend(self, full: str, name: str, request: bytes, deadline: float) -> tuple[Intent, bool]:
        """Puts an intent; returns the intent in the file, and whether it is this caller's."""
        intent = Intent(name, self._system.token_hex(8), deadline, request)
        data = self._put(full, seal(_INTENT_MAGIC, msgspec.json.encode(intent)))
        found = _decoded(full, unseal(_INTENT_MAGIC, data, full), Intent)
        return found, found.nonce == intent.nonce

    def _refuse_closed(self) -> None:
        """Raises if the directory was closed. A driver that slept may have opened it again."""
        if is_closed(self._store, self._directory):
            raise self._gone()

    def _put_result(self, file: str, outcome: Determinant) -> CallResult:
        """Puts a result; returns the result that is in the file."""
        full = f"{file}.result"
        result = CallResult(self._epoch, self._wall, outcome)
        sealed = seal(_RESULT_MAGIC, msgspec.json.encode(result))
        data = self._put(full, sealed, tries=_RESULT_PUTS_MAX)
        reach("after-result-write")
        return _decoded(full, unseal(_RESULT_MAGIC, data, full), CallResult)

    def _wait(self, file: str, deadline: float) -> CallResult | None:
        """Waits for the result of another caller; None if its deadline passed without a result."""
        while (known := self._result(file)) is None:
            left = deadline - self._system.wall_s()
            if left <= 0:
                return None
            self._system.sleep(min(_POLL_S, left))
        return known

    def _put(self, full: str, data: bytes, *, tries: int = _PUTS_MAX) -> bytes:
        """Puts a file if absent; returns its content. Resolves an unknown outcome by reading."""
        failure: Exception | None = None
        for attempt in range(tries):
            try:
                mine = self._store.put_if_absent(full, data)
            except FileNotFoundError:
                raise self._gone() from None
            except (OSError, StoreError) as error:
                failure, mine = error, False
            if mine:
                return data
            try:
                found = self._store.read(full)
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


def slack_s(calls: int) -> float:
    """The time to write the intents and results of a batch of calls."""
    return SLACK_S + _MORE_SLACK_S * (calls - 1)


def is_closed(store: Store, directory: str) -> bool:
    """Whether a directory of logged calls was closed."""
    first = int(directory.rpartition("/")[2])
    # In this order: the first marker is deleted only when the second one exists.
    span = paths.closed_span_marker(first, store.system.limits)
    for marker in (paths.closed_marker(directory), span):
        try:
            store.read(marker)
        except FileNotFoundError:
            continue
        return True
    return False


def _checked(
    found: CallResult | ServiceError, name: str, request: bytes
) -> Determinant | ServiceError:
    """The outcome of a call; an error if its request is not the one that was asked."""
    if isinstance(found, ServiceError):
        return found
    if found.outcome.name != name or found.outcome.request != request:
        return _another_request(name)
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
