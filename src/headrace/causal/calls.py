"""The service calls of one unit of work: where answers are logged, and where a rerun finds them.

An answer is logged either before its use, in the journal, or with the commit, as a determinant in
the unit's report. Within a unit of work each name is asked once, even if the hooks of a key run
twice. A replay makes no calls: all answers come from the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

from headrace.causal import outside
from headrace.causal.batches import Gathering, InTurn
from headrace.causal.journal import Journal
from headrace.causal.packing import unpack_determinants
from headrace.causal.questions import Asking, Question, digest
from headrace.errors import (
    CorruptCheckpoint,
    Fenced,
    HeadraceError,
    NondeterministicCode,
    ServiceError,
    StoreError,
)
from headrace.log import paths
from headrace.model.services import BEFORE_USE, WITH_COMMIT
from headrace.plan.epoch import Determinant, WorkOrder
from headrace.store.counts import CALLS, counted_as
from headrace.store.store import Store

BROKEN = (StoreError, Fenced, CorruptCheckpoint, NondeterministicCode)
"""Errors of a call that are not an answer of the service: the task must fail."""


class UnitCalls:
    """The service calls of the hooks of one unit of work so far."""

    def __init__(self, store: Store, order: WorkOrder, label: str) -> None:
        self._store, self._order, self._label = store, order, label
        self.determinants: dict[str, Determinant] = {}
        """Answers that are logged with the commit, by the names of the calls."""
        self.broken: HeadraceError | None = None
        """The error of a call that could not be logged, in case a hook catches it."""
        self.gathering: Gathering = InTurn(store.system)
        """How calls form batches. The keys of a slot that run at once share one."""

    @property
    def plan_name(self) -> str:
        """A name that distinguishes the plan of an epoch from its voided predecessors."""
        plan = self._order.plan
        return f"{plan.epoch}.{plan.wall}.{plan.seed}"

    def idempotency_key(self, name: str) -> str:
        """The key by which a service recognises two requests as the same one."""
        checkpoint = self._order.checkpoint.encode()
        named = b"%d:%s%s" % (len(checkpoint), checkpoint, name.encode())
        return str(uuid.UUID(bytes=digest(named)))

    def ask_once(self, name: str, question: Question, key: Callable[[], str]) -> Determinant:
        """The outcome of a call that is logged before use."""
        journal = self._required_journal()
        what, request, options = question.what, question.request, question.options
        if self._order.answers is not None:
            return _logged_before_use(journal, name, question)
        with counted_as(CALLS):
            return journal.once(
                name,
                request,
                options,
                lambda deadline: outside.try_call(
                    name,
                    request,
                    what,
                    options,
                    partial(question.perform, key),
                    deadline=deadline,
                    system=self._store.system,
                ),
            )

    def ask_with_commit(self, name: str, question: Question, key: Callable[[], str]) -> Determinant:
        """The outcome of a call that is logged with the commit."""
        name, known = self._made_with_commit(name, question)
        if known is None:
            if self._order.answers is None:
                known = outside.try_call(
                    name,
                    question.request,
                    question.what,
                    question.options,
                    partial(question.perform, key),
                    system=self._store.system,
                )
            else:
                known = self._logged.get(name)
        return self._used_with_commit(name, question, known)

    def _made_with_commit(self, name: str, question: Question) -> tuple[str, Determinant | None]:
        """The outcome that this unit of work already has, and the name of the call."""
        known = self.determinants.get(name)
        if known is not None and known.request != question.request:
            # The key's hooks run again, without a record that failed. The answers of the first
            # pass stay in the log, because a replay runs both passes.
            name = f"{name}:again"
            known = self.determinants.get(name)
        return name, known

    def _used_with_commit(
        self, name: str, question: Question, known: Determinant | None
    ) -> Determinant:
        """Logs an outcome that a hook is going to use."""
        if known is None or known.request != question.request:
            raise NondeterministicCode(
                f"{question.what} was asked for something that it was not asked for the first "
                "time: does the code use the clock or dice other than ctx.now() and ctx.random?"
            )
        self.determinants[name] = known
        return known

    # Batches ----------------------------------------------------------------

    def ask_many_once(self, asked: Sequence[Asking]) -> list[Determinant | ServiceError]:
        """The outcomes of calls that are logged before use."""
        if self._order.answers is None:
            return self.gathering.ask(asked, self._ask_batch_once, BEFORE_USE)
        journal, found = self._required_journal(), []
        for name, question, _ in asked:
            one: Determinant | ServiceError
            try:
                one = _logged_before_use(journal, name, question)
            except ServiceError as error:  # the name was used for another request
                one = error
            found.append(one)
        return found

    def ask_many_with_commit(self, asked: Sequence[Asking]) -> list[Determinant | ServiceError]:
        """The outcomes of calls that are logged with the commit."""
        named = [self._made_with_commit(name, question) for name, question, _ in asked]
        if self._order.answers is None:
            new = [i for i, (_, known) in enumerate(named) if known is None]
            asking = [asked[i]._replace(name=named[i][0]) for i in new]
            made = self.gathering.ask(asking, self._ask_batch_with_commit, WITH_COMMIT)
            outcomes: dict[int, Determinant | ServiceError | None] = {}
            outcomes.update(zip(new, made, strict=True))
        else:
            outcomes = {i: self._logged.get(name) for i, (name, _) in enumerate(named)}
        found: list[Determinant | ServiceError] = []
        for i, (name, known) in enumerate(named):
            outcome = outcomes.get(i) if known is None else known
            if isinstance(outcome, ServiceError):
                raise outcome
            found.append(self._used_with_commit(name, asked[i].question, outcome))
        return found

    def _ask_batch_once(self, asked: Sequence[Asking]) -> list[Determinant | ServiceError]:
        with counted_as(CALLS):
            return self._required_journal().once_many(
                [(name, question.request) for name, question, _ in asked],
                asked[0].question.options,
                lambda mine, deadline: self._try_batch([asked[i] for i in mine], deadline),
            )

    def _ask_batch_with_commit(self, asked: Sequence[Asking]) -> Sequence[Determinant]:
        return self._try_batch(asked, None)

    def _try_batch(self, asked: Sequence[Asking], deadline: float | None) -> list[Determinant]:
        first = asked[0].question

        def call(places: Sequence[int], one: outside.Try) -> Sequence[bytes | Exception]:
            return first.perform_many([(asked[i].question, asked[i].key) for i in places], one)

        return outside.try_calls(
            [(name, question.request) for name, question, _ in asked],
            first.what,
            first.options,
            call,
            deadline=deadline,
            system=self._store.system,
        )

    def _required_journal(self) -> Journal:
        if self._journal is None:
            raise StoreError("this plan was made without a place for answers from outside")
        return self._journal

    @cached_property
    def _journal(self) -> Journal | None:
        """The journal of this plan, for calls that are logged before use."""
        plan = self._order.plan
        if not plan.determinants:
            return None
        directory = paths.determinants_directory(plan.determinants)
        return Journal(self._store, directory, plan.epoch, plan.wall, plan.given_up)

    @cached_property
    def _logged(self) -> Mapping[str, Determinant]:
        """The answers in the commit of an epoch that is replayed."""
        found = unpack_determinants((self._order.answers or {}).get(self._label, b""))
        return {determinant.name: determinant for determinant in found}


def _logged_before_use(journal: Journal, name: str, question: Question) -> Determinant:
    """The outcome of a call of an epoch that is replayed."""
    with counted_as(CALLS):
        logged = journal.known(name, question.request, question.options)
    if logged is None:
        raise NondeterministicCode(
            f"{question.what}: no answer to it is logged, so the epoch did not ask this the first "
            "time, and a replay never calls the outside"
        )
    return logged


def no_key() -> str:
    """The idempotency key of a question that sends none."""
    raise AssertionError("a question that sends no key asked for one")
