"""A pipeline in a worker process: topology, live computations, caches, the store.

It is built once per process and pipeline. `setup` of each computation runs once, here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from headrace.allocators import share_arenas
from headrace.errors import IncompatibleState, UserCodeError
from headrace.model.computation import Computation, Shape, object_class
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.plan.counters import Counters
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import WorkOrder
from headrace.state.backend import OpenState, StateBackend
from headrace.state.cache import WorkerCache
from headrace.store.store import Store
from headrace.worker.watching.tracebacks import shortened
from headrace.worker.watching.watchdog import HookWatch, watching


class Live:
    """A computation after its `setup`: the class of its key objects and its shape."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.shape: Shape = node.shape
        # Keep what setup() opens in a copy: the pipeline may have to be pickled again.
        template = copy.copy(node.template)
        watch = HookWatch(node, hook="setup()")
        try:
            with watching(watch):
                watch.begin()
                template.setup()
        except Exception as error:
            raise UserCodeError(
                f"setup() of computation {node.name!r} failed: {type(error).__name__}: {error}\n"
                f"{shortened(error)}".rstrip()
            ) from error
        self.template: Computation = template
        self.object_class = object_class(template, self.shape.fields)

    def check_nothing_kept(self, obj: Computation) -> None:
        """Checks that a keyless hook set no attribute: without a key there is no state."""
        if left := vars(obj):
            names = ", ".join(left)
            left.clear()
            raise AttributeError(
                f"{self.shape.cls.__qualname__} assigned {names} in a hook, but has no key and so "
                "keeps nothing: give it a key and declare a field, or set it in __init__ or setup()"
            )


WatchSlot = Callable[[WorkOrder, str, Counters, int], AbstractContextManager[None]]
"""Watches a slot: its work order and label, its counters, and how many records it processes."""


def unwatched(
    order: WorkOrder, label: str, counters: Counters, records: int
) -> AbstractContextManager[None]:
    """Watches nothing."""
    return nullcontext()


class Runtime:
    """The objects that all tasks of one pipeline share within a process."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        cache: WorkerCache,
        opens: OpenState | None = None,
    ) -> None:
        """`opens` opens the state store of a checkpoint; None: segments hold the state."""
        share_arenas()
        self.topology = topology
        self.store = store
        self.cache = cache
        self._opens = opens
        self._backends: dict[str, StateBackend] = {}
        self.watched: WatchSlot = unwatched
        """Entered while the hooks of a slot run. Spark's workers then mark how far it has come."""
        self.records_s = 0.0
        """How long this process has spent on records and timers of slots (K2)."""
        self._live: dict[str, Live] = {}
        self._notes: list[SlotNote] = []

    def note(self, note: SlotNote) -> None:
        """Keeps what was measured in a slot, until it is taken (K2)."""
        self._notes.append(note)

    def take_notes(self) -> list[SlotNote]:
        """Removes and returns the notes of tasks that ran in this process."""
        notes, self._notes = self._notes, []
        return notes

    def backend(self, order: WorkOrder) -> StateBackend | None:
        """The state store of an order's checkpoint, as of the order; None: there is none."""
        if order.applied is None:
            return None
        id = order.applied.id or order.checkpoint
        found = self._backends.get(id)
        if found is None:
            if self._opens is None:
                raise IncompatibleState(
                    f"epoch {order.plan.epoch} reads its state from {order.plan.state!r}, which "
                    "this process was not given: start with the same state= as before"
                )
            found = self._backends[id] = self._opens(id)
        found.follow(order.applied.place)
        return found

    def live(self, node: Node) -> Live:
        """The live computation of a node; the first call sets it up."""
        found = self._live.get(node.name)
        if found is None:
            found = self._live[node.name] = Live(node)
        return found
