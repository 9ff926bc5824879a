"""Calls of outside services from `process_table`.

A table has many causes, so a call is named by its place in the plan: the computation, the slot's
label, the hook's ordinal and the call's ordinal. This name stays valid in every rerun of the plan.
It is not valid in the next plan, if this plan is voided. So only calls that may be repeated are
accepted: a GET, and services that are logged with the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.causal import outside
from headrace.causal.calls import BROKEN
from headrace.causal.catalog import ServiceContext, service_not_prepared
from headrace.causal.questions import Asking, Question
from headrace.errors import HeadraceError, InvalidPipeline
from headrace.model.services import BEFORE_USE, WITH_COMMIT
from headrace.pipeline.graph.graph import Node
from headrace.worker.exchange.emitter import Emitter


class TableCalls(ServiceContext):
    """A context whose calls are named by their place in the plan, not by a cause."""

    _emitter: Emitter
    _node: Node

    def prepare_calls(self, emitter: Emitter, node: Node, hook: int) -> None:
        """Must be called before the first call of a service."""
        self._emitter, self._node = emitter, node
        self._hook, self._called = hook, 0

    @property
    def broken(self) -> HeadraceError | None:
        """The error of a call that could not be logged, in case the hook caught it."""
        return self._emitter.calls.broken

    def ask(self, question: Question) -> bytes:
        if question.options.batch:
            (found,) = self.ask_many([question])
            if isinstance(found, HeadraceError):
                raise found
            return found
        calls, first = self._emitter.calls, question.options.log == BEFORE_USE
        asking = self._named(question, first=first)
        try:
            outcome = calls.ask_once(*asking) if first else calls.ask_with_commit(*asking)
        except BROKEN as error:
            calls.broken = error
            raise
        outside.raise_failure(outcome)
        return outcome.value

    def ask_many(self, questions: Sequence[Question]) -> list[bytes | HeadraceError]:
        if not questions:
            return []
        calls, first = self._emitter.calls, questions[0].options.log == BEFORE_USE
        asked = [self._named(question, first=first) for question in questions]
        try:
            outcomes = calls.ask_many_once(asked) if first else calls.ask_many_with_commit(asked)
        except BROKEN as error:
            calls.broken = error
            raise
        return [outside.answer_or_error(outcome) for outcome in outcomes]

    def _named(self, question: Question, *, first: bool) -> Asking:
        """A question under the name of its call, if calls from tables may ask it."""
        name = self._node.name
        if not self._node.services:
            raise service_not_prepared(name, "http and ctx.call")
        if not question.repeats and (first or question.sends_key):
            raise InvalidPipeline(
                f"{name!r}: {question.what} must not be made twice, but process_table sees many "
                "records at once, so a call from there has no durable name. Call it in "
                "process_record or, if it may repeat, write "
                f'@service(log="{WITH_COMMIT}") and take no idempotency_key'
            )
        in_plan = f"{name}:{self._emitter.label.encode().hex()}:{self._hook}:{self._called}"
        self._called += 1
        calls = self._emitter.calls
        lasting = f"{calls.plan_name}:{in_plan}"
        return Asking(
            lasting if first else in_plan, question, lambda: calls.idempotency_key(lasting)
        )
