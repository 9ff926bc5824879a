"""Imports state before the first epoch: the state of a computation from a table.

The import is epoch 1 of the checkpoint: an epoch that read nothing and has state. So the pipeline
goes on after it as after a restored backup, with segments and with every state store.

1. The table is checked against the fields of the computation, all of it, before anything is
   written.
2. Segments are written. A crash leaves files that no entry names; the import can be given again.
3. If the checkpoint has a state store, the cells are written there and synced: under an id or a
   name that nothing has used, so that what an interrupted import leaves there is never read.
4. One entry of the log holds the whole ledger: this is the moment at which the state is there. In a
   place without a checkpoint, IDENTITY is written last, as by a restore.

It is refused once an epoch has been planned: its hooks may have seen the state as it was. Several
computations are imported one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from headrace.engine.history.recovery import recover
from headrace.engine.leading.alone import refuse_a_leader
from headrace.engine.primitives.backups.restoring import begin_log, fill_store
from headrace.engine.primitives.imports.given import table_of
from headrace.engine.primitives.imports.rows import ImportedRows
from headrace.errors import IncompatibleState
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.entry import RESTORE
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.model.values.names import did_you_mean
from headrace.model.values.time import Instant, instant
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.plan.entries import RestoreBody
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice, SlotLedger
from headrace.plan.rings.manifest import earliest, first_slot, with_entries
from headrace.plan.rings.refs import RingRef
from headrace.plan.rings.ring import Ring
from headrace.plan.state.choice import IN_SEGMENTS, NAMES, StateChoice, refuse_other_state
from headrace.state.backend import OpenState
from headrace.state.backends.opening import opener_of
from headrace.state.segment import TIMER, Cell, encode_segment
from headrace.store.store import Store

EPOCH = 1
"""The epoch that an import is."""
SLOTS = 8
"""How many slots an imported computation has, if neither the call nor the pipeline says it."""


class ImportedState(msgspec.Struct, frozen=True):
    """What was imported."""

    pipeline: str
    computation: str
    rows: int
    """Rows of the input, one for each key."""
    keys: int
    """Keys that have state now: those whose row has something but initial values."""
    slots: int
    bytes: int
    location: str
    state: str
    """Where the checkpoint keeps its state, as `state=` names it."""


def import_state(
    topology: Topology,
    store: Store,
    computation: str,
    given: Any,
    *,
    key: str | Sequence[str] = (),
    written_at: Instant | None = None,
    slots: int | None = None,
    state: StateChoice = IN_SEGMENTS,
    opens: OpenState | None = None,
) -> ImportedState:
    """Fills the state of a computation of a pipeline that has not run yet.

    `opens` opens the state store, for tests.
    """
    node = _node(topology, computation)
    at = None if written_at is None else instant(written_at, what="written_at=")
    if at is None and node.shape.options.clock == "wall":
        at = int(store.system.wall_s() * 1e6)
    columns = (key,) if isinstance(key, str) else tuple(key)
    rows = ImportedRows(node, table_of(given, f"computation {computation!r}"), columns, at)
    number = slots or node.slots or SLOTS
    by_slot, keys = _by_slot(rows, number)
    place = _Place(topology, store, computation, state, opens or opener_of(state, store))
    place.prepare()
    store.make_directory(paths.state_directory(computation))
    reach("before-segment-write")
    manifests = {slot: _written(store, node, slot, by_slot.get(slot)) for slot in range(number)}
    reach("after-segment-write")
    place.commit(number, manifests, node)
    size = sum(entry.bytes for each in manifests.values() for entry in each.entries)
    return ImportedState(
        topology.graph.name, computation, rows.rows, keys, number, size, store.where(), state.shown
    )


def _node(topology: Topology, computation: str) -> Node:
    node = topology.keyed.get(computation)
    if node is None:
        have = ", ".join(topology.keyed) or "none"
        raise IncompatibleState(
            f"pipeline {topology.graph.name!r} has no computation {computation!r} with a key"
            f"{did_you_mean(computation, topology.keyed)}; it has: {have}"
        )
    if not node.shape.fields:
        raise IncompatibleState(f"computation {computation!r} declares no state to import")
    return node


def _by_slot(rows: ImportedRows, slots: int) -> tuple[dict[int, list[Cell]], int]:
    """The cells of each slot, and how many keys have any."""
    ring, found, keys = Ring.even(slots), [], 0
    for where, cells in rows.cells():
        keys += bool(cells)
        found.append((where, cells))
    owners = ring.place(np.array([where for where, _ in found], np.uint64))
    by_slot: dict[int, list[Cell]] = {}
    for (_, cells), slot in zip(found, owners.tolist(), strict=True):
        by_slot.setdefault(slot, []).extend(cells)
    return by_slot, keys


def _written(store: Store, node: Node, slot: int, cells: list[Cell] | None) -> SlotLedger:
    """The manifest of a slot, whose segment is written."""
    if not cells:
        return first_slot(slot)
    label = f"{node.name}/{slot}"
    data = encode_segment(cells, f"computation {node.name!r}, slot {slot} of the import")
    # Named for the open epoch: a driver that was paused in its collection deletes files of
    # closed epochs.
    name = paths.content_name(EPOCH + 1, label, digest_of(data), ".arrow")
    segment = f"{paths.state_directory(node.name)}/{name}"
    store.write(segment, data)
    entry = SegmentSlice(segment, EPOCH, len(cells), len(data), True)
    found = with_entries(first_slot(slot), (entry,), EPOCH, f"imported {segment}")
    timers = {
        clock: earliest(cell.time for cell in cells if cell.kind == TIMER and cell.field == clock)
        for clock in ("event", "wall")
    }
    return msgspec.structs.replace(
        found, next_event_timer=timers["event"], next_wall_timer=timers["wall"]
    )


class _Place:
    """A checkpoint that has not run yet, or a place for one."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        computation: str,
        state: StateChoice,
        opens: OpenState | None,
    ) -> None:
        self._pipeline, self._store = topology.graph.name, store
        self._computation, self._state, self._opens = computation, state, opens
        self._log: EpochLog | None = None
        self._ledger = Ledger()

    def prepare(self) -> None:
        """Refuses a place where no import can be; leads the log of a checkpoint."""
        store = self._store
        if paths.IDENTITY not in store.list(""):
            begun = (f"{paths.LOG}/", f"{paths.CELLS}/", f"{paths.STATE}/")
            for found in store.walk():
                if found is not None and not found.name.startswith(begun):
                    raise IncompatibleState(
                        f"{store.where()} is not empty (it has {found.name}), and no checkpoint: "
                        "choose a place of its own"
                    )
            store.make_directory("")
            return
        identity = read_identity(store)
        if identity is None or identity.pipeline != self._pipeline:
            owner = identity.pipeline if identity is not None else "no pipeline"
            raise IncompatibleState(
                f"the checkpoint {store.where()} belongs to pipeline {owner!r}, not "
                f"{self._pipeline!r}: choose another place"
            )
        log = EpochLog(store)
        history = recover(log, 1)
        self._check(history.ledger)
        refuse_a_leader(store, log)
        for position, entry in log.take_over():
            history.fold(position, entry)
        self._check(history.ledger)
        self._log, self._ledger = log, history.ledger
        if not self._ledger.identity:
            self._ledger.identity = identity.id

    def _check(self, ledger: Ledger) -> None:
        imported = ledger.epoch <= EPOCH and not ledger.ins and not ledger.splits
        if not imported or ledger.open_plan is not None:
            epoch = ledger.open_plan.epoch if ledger.open_plan is not None else ledger.epoch
            raise IncompatibleState(
                f"the checkpoint {self._store.where()} has run (epoch {epoch}), so no state can be "
                "imported: begin a new checkpoint with the import, or read the table as a stream"
            )
        if any(slot.entries for slot in ledger.slots.get(self._computation, {}).values()):
            raise IncompatibleState(
                f"the checkpoint {self._store.where()} has imported state of "
                f"{self._computation!r} already. To import it again, begin a new checkpoint, or "
                f"drop it: headrace state drop CHECKPOINT {self._computation} --all"
            )
        refuse_other_state(ledger, self._state, self._store.where())

    def commit(self, slots: int, manifests: dict[int, SlotLedger], node: Node) -> None:
        """Writes the entry of the log that has the state."""
        before, name = self._ledger, self._computation
        by_wall = (name,) if node.shape.options.clock == "wall" else ()
        ledger = msgspec.structs.replace(
            before,
            epoch=EPOCH,
            rings={**before.rings, name: RingRef.even(slots)},
            slots={**before.slots, name: manifests},
            by_wall=(*before.by_wall, *by_wall),
        )
        what = f"the import of {name}"
        log = self._log
        if log is None:
            begin_log(self._store, self._pipeline, ledger, what, self._fill)
            return
        ledger.generation, ledger.commit_position = log.generation, log.position + 1
        log.append(RESTORE, RestoreBody(what, self._fill(ledger)))

    def _fill(self, ledger: Ledger) -> Ledger:
        if self._opens is None:
            return ledger
        # In the checkpoint's directory each generation has a place of its own. On a server, what
        # an interrupted import has left would count, under the same name.
        if self._log is not None and self._state.name not in NAMES:
            token = self._store.system.token_hex(8)
            applied = ledger.applied.imported(self._computation, self._ledger.epoch, token)
            ledger = msgspec.structs.replace(ledger, applied=applied)
        return fill_store(self._store, self._opens, self._state, ledger)
