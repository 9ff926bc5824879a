"""A slot in a worker's cache, and the same slot as a task uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.plan.rings.chains import next_chain
from headrace.plan.rings.ring import SlotRecords
from headrace.plan.state.applied import AppliedBase
from headrace.state.backend import StateBackend
from headrace.state.backends.applied_view import AppliedView
from headrace.state.objects import ObjectCache
from headrace.state.times.orders import INDEXES
from headrace.state.times.timeindex import Changes
from headrace.state.times.windowed import KeysOfTask, WindowedIndex
from headrace.state.view import SlotView


class Pending:
    """The changes of a task, to be adopted if its delta is committed."""

    __slots__ = ("chain", "changes", "objects")

    def __init__(
        self, chain: str, changes: Mapping[str, Changes], objects: list[tuple[bytes, Any, bool]]
    ) -> None:
        self.chain, self.changes, self.objects = chain, changes, objects


class CachedSlot:
    """One slot of one computation at a committed epoch."""

    def __init__(self, chain: str, epoch: int, records: SlotRecords, objects: ObjectCache) -> None:
        self.chain = chain
        self.epoch = epoch
        self.records = records
        """The intervals that it holds cells of."""
        self.indexes = {name: WindowedIndex(name, {}) for name in INDEXES}
        self.objects = objects
        self.pending: Pending | None = None
        self.applied: AppliedView | None = None
        """What maps of cached objects read through, if there is a state store."""
        self.cells = self.bytes = 0
        """What of the memory of all slots it takes, as last counted: timed cells, objects."""
        self.opened_at = 0
        """Which opening of a slot in this process was its last."""

    @property
    def all_in_memory(self) -> bool:
        """Whether all timed cells are in memory."""
        return all(index.is_open for index in self.indexes.values())

    @property
    def knows_no_times(self) -> bool:
        """Whether nothing is known of timed cells."""
        return all(index.is_closed for index in self.indexes.values())

    def forget_times(self) -> None:
        """Forgets all timed cells. They are read from the segments as they are needed."""
        self.indexes = {name: WindowedIndex(name) for name in INDEXES}


class OpenSlot:
    """The state that a task uses: the view, indexes and objects of its base."""

    def __init__(
        self,
        cached: CachedSlot,
        keys: KeysOfTask,
        *,
        cold: bool = False,
        newer: Callable[[int], SlotView] | None = None,
    ) -> None:
        """`newer` shows the segments of epochs after a given one."""
        self._cached = cached
        self._newer = newer
        self.view = keys.view
        self.cold = cold
        """Whether the slot came to this process without anything of it in memory."""
        self.indexes = cached.indexes
        self.objects = cached.objects
        self._keys = keys
        for index in self.indexes.values():
            index.bind(keys)

    def expect(self, keys: Sequence[bytes], hashes: Any = None) -> None:
        """The task will touch these keys: if their timers must be read, it is done at once."""
        self._keys.expect(keys, hashes)

    def over(
        self, backend: StateBackend, computation: str, epoch: int, applied: AppliedBase
    ) -> AppliedView:
        """The slot's fields and entries after `epoch`: its unapplied segments over a state store.

        `computation` is its name in the store.
        """
        if self._newer is None:
            raise RuntimeError("a slot was opened without its segments")
        view = self._cached.applied
        if view is None or view.backend is not backend or view.computation != computation:
            view = self._cached.applied = AppliedView(backend, computation)
        view.turn(self._newer(applied.epoch), epoch, applied.run)
        return view

    def leave(
        self,
        segment: str | None,
        changes: Mapping[str, Changes],
        objects: list[tuple[bytes, Any, bool]],
    ) -> None:
        """At the end of a task: keeps its changes as pending, until a plan names their chain."""
        chain = next_chain(self._cached.chain, segment)
        self._cached.pending = Pending(chain, changes, objects)
