"""Dead letters: failed records and timers, sent with their error to the stream of `errors=`.

All dead letters are made and sent here. A dead letter is part of the output of an epoch, so its
text must be the same in every attempt.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import pyarrow as pa

from headrace.causal.lineage import production_identity, source_identity, source_origin
from headrace.errors import InvalidRecord, UserCodeError
from headrace.model.record import Record
from headrace.model.source import Rejected
from headrace.model.values.codec import NESTED_MAX, packed
from headrace.model.values.keys import decode_key
from headrace.model.values.rows import Rows
from headrace.model.values.shown import encodable, shown
from headrace.pipeline.graph.graph import Node, To
from headrace.plan.elastic.load import LetterNote, SlotNote
from headrace.plan.epoch import ReadTask
from headrace.plan.progress import counted
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.watching.tracebacks import trace_of
from headrace.worker.watching.watchdog import HookTimeout

Letter = dict[str, object]

NOTED_MAX = 2
"""How many dead letters of a unit of work are noted for people, in each epoch."""
NOTED_LENGTH = 200


class FailedHook(Exception):
    """Carries a failed hook to the error policy: the hook, its record or timer, and the error."""

    def __init__(self, hook: tuple[Any, ...], record: Record[Any] | None, error: Exception) -> None:
        super().__init__()
        self.hook, self.record, self.error = hook, record, error

    def describe_cause(self) -> str:
        """The record or timer for which the hook failed, as text for a message."""
        if self.record is not None:
            return f"record {shown(self.record.value)} of {self.record.stream!r}"
        _, clock, at, entry = self.hook
        return f"{clock} timer {decode_key(entry)!r} at {at}"


def takes_letter(policy: object, error: BaseException) -> TypeGuard[To]:
    """Whether the `errors=` policy sends this error to a stream. Otherwise it stops the run."""
    return isinstance(policy, To) and isinstance(error, policy.only)


def letter_of(
    emitter: Emitter,
    node: Node,
    key: object,
    stream: str | None,
    value: object,
    timestamp: int | None,
    error: BaseException,
) -> Letter:
    """The dead letter of a record or, if there is no stream, of a timer."""
    return {
        "computation": node.name,
        "stream": stream,
        "key": key,
        "value": value,
        "timestamp": timestamp,
        "epoch": emitter.order.plan.epoch,
        "error": f"{type(error).__name__}: {error}",
        # The line at which a hook was stopped differs between attempts.
        "traceback": "" if isinstance(error, HookTimeout) else trace_of(error),
    }


def send_unread(emitter: Emitter, policy: To, read: ReadTask, bad: Rejected) -> None:
    """Sends a dead letter for input of a source that could not be read as a record."""
    plan = emitter.order.plan
    letter: Letter = {
        "stream": read.stream, "split": read.split, "position": bad.position, "value": bad.raw,
        "error": bad.reason, "epoch": plan.epoch,
    }  # fmt: skip
    origin = source_origin(read.split, bad.position)
    identity = source_identity(read.stream, read.split, bad.position)
    send(emitter, policy, letter, plan.wall, origin, identity)


def send(
    emitter: Emitter,
    policy: To,
    letter: Letter,
    timestamp: int,
    origin: bytes,
    identity: bytes = b"",
) -> None:
    """Sends a dead letter. `identity` is the identity of the failed record or timer."""
    if policy.stream in emitter.runtime.topology.needs_identity:
        origin += production_identity("dead letter", b"", identity, 0)
    owner = str(letter.get("computation") or letter.get("stream"))
    counters = emitter.counters
    counters.dead += 1
    counters.dead_of[owner] = sent = counters.dead_of.get(owner, 0) + 1
    if policy.limit is not None and sent > policy.limit:
        raise UserCodeError(
            f"{owner!r} sent more than {counted(policy.limit, 'record')} to "
            f"{policy.stream!r} in one epoch; the last one: {letter.get('error')}. This "
            "epoch had no effect: fix the input, or raise limit="
        )
    if sent <= NOTED_MAX:
        _note(emitter, owner, letter)
    rows = Rows.of([_sendable(letter)], [timestamp])
    rows.origins = pa.array([origin], pa.binary())
    emitter.emit(policy.stream, rows)


def _note(emitter: Emitter, owner: str, letter: Letter) -> None:
    """Notes a dead letter for people who look at the run (K2); only a note, so it may be lost."""
    texts = [
        "" if (given := letter.get(name)) is None else _in_short(given)
        for name in ("error", "stream", "key", "value")
    ]
    noted = LetterNote(owner, *texts)
    epoch = emitter.order.plan.epoch
    emitter.runtime.note(SlotNote(epoch, emitter.label, 0, letters=(noted,)))


def _in_short(given: object) -> str:
    text = encodable(given) if isinstance(given, str) else shown(given)
    return text if len(text) <= NOTED_LENGTH else f"{text[: NOTED_LENGTH - 3]}..."


def _sendable(letter: Letter) -> Letter:
    """The dead letter, with values that cannot be encoded replaced by text."""
    made: Letter = {}
    for name, given in letter.items():
        try:
            packed(given, depth=NESTED_MAX)
            made[name] = given
        except InvalidRecord:
            made[name] = encodable(given) if isinstance(given, str) else shown(given)
    return made
