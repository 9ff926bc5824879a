"""Entries of the log, decoded; the manifests of each shard, folded from its own snapshot (J12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.limits import Limits
from headrace.log.entry import CHECKPOINT, COMMIT, DROP, LogEntry
from headrace.plan.entries import CheckpointBody, CommitBody
from headrace.plan.epoch import Drop
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.rings.folding import SlotManifests
from headrace.plan.rings.shards import ShardIndex, first_position, shard_of

_Body = TypeVar("_Body")


def begins_at(position: int, body: CommitBody) -> int | None:
    """The first position that a recovery from this commit's snapshot reads; None without one."""
    if body.snapshot is None:
        return None
    first = first_position(body.snapshot.shards)
    return position if first is None else min(first, position)


def fold_shards(
    entries: Sequence[tuple[int, LogEntry]], index: ShardIndex, limits: Limits
) -> dict[str, dict[int, SlotLedger]]:
    """The manifests after the last of these entries, each shard folded from its own snapshot."""
    found = SlotManifests({name: {} for name in index})
    begun: set[tuple[str, int]] = set()

    def skip(name: str, slot: int) -> bool:
        return (name, shard_of(slot, limits)) not in begun

    epoch = 0
    for position, entry in entries:
        if entry.kind == COMMIT:
            body = decode_body(position, entry, CommitBody)
            epoch = body.commit.epoch
            found.fold(body.commit, position, limits, skip)
            for name, of_name in body.shards.items():
                for number, content in of_name.items():
                    if index.get(name, {}).get(number, position + 1) <= position:
                        found.install(name, number, content, limits)
                        begun.add((name, number))
        elif entry.kind == CHECKPOINT:
            kept = decode_body(position, entry, CheckpointBody)
            found.adopted(kept.adoptions, position, skip)
        elif entry.kind == DROP:
            found.dropped(decode_body(position, entry, Drop), epoch, position, skip)
    return found.slots


def decode_body(position: int, entry: LogEntry, kind: type[_Body]) -> _Body:
    """The decoded body of an entry; CorruptCheckpoint if it is not of this kind."""
    try:
        return msgspec.json.decode(entry.body, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"log position {position} cannot be decoded: {error}") from None
