"""The service calls of one unit of work: where answers are logged, and where a rerun finds them.

An answer is logged either before its use, in the journal, or with the commit, as a determinant in
the unit's report. Within a unit of work each name is asked once, even if the hooks of a key run
twice. A replay makes no calls: all answers come from the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import cached_property, partial

from headrace.causal import outside
from headrace.causal.journal import Journal
from headrace.causal.packing import unpack_determinants
from headrace.causal.questions import Question, digest
from headrace.errors import (
    CorruptCheckpoint,
    Fenced,
    HeadraceError,
    NondeterministicCode,
    StoreError,
)
from headrace.log import paths
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
        journal = self._journal
        if journal is None:
            raise StoreError("this plan was made without a place for answers from outside")
        what, request, options = question.what, question.request, question.options
        if self._order.answers is not None:
            with counted_as(CALLS):
                logged = journal.known(name, request, options)
            if logged is None:
                raise NondeterministicCode(
                    f"{what}: no answer to it is logged, so the epoch did not ask this the first "
                    "time, and a replay never calls the outside"
                )
            return logged
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
        request, made = question.request, self.determinants
        known = made.get(name)
        if known is not None and known.request != request:
            # The key's hooks run again, without a record that failed. The answers of the first
            # pass stay in the log, because a replay runs both passes.
            name = f"{name}:again"
            known = made.get(name)
        if known is None:
            if self._order.answers is None:
                known = outside.try_call(
                    name,
                    request,
                    question.what,
                    question.options,
                    partial(question.perform, key),
                    system=self._store.system,
                )
            else:
                known = self._logged.get(name)
        if known is None or known.request != request:
            raise NondeterministicCode(
                f"{question.what} was asked for something that it was not asked for the first "
                "time: does the code use the clock or dice other than ctx.now() and ctx.random?"
            )
        made[name] = known
        return known

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


def no_key() -> str:
    """The idempotency key of a question that sends none."""
    raise AssertionError("a question that sends no key asked for one")
