"""Cuts calls into batches.

How calls are cut changes nothing but their number of requests: each call keeps its own name,
idempotency key and logged outcome, and a rerun may form other batches.

`InTurn` serves one hook at a time: the calls of one `ctx.call_many` are cut into batches.
`Gatherer` serves the keys of a slot that run at once, in threads: their calls are gathered. A batch
is sent when it is full, and otherwise as soon as nobody is left who could add a call to it, because
all hooks wait for answers.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager

from headrace.causal.questions import Asking, Batching
from headrace.errors import ServiceError
from headrace.plan.epoch import Determinant
from headrace.system import System

Outcome = Determinant | ServiceError
AskBatch = Callable[[Sequence[Asking]], Sequence[Outcome]]
"""Asks one batch; returns the outcomes in order."""

LINGER_S = 0.05
"""How long a call waits for others while some hook works. Then its batch is sent as it is."""
BATCHES_AT_ONCE_MAX = 64
"""The maximum of `in_flight=`."""
_SERVICES_MAX = 4
"""More services than this, each with the most batches in flight, share threads."""


class Gathering(ABC):
    """Asks calls in batches."""

    @abstractmethod
    def ask(self, asked: Sequence[Asking], ask: AskBatch, log: str) -> list[Outcome]:
        """The outcomes of calls. `log` says how they are logged, `ask` asks and logs a batch."""


class InTurn(Gathering):
    """Asks the calls of one hook, in batches of one service each."""

    def __init__(self, system: System) -> None:
        self._system = system

    def ask(self, asked: Sequence[Asking], ask: AskBatch, log: str) -> list[Outcome]:
        groups: dict[Hashable, tuple[Batching, list[int]]] = {}
        for i, one in enumerate(asked):
            how = _batching(one)
            groups.setdefault(how.group, (how, []))[1].append(i)
        found: dict[int, Outcome] = {}
        for how, places in groups.values():
            size = how.size
            batches = [places[at : at + size] for at in range(0, len(places), size)]
            for batch, outcomes in zip(batches, self._asked(asked, batches, ask, how), strict=True):
                found.update(zip(batch, outcomes, strict=True))
        return [found[i] for i in range(len(asked))]

    def _asked(
        self, asked: Sequence[Asking], batches: list[list[int]], ask: AskBatch, how: Batching
    ) -> Iterator[Sequence[Outcome]]:
        given = ([asked[i] for i in batch] for batch in batches)
        threads = min(how.in_flight, len(batches))
        if threads == 1:
            yield from map(ask, given)
            return
        with self._system.executor("headrace-batch", threads) as pool:
            waiting = [pool.submit(ask, batch) for batch in given]
            try:
                for future in waiting:
                    yield future.result()
            finally:
                for future in waiting:
                    future.cancel()


class _Caller:
    """A hook that waits for the outcomes of its calls."""

    def __init__(self, calls: int) -> None:
        self.open = calls


class _Waiting:
    """A call that is not answered yet."""

    def __init__(self, asking: Asking, ask: AskBatch, caller: _Caller) -> None:
        self.asking, self.ask, self.caller = asking, ask, caller
        self.outcome: Future[Outcome] = Future()


class _Group:
    """The calls that may share a batch."""

    def __init__(self, how: Batching) -> None:
        self.how = how
        self.calls: deque[_Waiting] = deque()
        self.in_flight = 0
        self.overdue = False
        """Whether a call has waited long enough for others."""


class Gatherer(Gathering):
    """Gathers the calls of keys that run at once in threads."""

    def __init__(self, system: System, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._groups: dict[Hashable, _Group] = {}
        self._keys = self._waiting = 0
        """Keys that were given to the threads and have not ended; those of them that wait."""
        self._more_keys = True
        """Whether more keys may come before any answer does."""
        self._pool = system.executor("headrace-batch", BATCHES_AT_ONCE_MAX * _SERVICES_MAX)

    # What the threads do -----------------------------------------------------

    def key_begins(self) -> None:
        """A key was given to the threads."""
        with self._lock:
            self._keys += 1

    def key_ends(self) -> None:
        """The hooks of a key have ended."""
        with self._lock:
            self._keys -= 1
            self._send()

    @contextmanager
    def no_more_keys(self) -> Iterator[None]:
        """Inside this context no key is given to the threads."""
        with self._lock:
            self._more_keys = False
            self._send()
        try:
            yield
        finally:
            with self._lock:
                self._more_keys = True

    def close(self) -> None:
        """Waits for the batches that are under way."""
        self._pool.shutdown()

    # Calls -------------------------------------------------------------------

    def ask(self, asked: Sequence[Asking], ask: AskBatch, log: str) -> list[Outcome]:
        if not asked:
            return []
        caller = _Caller(len(asked))
        calls = [_Waiting(one, ask, caller) for one in asked]
        with self._lock:
            self._waiting += 1
            groups = []
            for call in calls:
                how = _batching(call.asking)
                group = self._groups.setdefault((how.group, log), _Group(how))
                group.calls.append(call)
                groups.append(group)
            self._send()
        try:
            try:
                calls[-1].outcome.result(LINGER_S)
            except NotYet:
                self._hurry(groups)
            return [call.outcome.result() for call in calls]
        finally:
            with self._lock:
                if caller.open:  # it was interrupted
                    caller.open = 0
                    self._waiting -= 1

    def _hurry(self, groups: Sequence[_Group]) -> None:
        with self._lock:
            for group in groups:
                group.overdue = bool(group.calls)
            self._send()

    def _send(self) -> None:
        """Sends the batches that are full, or that no hook can add to. Needs the lock."""
        nobody = not self._more_keys and self._waiting >= min(self._threads, self._keys)
        for group in self._groups.values():
            size, calls = group.how.size, group.calls
            while (
                calls
                and group.in_flight < group.how.in_flight
                and (len(calls) >= size or nobody or group.overdue)
            ):
                batch = [calls.popleft() for _ in range(min(size, len(calls)))]
                group.in_flight += 1
                self._pool.submit(self._ask, group, batch)
            group.overdue = group.overdue and bool(calls)

    def _ask(self, group: _Group, batch: Sequence[_Waiting]) -> None:
        outcomes: Sequence[Outcome] = ()
        failure: BaseException | None = None
        try:
            outcomes = batch[0].ask([call.asking for call in batch])
        except BaseException as error:  # it belongs to the hooks that wait
            failure = error
        with self._lock:
            group.in_flight -= 1
            for call in batch:
                if call.caller.open:
                    call.caller.open -= 1
                    if not call.caller.open:
                        self._waiting -= 1
            # Before others run again: these are no longer waiting.
            for call, outcome in zip(batch, outcomes, strict=False):
                call.outcome.set_result(outcome)
            if failure is not None:
                for call in batch:
                    call.outcome.set_exception(failure)
            self._send()


def _batching(asking: Asking) -> Batching:
    how = asking.question.batching
    return how or Batching(asking.name, 1, 1)
