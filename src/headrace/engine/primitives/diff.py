"""What two epochs differ in: key by key, field by field, entry by entry.

Only keys that can differ are read: those in segments that one of the two manifests has and the
other has not, and those of which a cell expired in between. Where the ring of a computation
changed, all its keys are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from headrace.engine.primitives.epoch_state import (
    KEYS_AT_ONCE,
    EpochState,
    State,
    plain_state,
)
from headrace.errors import IncompatibleState
from headrace.log.rings import resolve
from headrace.model.values.codec import encode_value
from headrace.model.values.keys import decode_key
from headrace.plan.rings.classes import SegmentSlice, SlotLedger
from headrace.plan.rings.ring import NOWHERE
from headrace.state.segment import ENTRY, FIELD, Segment
from headrace.state.view import Counting, SlotView

Place = tuple[int, bytes]
"""(hash, key)."""


class KeyChange(msgspec.Struct, frozen=True):
    """How the state of one key differs. Each side holds only what the other has not, or has
    otherwise: fields, and entries of maps."""

    computation: str
    key: Any
    before: State
    after: State
    maps: tuple[str, ...] = ()
    """Which of the names are maps: these are compared entry by entry."""
    added: bool = False
    """Whether the key had no state before."""
    removed: bool = False
    """Whether the key has no state after."""


def diff(
    before: EpochState, after: EpochState, computation: str | None = None
) -> Iterator[KeyChange]:
    """The changes from one state to another, of one computation or of all."""
    names = sorted({*before.computations, *after.computations})
    if computation is not None and computation not in names:
        have = ", ".join(names) or "none"
        raise IncompatibleState(
            f"neither epoch {before.epoch} nor epoch {after.epoch} has a computation "
            f"{computation!r}; there are: {have}"
        )
    for name in names if computation is None else [computation]:
        yield from _diff(before, after, name)


def applied(state: State | None, change: KeyChange) -> State | None:
    """The state of a key after a change; None if it has none."""
    found = dict(state or {})
    for name in {*change.before, *change.after}:
        if name not in change.maps:
            found.pop(name, None)
            if name in change.after:
                found[name] = change.after[name]
            continue
        entries = dict(found.get(name, {}))
        for entry in change.before.get(name, {}):
            entries.pop(entry, None)
        entries.update(change.after.get(name, {}))
        if entries:
            found[name] = entries
        else:
            found.pop(name, None)
    return found or None


def _diff(before: EpochState, after: EpochState, name: str) -> Iterator[KeyChange]:
    old, new = _opened(before, name), _opened(after, name)
    clocks = before.clock(name), after.clock(name)
    places = sorted(_candidates(before, after, name, old, new))
    for start in range(0, len(places), KEYS_AT_ONCE):
        some = places[start : start + KEYS_AT_ONCE]
        keys, hashes = [key for _, key in some], np.array([h for h, _ in some], np.uint64)
        sides = [view.fetch(keys, hashes, maps=True) for view in (old, new)]
        for key, was, now in zip(keys, *sides, strict=True):
            maps = {*was.map_names(key), *now.map_names(key)}
            states = plain_state(was, key, clocks[0]), plain_state(now, key, clocks[1])
            change = _compared(name, decode_key(key), *states, maps)
            if change is not None:
                yield change


def _compared(
    computation: str, key: Any, was: State, now: State, maps: set[str]
) -> KeyChange | None:
    """How two states of a key differ; values are compared as they are stored, so 1 is not True."""
    left: State = {}
    right: State = {}
    for name in [*was, *(each for each in now if each not in was)]:
        one, other = was.get(name), now.get(name)
        if name in maps and not all(isinstance(each, dict | None) for each in (one, other)):
            maps = maps - {name}  # a field that has the name of a former map
        if name in maps:
            here, there = one or {}, other or {}
            gone = {e: v for e, v in here.items() if e not in there or not _same(v, there[e])}
            come = {e: v for e, v in there.items() if e not in here or not _same(v, here[e])}
            if gone:
                left[name] = gone
            if come:
                right[name] = come
        elif name not in was or name not in now or not _same(one, other):
            if name in was:
                left[name] = one
            if name in now:
                right[name] = other
    if not left and not right:
        return None
    named = tuple(sorted(maps & {*left, *right}))
    return KeyChange(computation, key, left, right, named, not was, not now)


def _same(one: Any, other: Any) -> bool:
    try:
        return encode_value(one) == encode_value(other)
    except (TypeError, ValueError, OverflowError):
        return bool(one == other)


def _opened(state: EpochState, name: str) -> SlotView:
    if name in state.ledger.slots:
        return state.segments(name)
    return SlotView([], NOWHERE, [], {})


def _candidates(
    before: EpochState, after: EpochState, name: str, old: SlotView, new: SlotView
) -> set[Place]:
    rings = before.ledger.rings.get(name), after.ledger.rings.get(name)
    if rings[0] is None or rings[1] is None or rings[0].digest != rings[1].digest:
        return {*old.scan(), *new.scan()}
    found: set[Place] = set()
    here, there = before.ledger.slots[name], after.ledger.slots[name]
    for slot in {*here, *there}:
        one, other = here.get(slot, SlotLedger()), there.get(slot, SlotLedger())
        shared: set[SegmentSlice] = set()
        if one.classes == other.classes:  # otherwise a segment may count elsewhere
            shared = {*one.entries} & {*other.entries}
        found.update(_keys_of(before, name, slot, one, [e for e in one.entries if e not in shared]))
        found.update(
            _keys_of(after, name, slot, other, [e for e in other.entries if e not in shared])
        )
    low, high = sorted((before.clock(name), after.clock(name)))
    for view in (old, new) if low != high else ():
        found.update(_expiring(view, low, high))
    return found


def _keys_of(
    state: EpochState, name: str, slot: int, manifest: SlotLedger, entries: Sequence[SegmentSlice]
) -> Iterator[Place]:
    if not entries:
        return
    records = resolve(state.store, state.ledger.rings[name]).records(slot)
    counting = Counting(records, manifest.classes)
    for entry in entries:
        segment = Segment.open(state.store, entry.segment, entry.at)
        for low, high in zip(*counting.rows(entry, segment), strict=True):
            hashes = segment.hashes[low:high].tolist()
            yield from zip(hashes, segment.keys.slice(low, high - low).to_pylist(), strict=True)


def _expiring(view: SlotView, low: int, high: int) -> Iterator[Place]:
    """Keys with a field or an entry that lives at one of two times and not at the other."""
    for segment, first, last in view.parts:
        kinds, expires = segment.kinds[first:last], segment.expires[first:last]
        between = (expires > low) & (expires <= high) & np.isin(kinds, (FIELD, ENTRY))
        rows = np.flatnonzero(between) + first
        yield from zip(segment.hashes[rows].tolist(), *segment.rows(rows, "key"), strict=True)
