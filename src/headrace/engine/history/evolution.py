"""Refuses a start with code that cannot read the state, before anything is written or runs.

The contract in the log says which types the fields were stored with. Where a type has changed, all
stored values are decoded with the new one, some at a time: a type that reads them is no
incompatible change. Values lie in segments, and in the state store if there is one. Where the new
type only adds alternatives to the old one, nothing has to be read. Open windows bear a checksum of
what has made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, islice

import msgspec

from headrace.errors import IncompatibleState
from headrace.log.rings import resolve
from headrace.model.computation import Computation
from headrace.model.map import check_key
from headrace.model.state import Field
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key
from headrace.model.values.time import BEGINNING
from headrace.pipeline.graph.topology import Topology
from headrace.plan.deploy.contract import Contract
from headrace.plan.deploy.fields import (
    ChangedField,
    bare,
    changed_fields,
    lower_versions,
    other_windows,
)
from headrace.plan.deploy.handover import facts_of
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice
from headrace.plan.rings.ring import NOWHERE
from headrace.state.backend import StateBackend, StateView
from headrace.state.backends.applied_view import AppliedView
from headrace.state.values import applied_values, living_entries, stored_values, unless_lost
from headrace.state.view import SlotView, open_view
from headrace.store.store import Store
from headrace.system import System

TELL_EVERY_S = 5.0
"""Where values are read for longer, somebody is told how far it has come, so often."""
_VALUES_AT_ONCE = 10_000
_OPEN = "open"
"""The map in which windows are kept; each of its entries begins with a checksum of its maker."""


def refuse_unreadable(
    store: Store,
    ledger: Ledger,
    contract: Contract,
    topology: Topology,
    opens: Callable[[], StateBackend] | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> None:
    """Raises IncompatibleState, with every field named, if this code cannot read the state.

    `opens` opens the state store, if there is one; `told` is called where it takes a while.
    """
    known = ledger.code.contract
    if known is None or known == contract:
        return
    facts = facts_of(ledger)
    refusals = list(lower_versions(known, contract, facts))
    changes = list(changed_fields(known, contract, facts))
    windows = list(other_windows(known, contract, facts))
    with ExitStack() as stack:
        backend: StateBackend | None = None
        if (changes or windows) and opens is not None and ledger.applied.copies:
            backend = stack.enter_context(closing(opens()))
            backend.follow(ledger.applied.place)
        for change in changes:
            refusals += _refusal(store, ledger, topology, backend, change, told)
        for name, stored_as in windows:
            refusals += _other_windows(store, ledger, topology, backend, name, stored_as)
    if refusals:
        raise IncompatibleState(
            f"this code of pipeline {contract.pipeline!r} cannot read the state in "
            f"{store.where()}:\n- " + "\n- ".join(refusals)
        )


def _refusal(
    store: Store,
    ledger: Ledger,
    topology: Topology,
    backend: StateBackend | None,
    change: ChangedField,
    told: Callable[[str], None],
) -> Iterator[str]:
    shape = topology.keyed[change.computation].shape
    field = next(each for each in shape.fields if each.name == change.field)
    where = (
        f"computation {change.computation!r}: field {change.field!r} is stored as "
        f"{bare(change.was)} and is {bare(change.now)} in this code"
    )
    migrates = shape.cls.migrate.__func__ is not Computation.migrate.__func__  # type: ignore[attr-defined]
    if change.raised and migrates:
        return
    how = "give it migrate()" if change.raised else "raise version= and give it migrate()"
    if change.is_other_kind:
        yield f"{where}: {how}, or give the new one another name"
        return
    if change.only_adds:
        return
    entries = _newest_first(ledger, change.stored_as)
    found = [stored_values(store, entries, change.field, is_map=field.is_map)]
    if backend is not None:
        stored_as = ledger.applied.named(change.stored_as)
        found.append(applied_values(backend, stored_as, change.field, is_map=field.is_map))
    fits = partial(_read, field, keys=change.is_keyed_otherwise)
    reading = f"{where}: all stored values are read, because its type has changed"
    try:
        _read_all(store.system, chain.from_iterable(found), fits, told, reading)
    except (msgspec.DecodeError, TypeError) as error:
        yield f"{where}, and a stored value does not fit ({error}): {how}, or keep the type"


def _other_windows(
    store: Store,
    ledger: Ledger,
    topology: Topology,
    backend: StateBackend | None,
    name: str,
    stored_as: str,
) -> Iterator[str]:
    """A refusal if windows are open that this code would misread."""
    node = topology.keyed[name]
    maker = getattr(node.template, "maker", None)
    codec = next(field.codec for field in node.shape.fields if field.name == _OPEN)
    found = living_entries(_view(store, ledger, backend, stored_as), _OPEN)
    if any(decode_value(codec.decode(value))[0] != maker for value in found):
        yield (
            f"computation {name!r}: windows are open that were made by another window or by other "
            "aggregates than it has in this code. Let the former code run until they have closed, "
            'or give the step another name, .named("..."), under which it starts without state'
        )


def _view(
    store: Store, ledger: Ledger, backend: StateBackend | None, computation: str
) -> StateView:
    """The state of a computation after the last epoch, without changes that are lost."""
    mark = BEGINNING if backend is None else ledger.applied.epoch
    ring = resolve(store, ledger.rings[computation])
    newer = SlotView([], NOWHERE, [], {})
    for number, slot in ledger.slots[computation].items():
        entries = unless_lost(store, (each for each in slot.entries if each.last_epoch > mark))
        newer.join(open_view(store, entries, ring.records(number), slot.classes))
    if backend is None:
        return newer
    found = AppliedView(backend, ledger.applied.named(computation))
    found.turn(newer, ledger.epoch, backend.marks().run)
    return found


def _newest_first(ledger: Ledger, computation: str) -> list[SegmentSlice]:
    """The segments of a computation."""
    slots = ledger.slots[computation].values()
    entries = {entry.segment: entry for slot in slots for entry in slot.entries}
    return sorted(entries.values(), key=lambda each: -each.last_epoch)


def _read(field: Field, entry: bytes, value: bytes, *, keys: bool) -> None:
    """Reads a stored value as code does, and with `keys` the key of a map's entry, too."""
    field.codec.decode(value)
    if keys:
        check_key(decode_key(entry), field.key_type, field.name)


def _read_all(
    system: System,
    values: Iterator[tuple[bytes, bytes]],
    read: Callable[[bytes, bytes], None],
    told: Callable[[str], None],
    what: str,
) -> None:
    """Reads values; tells now and then how many they were so far."""
    count, told_s = 0, system.uptime_s()
    while some := list(islice(values, _VALUES_AT_ONCE)):
        for entry, value in some:
            read(entry, value)
        count += len(some)
        if system.uptime_s() - told_s >= TELL_EVERY_S:
            told_s = system.uptime_s()
            told(f"{what}; {count:,} so far")
