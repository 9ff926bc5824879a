"""What a checkpoint of state has made durable: the fragments, as the log names them (M3)."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.history.shards import decode_body
from headrace.log.entry import CHECKPOINT, COMMIT
from headrace.log.epochlog import EpochLog
from headrace.plan.entries import CheckpointBody, CommitBody
from headrace.plan.epoch import Adoption
from headrace.plan.ledger import Ledger
from headrace.plan.rings.manifest import with_adoption
from headrace.store.store import Store


def fragments_of(store: Store, checkpoint: int) -> tuple[list[Adoption], int]:
    """What the entry that says this checkpoint adopts, and its position; position 0: none."""
    for position, entry in EpochLog(store).backwards():
        if entry.kind == CHECKPOINT:
            kept = decode_body(position, entry, CheckpointBody)
            if kept.interval.checkpoint == checkpoint:
                return kept.adoptions, position
        elif entry.kind == COMMIT:
            commit = decode_body(position, entry, CommitBody).commit
            if commit.interval is not None and commit.interval.checkpoint == checkpoint:
                return commit.adoptions, position
            if commit.epoch <= checkpoint:
                break
    return [], 0


def adopt(ledger: Ledger, adoptions: Iterable[Adoption], position: int) -> None:
    """Puts fragments in the place of deltas that were only written.

    Other merges of the same commit stay out: a ledger of the past need not have what they took.
    """
    is_fragment = False
    for adoption in adoptions:
        slots = ledger.slots.get(adoption.computation, {})
        state = slots.get(adoption.slot)
        if state is None:
            continue  # a renamed computation: other code, which is refused
        if adoption.replaces:  # the further pieces of a fragment replace nothing
            gone = set(adoption.replaces)
            is_fragment = any(e.written and (e.segment, e.of) in gone for e in state.entries)
        if is_fragment:
            slots[adoption.slot] = with_adoption(state, adoption, position)
