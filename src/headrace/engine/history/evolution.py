"""Refuses a start with code that cannot read the state, before anything is written or runs.

The contract in the log says which types the fields were stored with. Where a type has changed,
stored values are decoded with the new one: a type that reads them is no incompatible change. Values
lie in segments, and in the state store if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice

import msgspec

from headrace.errors import IncompatibleState
from headrace.model.computation import Computation
from headrace.pipeline.graph.topology import Topology
from headrace.plan.deploy.contract import Contract
from headrace.plan.deploy.fields import ChangedField, bare, changed_fields, lower_versions
from headrace.plan.deploy.handover import facts_of
from headrace.plan.ledger import Ledger
from headrace.state.backend import StateBackend
from headrace.state.values import applied_values, stored_values
from headrace.store.store import Store

VALUES = 10_000
"""How many stored values of a field are decoded, the newest first; of a state store, as many."""


def refuse_unreadable(
    store: Store,
    ledger: Ledger,
    contract: Contract,
    topology: Topology,
    opens: Callable[[], StateBackend] | None = None,
) -> None:
    """Raises IncompatibleState, with every field named, if this code cannot read the state.

    `opens` opens the state store, if there is one.
    """
    known = ledger.code.contract
    if known is None or known == contract:
        return
    facts = facts_of(ledger)
    refusals = list(lower_versions(known, contract, facts))
    changes = list(changed_fields(known, contract, facts))
    with ExitStack() as stack:
        backend: StateBackend | None = None
        if changes and opens is not None and ledger.applied.copies:
            backend = stack.enter_context(closing(opens()))
            backend.follow(ledger.applied.place)
        for change in changes:
            refusals += _refusal(store, ledger, topology, backend, change)
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
    slots = ledger.slots[change.stored_as].values()
    entries = {entry.segment: entry for slot in slots for entry in slot.entries}
    newest_first = sorted(entries.values(), key=lambda each: -each.last_epoch)
    found = [stored_values(store, newest_first, change.field, is_map=field.is_map)]
    if backend is not None:
        stored_as = ledger.applied.named(change.stored_as)
        found.append(applied_values(backend, stored_as, change.field, is_map=field.is_map))
    for values in found:
        for data in islice(values, VALUES):
            try:
                field.codec.decode(data)
            except msgspec.DecodeError as error:
                yield f"{where}, and a stored value does not fit ({error}): {how}, or keep the type"
                return
