"""The `ctx` of computations that call outside services, or that feed such a computation.

It knows the cause of the running hook, so that calls and productions have names that are the same
in a rerun. Only pipelines that use `ctx.http` or `ctx.call` use this context.

- A call that is logged before use is named by computation, stream, key, cause and its ordinal
  among such calls of the hook. Other calls are named by plan, computation, key, hook and ordinal.
  The two kinds are counted separately: an answer that differs between two attempts must not shift
  the names of calls that must not repeat.
- Within a task each name is asked once, even if the key's hooks run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.causal import outside
from headrace.causal.calls import BROKEN, no_key
from headrace.causal.catalog import ServiceContext, service_not_prepared
from headrace.causal.lineage import identity_part, production_identity
from headrace.causal.questions import Asking, Question
from headrace.causal.services import NO_HOOK
from headrace.errors import HeadraceError
from headrace.model.services import BEFORE_USE
from headrace.model.values.time import Instant, instant
from headrace.pipeline.graph.graph import Node
from headrace.plan.epoch import Determinant
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.records.context import HookContext
from headrace.worker.records.key_records import NO_RECORDS, KeyRecords
from headrace.worker.records.outputs import Outputs, names_outputs
from headrace.worker.timers import TimerChanges

Identities = Callable[[], Sequence[bytes]]
"""Returns the cells of a key's records that end with their identities; called on demand."""


def is_traced(emitter: Emitter, node: Node) -> bool:
    """Whether a computation must know the causes of its hooks."""
    needing = emitter.runtime.topology.needs_identity
    return node.services or not needing.isdisjoint(node.emitted())


class TracedContext(ServiceContext, HookContext):
    """`ctx` of hooks whose causes are known."""

    def __init__(
        self,
        emitter: Emitter,
        node: Node,
        outputs: Outputs,
        timers: TimerChanges | None,
        origin: bytes,
    ) -> None:
        super().__init__(emitter, node, outputs, timers, origin)
        self._unit_calls = emitter.calls
        self._plan_name = emitter.calls.plan_name
        self._services_allowed = node.services
        self._lasting_name = node.lasting_name
        self._stream, self._cell = "", b""
        self._records: KeyRecords = NO_RECORDS
        self._identities: Identities = list
        self._cells: Sequence[bytes] | None = None
        self._counted = NO_HOOK
        """The hook whose productions and calls are being counted."""
        self._produced = self._called_once = self._called_each = 0
        if not names_outputs(emitter, node):
            # No consumer needs the origins of its productions.
            vars(self)["produce"] = super().produce

    def enter(self, key: Any, key_bytes: bytes) -> None:
        super().enter(key, key_bytes)
        self._counted = NO_HOOK
        self._records = NO_RECORDS

    def caused_by(self, stream: str, cell: bytes) -> None:
        """Before a hook: sets its cause, a record of `stream` or, without a stream, a timer.

        `cell` ends with the identity of the cause.
        """
        self._stream, self._cell, self._records = stream, cell, NO_RECORDS
        self._counted = NO_HOOK

    def all_caused_by(self, records: KeyRecords, identities: Identities) -> None:
        """Before one hook per record: the cause of each hook is looked up when it is needed."""
        self._records, self._identities, self._cells = records, identities, None

    @property
    def cause(self) -> bytes:
        """The identity of the record or timer whose hook runs."""
        if not self._records:
            return identity_part(self._cell)
        if self._cells is None:
            self._cells = self._identities()
        return identity_part(self._cells[self.hook])

    @property
    def cause_stream(self) -> str:
        """The stream of the record whose hook runs; empty for a timer."""
        return self._records.stream_of(self.hook) if self._records else self._stream

    def _count(self) -> None:
        if self._counted != self.hook:
            self._counted = self.hook
            self._produced = self._called_once = self._called_each = 0

    def produce(
        self, value: Any, *, to: str | None = None, timestamp: Instant | None = None
    ) -> None:
        self._count()
        at = self.time if timestamp is None else instant(timestamp, what="produce: timestamp=")
        identity = production_identity(
            self._lasting_name, self._own_key(), self.cause, self._produced
        )
        self._produced += 1
        self._outputs.add(value, to, at, self._origin + identity)

    def _own_key(self) -> bytes:
        """The key's bytes. Empty without a key: the label would depend on how the input is cut."""
        return b"" if self._timers is None else self.key_bytes

    # Calls ----------------------------------------------------------------

    def ask(self, question: Question) -> bytes:
        if question.options.batch:
            (found,) = self.ask_many([question])
            if isinstance(found, HeadraceError):
                raise found
            return found
        if not self._services_allowed:
            raise service_not_prepared(self._name, "http and ctx.call")
        try:
            outcome = self._outcome(question)
        except BROKEN as error:
            self._unit_calls.broken = error
            raise
        if outcome.kind != outside.ANSWER:
            outside.raise_failure(outcome)
        return outcome.value

    def ask_many(self, questions: Sequence[Question]) -> list[bytes | HeadraceError]:
        if not self._services_allowed:
            raise service_not_prepared(self._name, "call_many")
        if not questions:
            return []
        first = questions[0].options.log == BEFORE_USE
        calls = self._unit_calls
        asked = []
        for question in questions:
            in_plan, lasting, key = self._named(question, first=first)
            asked.append(Asking(lasting() if first else in_plan, question, key))
        try:
            outcomes = calls.ask_many_once(asked) if first else calls.ask_many_with_commit(asked)
        except BROKEN as error:
            calls.broken = error
            raise
        return [outside.answer_or_error(outcome) for outcome in outcomes]

    def _outcome(self, question: Question) -> Determinant:
        first = question.options.log == BEFORE_USE
        in_plan, lasting, key = self._named(question, first=first)
        if not first:
            return self._unit_calls.ask_with_commit(in_plan, question, key)
        return self._unit_calls.ask_once(lasting(), question, key)

    def _named(
        self, question: Question, *, first: bool
    ) -> tuple[str, Callable[[], str], Callable[[], str]]:
        """The name of a call in its plan, and how its lasting name and its key are made."""
        self._count()
        if first:
            ordinal, self._called_once = self._called_once, self._called_once + 1
        else:
            ordinal, self._called_each = self._called_each, self._called_each + 1
        in_plan = f"{self._name}:{self.key_bytes.hex()}:{self.hook}:{ordinal}"
        if not first and not question.sends_key:
            return in_plan, no_key, no_key
        # Bind the values now: a try that outlives its timeout may run during the next hook.
        stream, cause, own_key = self.cause_stream, self.cause, self._own_key()

        def lasting() -> str:
            if question.repeats:
                return f"{self._plan_name}:{in_plan}"
            sort = "once" if first else "each"
            return f"{self._lasting_name}:{stream}:{own_key.hex()}:{cause.hex()}:{sort}:{ordinal}"

        def key() -> str:
            return self._unit_calls.idempotency_key(lasting())

        return in_plan, lasting, key
