"""The leader's side of control through the store: it hears requests, decides, and answers (I).

1. hear     one read of the queue while a job runs, or once a second when idle: no epoch waits;
2. decide   purely, in the order of the queue; every position gets exactly one outcome;
3. log      the outcome is part of a commit, or of an entry of its own: only now it has effect;
4. answer   a copy of what the log says, beside the request; whoever leads puts what is missing.

An answer before its entry could tell of a decision that another leader never saw. An effect
outside of the log before its entry (the last word of a lease, a process that ends) likewise.

It knows nothing of leases and loops. What a verb means is in `plan/decisions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec

from headrace.control.queue import RequestQueue, names_between
from headrace.engine.driver.setup import Setup
from headrace.engine.history.recovery import History
from headrace.engine.history.savepoints import SavedFiles, write_savepoint
from headrace.errors import StoreError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.entry import CONTROL
from headrace.log.epochlog import EpochLog
from headrace.plan.control import (
    SAVEPOINT,
    TAKEN,
    Answer,
    ControlRequest,
    Outcome,
    answer_of,
    done_of,
)
from headrace.plan.decisions.control import PREPARED, Damage, LeaderFacts, decide_request
from headrace.plan.decisions.effects import fold_control, fold_outcomes
from headrace.plan.entries import ControlBody
from headrace.store.counts import UPKEEP, counted_as

HEARD_MAX = 16
"""How many requests are read at once."""


class Controller:
    """Hears, decides and answers the requests of one checkpoint, for the driver that leads."""

    def __init__(self, setup: Setup, checkpoint: str, log: EpochLog, history: History) -> None:
        """`checkpoint` is the id of the checkpoint, which every request must name."""
        store, options = setup.store, setup.options
        self._store, self._log, self._history = store, log, history
        self._facts = LeaderFacts(checkpoint, setup.fingerprint, tuple(setup.topology.keyed))
        self._clock, self._listens = setup.clock, options.listens
        self._limits = store.system.limits
        self._queue = RequestQueue(store)
        self._pool = store.system.executor("headrace-control") if options.background else None
        self._reading: Future[list[ControlRequest | Damage]] | None = None
        self._heard: list[ControlRequest | Damage] = []
        """Requests from the cursor on that have no outcome yet."""
        self._saved = SavedFiles(store)
        self._listened_s = float("-inf")
        self._answered: dict[int, str] = {}
        """Position -> the last answer that was put, "answer" or "done"."""
        self._trimmed_to = 0
        self._must_list = True
        """Whether a listing is due: this driver has just begun, or a put failed."""
        self.before_savepoint: Callable[[], None] = lambda: None
        """Makes all state durable, if some was only written (M6)."""

    # Hear -----------------------------------------------------------------

    def begin(self) -> None:
        """The driver leads now: whatever the log has decided is answered (I4)."""
        if self._listens:
            self._queue.make()
        self.answer()

    def poll_beside(self) -> None:
        """Reads the queue while a job runs."""
        if not self._listens or self._reading is not None or self._heard:
            return
        position = self._history.ledger.control.cursor + 1
        if self._pool is None:
            self._hear(position)
        else:
            self._reading = self._pool.submit(self._read, position)

    def _read(self, position: int) -> list[ControlRequest | Damage]:
        with counted_as(UPKEEP):
            return self._queue.read_from(position, HEARD_MAX)

    def _hear(self, position: int) -> None:
        try:
            self._heard = self._read(position)
        except (OSError, StoreError):
            pass  # The store is unavailable: the loop finds that, and the request stays.

    def _collect(self) -> None:
        """Takes what the thread has read; a read that still runs is not waited for."""
        if self._reading is None or not self._reading.done():
            return
        reading, self._reading = self._reading, None
        error = reading.exception()
        if error is None:
            self._heard = reading.result()
        elif not isinstance(error, OSError | StoreError):
            raise error

    def poll(self, *, now: bool = False) -> bool:
        """Reads the queue between epochs, once a second or `now`, and decides what it finds.

        Returns whether anything was decided.
        """
        uptime = self._store.system.uptime_s()
        if not self._listens:
            return False
        if not now and uptime - self._listened_s < self._limits.listen_every_s:
            return self.settle()
        self._listened_s = uptime
        self._collect()
        if self._reading is None and not self._heard:
            self._hear(self._history.ledger.control.cursor + 1)
        return self.settle()

    # Decide ---------------------------------------------------------------

    def ride(self) -> list[Outcome]:
        """Decides what was heard, for the commit that is being written.

        A request whose outcome names files stays, and all after it: they are settled later.
        """
        self._collect()
        found: list[Outcome] = []
        while self._heard and getattr(self._heard[0], "verb", "") not in PREPARED:
            found.append(self._decide(self._heard.pop(0)))
        return found

    def settle(self) -> bool:
        """Decides what was heard by an entry of its own; returns whether there was anything."""
        self._collect()
        decided = bool(self._heard)
        while self._heard:
            self._append(ControlBody([self._prepared(self._heard[0])]))
            self._heard.pop(0)
        self.answer()
        return decided

    def own(self, request: ControlRequest) -> Outcome:
        """Decides a request of the leader's own process, which is in no queue."""
        own = msgspec.structs.replace(request, checkpoint=self._facts.checkpoint)
        outcome = self._prepared(own, position=0)
        self._append(ControlBody([outcome]))
        return next(e for e in self._history.ledger.control.outcomes if e.nonce == outcome.nonce)

    def stopped(self) -> None:
        """Completes a stop: from here on no driver goes on before a person starts one (I9)."""
        self._append(ControlBody(stopped=True))
        self.answer()

    def _prepared(self, found: ControlRequest | Damage, position: int | None = None) -> Outcome:
        """The outcome of a request, with the files that it names already written."""
        ledger = self._history.ledger
        at = ledger.control.cursor + 1 if position is None else position
        outcome = decide_request(found, at, ledger, self._facts, self._wall())
        if outcome.verb in PREPARED and outcome.verdict == TAKEN:
            self.before_savepoint()
        if outcome.verb == SAVEPOINT and outcome.verdict == TAKEN:
            saved = write_savepoint(self._store, ledger, outcome.about, outcome.wall)
            outcome = msgspec.structs.replace(outcome, savepoint=saved)
        return outcome

    def _decide(self, found: ControlRequest | Damage) -> Outcome:
        """Decides and folds one request; its entry is written next."""
        ledger = self._history.ledger
        at = ledger.control.cursor + 1
        outcome = decide_request(found, at, ledger, self._facts, self._wall())
        fold_outcomes(ledger, [outcome], self._limits)
        return outcome

    def _wall(self) -> int:
        return max(self._clock(), self._history.ledger.wall)

    def _append(self, body: ControlBody) -> None:
        """The entry first, then the ledger: nothing has effect that is not in the log."""
        reach("before-control-write")
        self._log.append(CONTROL, body)
        reach("after-control-write")
        fold_control(self._history.ledger, body, self._limits)

    # Answer ---------------------------------------------------------------

    def answer(self) -> None:
        """Puts the answers that are missing, and deletes what is decided and answered."""
        control = self._history.ledger.control
        if not control.cursor:
            return
        try:
            with counted_as(UPKEEP):
                self._answer(control.outcomes)
                self._trim(control.cursor)
        except (OSError, StoreError):
            self._must_list = True  # They are put again at the next opportunity.

    def _answer(self, outcomes: Sequence[Outcome]) -> None:
        there = self._listed() if self._must_list else set()
        for outcome in outcomes:
            if outcome.position:
                self._put(answer_of(outcome), paths.ANSWER, "answer", there)
                if outcome.done:
                    self._put(done_of(outcome), paths.DONE, "done", there)
        kept = {outcome.position for outcome in outcomes}
        self._answered = {at: stage for at, stage in self._answered.items() if at in kept}

    def _listed(self) -> set[str]:
        found = self._queue.names()
        control = self._history.ledger.control
        self._queue.trim(found, control.cursor, self._limits.outcomes_kept)
        self._trimmed_to, self._must_list = control.cursor, False
        return found

    def _put(self, answer: Answer, suffix: str, stage: str, there: set[str]) -> None:
        if self._answered.get(answer.position, "") in ("done", stage):
            return
        if paths.request(answer.position, suffix).rpartition("/")[2] not in there:
            self._queue.put_answer(answer, suffix)
            reach("after-answer-write")
        self._answered[answer.position] = stage

    def _trim(self, cursor: int) -> None:
        if cursor > self._trimmed_to:
            kept = self._limits.outcomes_kept
            self._queue.trim(names_between(self._trimmed_to, cursor, kept), cursor, kept)
            self._trimmed_to = cursor

    def saved_files(self) -> frozenset[str]:
        """The files that savepoints keep from collection."""
        return self._saved.of(self._history.ledger.control.savepoints)

    def close(self) -> None:
        """Waits for a read that runs."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
