"""A pipeline as a worker process holds it: topology, live computations, caches, the store.

Built once per process and pipeline; `setup` of each computation runs once here.
"""

from __future__ import annotations

import copy

from headrace.errors import UserCodeError
from headrace.model.computation import Computation, Shape, object_class
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.state.backend import SegmentBackend, StateBackend
from headrace.state.cache import WorkerCache
from headrace.store.store import Store
from headrace.worker.watching.tracebacks import shortened
from headrace.worker.watching.watchdog import HookWatch, watching


class Live:
    """A computation that is set up: its class of key objects and its shape."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.shape: Shape = node.shape
        # What setup() opens stays here: the pipeline itself may have to travel once more.
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
        """Without a key there is no state: a hook must leave nothing on its object."""
        if left := vars(obj):
            names = ", ".join(left)
            left.clear()
            raise AttributeError(
                f"{self.shape.cls.__qualname__} assigned {names} in a hook, but has no key and so "
                "keeps nothing: give it a key and declare a field, or set it in __init__ or setup()"
            )


class Runtime:
    """All that tasks of one pipeline share within a process."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        cache: WorkerCache,
        backend: StateBackend | None = None,
    ) -> None:
        self.topology = topology
        self.store = store
        self.cache = cache
        self.backend = SegmentBackend() if backend is None else backend
        self._live: dict[str, Live] = {}

    def live(self, node: Node) -> Live:
        """A computation, set up."""
        found = self._live.get(node.name)
        if found is None:
            found = self._live[node.name] = Live(node)
        return found
