"""Reads a checkpoint from outside, without running anything, and works with its state as a whole.

Checkpoint("state/orders").get("Orders", "o1")   ->  {"status": "paid", ...}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from headrace.engine.history.epoch_at import kept_epochs
from headrace.engine.history.recovery import History, recover
from headrace.engine.primitives import diff as differences
from headrace.engine.primitives import sql as queries
from headrace.engine.primitives.backups.taking import BackupReport, back_up
from headrace.engine.primitives.compact import Compacted, compact_stopped
from headrace.engine.primitives.epoch_state import EpochState, State
from headrace.engine.primitives.export import Exported, as_table, declared_fields, export
from headrace.engine.primitives.parts import StatePart
from headrace.engine.primitives.pinning import Moment, ledger_of, pinned_state, say_older
from headrace.engine.primitives.stores.standing import standing_state
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.primitives.verified import Verified
from headrace.engine.primitives.verify import verify_checkpoint
from headrace.engine.upkeep.pins import HeldPin
from headrace.errors import CorruptCheckpoint, IncompatibleState, StoreError
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.plan.control import Savepoint
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import refuse_without_history
from headrace.state.backend import OpenState, PlaceGone, StateView, Stored
from headrace.state.backends.moment import TRIES_MAX
from headrace.state.values import lost_of
from headrace.store.location import checkpoint_store, no_checkpoint
from headrace.store.store import Store

_KEEP_EVERY = 1000
_RETURNS_MAX = 3
"""How often a look goes back to the last durable epoch: a running pipeline makes others."""

Place = str | os.PathLike[str] | Store
Pinned = tuple[EpochState, HeldPin]
_Found = TypeVar("_Found")


class KeyLookup(msgspec.Struct, frozen=True):
    """The state of a key, and the epoch that left it."""

    epoch: int
    state: State | None
    """None if the key has no state."""


class Checkpoint:
    """A checkpoint as its last commit left it, or as a past epoch or a savepoint did."""

    def __init__(
        self,
        path: Place,
        *,
        at: Moment = None,
        state: str | None = None,
        opens: OpenState | None = None,
    ) -> None:
        """`at`: the number of a past epoch that is still kept, or the name of a savepoint.
        `state`: where fields and maps are kept, as the run was given it; needed only where it has a
        password. `opens` opens that store, for tests."""
        self._store = checkpoint_store(path)
        identity = read_identity(self._store)
        if identity is None:
            raise no_checkpoint(self._store)
        self.id = identity.id
        self.pipeline = identity.pipeline
        self._at = at
        self._access = StoreAccess(self._store, state, opens)
        self._log, self._history = self._recovered()
        ledger = self._history.ledger
        if at is not None:
            refuse_without_history(ledger, "looking at a past epoch")
            ledger = ledger_of(self._store, at)
        self._state = EpochState(self._store, ledger, self._access)

    def _recovered(self) -> tuple[EpochLog, History]:
        log = EpochLog(self._store)
        return log, recover(log, 1)

    def refresh(self) -> Checkpoint:
        """Reads on to the last commit; returns itself. What was opened before stays as it is."""
        if self._at is not None:
            return self
        first = self._log.position + 1
        entries = list(self._log.follow())
        if self._log.is_trimmed(first):
            self._log, self._history = self._recovered()
        else:
            for position, entry in entries:
                self._history.fold(position, entry)
        self._state = EpochState(self._store, self._history.ledger, self._access)
        return self

    @property
    def epoch(self) -> int:
        """The last committed epoch; or the epoch that was asked for."""
        return self._state.epoch

    @property
    def kept_in(self) -> str:
        """Where fields and maps are kept, as `state=` names it; no password."""
        return self._state.kept_in or SEGMENTS

    @property
    def epochs(self) -> list[int]:
        """The past epochs of which every file is kept: `headrace replay` can run them again."""
        return [] if self._state.goes_on else kept_epochs(self._store)

    @property
    def savepoints(self) -> list[Savepoint]:
        """The savepoints, oldest first."""
        found = self._history.ledger.control.savepoints.values()
        return sorted(found, key=lambda each: (each.epoch, each.name))

    @property
    def watermarks(self) -> dict[str, int]:
        """The input watermark of every computation."""
        return dict(self._state.ledger.ins)

    @property
    def computations(self) -> list[str]:
        """The computations that have state in this checkpoint."""
        return self._state.computations

    def fields(self, computation: str) -> dict[str, str]:
        """The fields of a computation with their types, as the code in force declares them; {} if
        it is not known."""
        self._state.require(computation)
        return declared_fields(self._state, computation)

    def sizes(self, computation: str) -> tuple[int, int, int]:
        """(slots, segments, bytes) of a computation."""
        self._state.require(computation)
        slots = self._state.ledger.slots[computation]
        sizes = {e.segment: e.bytes for slot in slots.values() for e in slot.entries}
        return len(slots), len(sizes), sum(sizes.values())

    # Looking --------------------------------------------------------------

    def _again(self, act: Callable[[EpochState], _Found]) -> _Found:
        """Reads; looks again where a running pipeline has collected a file before it was opened, or
        has gone on with its state store (O8)."""
        returns = 0
        for _ in range(TRIES_MAX):
            try:
                found = act(self._state)
                if self._state.is_moment():
                    return found
                self.refresh()
            except PlaceGone:
                self.refresh()
            except CorruptCheckpoint:
                position = self._log.position  # an entry may adopt a checkpoint without an epoch
                if returns < _RETURNS_MAX and self._go_back():
                    returns += 1
                elif returns == _RETURNS_MAX:
                    raise
                elif self.refresh()._log.position == position:
                    self._refuse_lost()
                    raise
        raise StoreError(
            f"{self._store.where()} could not be read as of one epoch in {TRIES_MAX} tries: the "
            "pipeline went on meanwhile; read fewer keys at once, or pause the pipeline"
        )

    def _go_back(self) -> bool:
        """Looks at the last durable epoch from now on, until `refresh`, if what came after it lies
        on executors' own disks; returns whether it does."""
        ledger = self._state.ledger
        durable = ledger.interval.durable(ledger.epoch)
        if self._at is not None or not self._store.is_far or durable in (0, ledger.epoch):
            return False
        try:
            self._state = EpochState(self._store, ledger_of(self._store, durable), self._access)
        except IncompatibleState:
            return False  # it is not kept any more: the pipeline has made another checkpoint
        say_older(self._store, durable, ledger.epoch)
        return True

    def _refuse_lost(self) -> None:
        """Raises if changes are lost that were not durable yet: that is no damage (M5)."""
        slots_of = self._state.ledger.slots.values()
        entries = [e for slots in slots_of for slot in slots.values() for e in slot.entries]
        if lost := lost_of(self._store, entries):
            raise StoreError(
                f"{len(lost)} changes of state in {self._store.where()} were not durable yet, and "
                "are lost, or lie on executors' own disks; read again after the next checkpoint "
                "(`headrace state checkpoint` asks for one), or look at a savepoint"
            )

    def view(self, computation: str) -> StateView:
        """All segments of a computation as one map of cells.

        A running pipeline may collect a segment just before it is opened here; then this method
        retries with the newest commit. An open segment can be read to its end.
        """
        return self._again(lambda state: state.view(computation))

    def stored(self, computation: str, key: Any) -> Stored:
        """The cells of one key."""
        return self._again(lambda state: state.stored(computation, key))

    def get(self, computation: str, key: Any) -> State | None:
        """The state of one key; None if it has none."""
        return self.lookup(computation, key).state

    def lookup(self, computation: str, key: Any) -> KeyLookup:
        """The state of one key, and the epoch that left it. `refresh()` first to look at now."""
        return self._again(lambda state: KeyLookup(state.epoch, state.get(computation, key)))

    def scan(self, computation: str) -> Iterator[tuple[Any, State]]:
        """(key, state) of every key, in the order of hashes."""
        return self._whole("a scan", computation, lambda state: state.scan(computation))

    def clock(self, computation: str) -> int:
        """The time by which TTLs expire: the watermark, or the wall clock of the last plan."""
        return self._state.clock(computation)

    def diff(
        self, before: int | str, after: Moment = None, computation: str | None = None
    ) -> Iterator[differences.KeyChange]:
        """What changed between two epochs, or savepoints, that are both kept; key by key."""
        refuse_without_history(self._history.ledger, "comparing epochs")
        with ExitStack() as pins:
            held = [
                pins.enter_context(pinned_state(self._store, moment, "a comparison"))
                for moment in (before, self._at if after is None else after)
            ]
            changes = differences.diff(held[0][0], held[1][0], computation)
            for number, change in enumerate(changes):
                if number % _KEEP_EVERY == 0:
                    for _, pin in held:
                        pin.keep()
                yield change

    def table(self, computation: str) -> pa.Table:
        """The state of a computation as an Arrow table: a row per key, a column per field."""
        return self._whole("a table", computation, lambda state: as_table(state, computation))

    def sql(self, query: str, computation: str | None = None) -> pa.Table:
        """The result of a query in DuckDB. Tables are the computations that it names.

        Where `computation` is given, it is the table `state` as well.
        """
        with self._queried(query, computation) as (state, pin):
            with queries.query(state, query, computation, pin) as found:
                return queries.table_of(found)

    def rows(self, query: str, computation: str | None = None) -> Iterator[dict[str, Any]]:
        """The rows of the result of a query, one by one, as `sql` finds them."""
        with self._queried(query, computation) as (state, pin):
            with queries.query(state, query, computation, pin) as found:
                yield from queries.rows_of(found)

    # Copies, checks, parts ------------------------------------------------

    def export(self, computation: str, to: Place) -> Exported:
        """Writes the state of a computation as Parquet into an empty directory or URL."""
        with self._standing("an export", computation) as (state, pin):
            return export(state, computation, to, self.pipeline, pin)

    def backup(self, to: Place) -> BackupReport:
        """Copies the state of the last epoch into another store, while the pipeline runs.

        A place holds any number of backups of one checkpoint. If this was interrupted, call it
        again: it goes on. See `Backup.restore`.
        """
        return back_up(self._store, checkpoint_store(to), self._at, self._access)

    def verify(self) -> Verified:
        """Checks every file: checksums, what commits name, and what nobody names."""
        return verify_checkpoint(self._store, self._access)

    def compact(self, computation: str | None = None) -> Compacted:
        """Merges all segments of each slot of a stopped pipeline; `Remote.compact` asks a running
        one."""
        return compact_stopped(self._store, computation)

    def part(self, computation: str) -> StatePart:
        """All cells of a computation, to be cut (`partition`), spilled or trimmed."""

        def opened(state: EpochState) -> StatePart:
            view = state.segments(computation)
            return StatePart(computation, state.epoch, state.clock(computation), view)

        return self._whole("a part of the state", computation, opened)

    # State that stands still ----------------------------------------------

    def _whole(self, purpose: str, computation: str, act: Callable[[EpochState], _Found]) -> _Found:
        """Reads all keys of a computation; those of a state store from a copy."""
        if not self._state.goes_on:
            return self._again(act)
        with self._standing(purpose, computation) as (state, _):
            return act(state)

    def _standing(self, purpose: str, *names: str) -> AbstractContextManager[Pinned]:
        return standing_state(self._store, self._at, purpose, self._access, lambda _: names)

    def _queried(self, query: str, computation: str | None) -> AbstractContextManager[Pinned]:
        def chosen(state: EpochState) -> list[str]:
            named = {*queries.tables_in(query, state.computations)}
            return sorted(named if computation is None else {*named, computation})

        return standing_state(self._store, self._at, "a query", self._access, chosen)
