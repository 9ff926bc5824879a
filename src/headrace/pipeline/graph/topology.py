"""How a graph runs: which task hosts which computation, and in which level.

- A *host* is an injector or a keyed computation: a part of the graph that has its own tasks. A
  keyless computation runs inside the tasks that produce its input, so the streams that it produces
  have the hosts of its inputs.
- The level of a host is 1 + the highest level of the hosts that feed it. Injectors are level 0.
  Feedback streams do not count, because they deliver in the next epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.errors import InvalidPipeline
from headrace.pipeline.graph.columns_read import columns_read
from headrace.pipeline.graph.graph import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    Graph,
    Node,
    NodeInput,
    Outlet,
    To,
)


class Topology:
    """How a graph runs. Creating it fails if the graph cannot run."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.hosts: dict[str, tuple[str, ...]] = {}
        self.level: dict[str, int] = dict.fromkeys(graph.injectors, 0)
        self._find_hosts()
        self._find_levels()
        self.depth = max(self.level.values(), default=0)
        self.keyed = {n.name: n for n in graph.nodes.values() if not n.keyless}
        self.levels: list[tuple[str, ...]] = [
            tuple(name for name in self.keyed if self.level[name] == at)
            for at in range(self.depth + 1)
        ]
        self.levels[0] = tuple(graph.injectors)
        self.fused = self._order_keyless()
        self.in_cycle = self._find_cycles()
        self.needs_identity = self._find_identities()
        self.merged = self._find_merged()
        """Streams whose records were distributed over slots, and must be sorted by origin again."""
        self.needs_order = self._find_origins()
        """Streams whose records are sorted by origin."""
        self.needs_origin = self.needs_order | self.needs_identity
        self.columns_read = columns_read(graph)

    # Questions of tasks ---------------------------------------------------

    def keyed_consumers(self, stream: str) -> list[tuple[Node, int, NodeInput]]:
        """The keyed computations that read `stream`."""
        return [(n, i, n.inputs[i]) for n, i in self._subscriptions(stream) if not n.keyless]

    def outlets(self, stream: str) -> list[Outlet]:
        """Sinks at the end of `stream`."""
        return [o for o in self.graph.outlets.values() if o.stream == stream]

    def forward_inputs(self, node: Node) -> list[NodeInput]:
        """Inputs that are not feedback."""
        return [i for i in node.inputs if i.stream not in self.graph.feedback]

    def feeders(self, node: Node) -> list[str]:
        """The hosts whose control rows a keyed computation waits for."""
        streams = [i.stream for i in self.forward_inputs(node)]
        return list(dict.fromkeys(h for s in streams for h in self.hosts[s]))

    def fed_levels(self, host: str) -> list[int]:
        """The levels that need a control row from every task of a host."""
        return sorted({self.level[n.name] for n in self.keyed.values() if host in self.feeders(n)})

    def waits_only_for_cycle(self, node: Node) -> list[str]:
        """For a computation fed by feedback alone: the hosts outside that feed its cycle."""
        cycle = self.in_cycle.get(node.name, frozenset())
        outside: dict[str, None] = {}
        for name in cycle:
            for host in self.feeders(self.keyed[name]):
                if host not in cycle:
                    outside[host] = None
        return list(outside)

    def is_weak(self, stream: str) -> bool:
        """Whether a computation with `strong=False` produces to `stream`.

        For streams that no computation produces (streams of sources, dead letters) the level of
        the pipeline decides.
        """
        makers = self._makers(stream)
        if not makers:
            return self.graph.guarantee == AT_LEAST_ONCE
        return any(not node.strong for node in makers)

    def is_at_most_once(self, stream: str) -> bool:
        """Whether rows of `stream` must not reach a sink twice, even if rows are lost."""
        makers = self._makers(stream)
        levels = [node.guarantee for node in makers] or [self.graph.guarantee]
        return AT_MOST_ONCE in levels

    def _makers(self, stream: str) -> list[Node]:
        return [n for n in self.graph.nodes.values() if stream in n.outputs.values()]

    # Derivation -----------------------------------------------------------

    def _subscriptions(self, stream: str) -> Iterator[tuple[Node, int]]:
        for node in self.graph.nodes.values():
            for index, given in enumerate(node.inputs):
                if given.stream == stream:
                    yield node, index

    def _find_hosts(self) -> None:
        graph = self.graph
        found: dict[str, set[str]] = {name: {name} for name in graph.injectors}
        for node in graph.nodes.values():
            for stream in node.emitted():
                found.setdefault(stream, set())
        for injector in graph.injectors.values():
            if isinstance(injector.errors, To):
                found.setdefault(injector.errors.stream, set()).add(injector.name)
        changed = True
        while changed:
            changed = False
            for node in graph.nodes.values():
                sources = set().union(*(found.get(i.stream, set()) for i in node.inputs))
                hosts = sources if node.keyless else {node.name}
                for stream in node.emitted():
                    # If a key cannot be extracted, the record's producer sends the dead letter.
                    aside = isinstance(node.errors, To) and node.errors.stream == stream
                    more = hosts | sources if aside else hosts
                    if not more <= found[stream]:
                        found[stream] |= more
                        changed = True
        order = [*graph.injectors, *graph.nodes]
        self.hosts = {s: tuple(sorted(h, key=order.index)) for s, h in found.items()}

    def _find_levels(self) -> None:
        keyed = [n for n in self.graph.nodes.values() if not n.keyless]
        for _ in range(len(keyed) + 1):
            changed = False
            for node in keyed:
                feeders = self.feeders(node)
                if all(h in self.level for h in feeders):
                    level = 1 + max((self.level[h] for h in feeders), default=0)
                    if self.level.get(node.name) != level:
                        self.level[node.name] = level
                        changed = True
            if not changed:
                break
        else:
            self._refuse_cycle([n.name for n in keyed])
        lost = [n.name for n in keyed if n.name not in self.level]
        if lost:
            self._refuse_cycle(lost)

    def _order_keyless(self) -> tuple[Node, ...]:
        """The keyless computations, each after the ones that feed it."""
        todo = {n.name: n for n in self.graph.nodes.values() if n.keyless}
        ordered: list[Node] = []
        while todo:
            waiting = {s for n in todo.values() for s in n.emitted()}
            ready = [n for n in todo.values() if not any(i.stream in waiting for i in n.inputs)]
            if not ready:
                self._refuse_cycle(todo)
            for node in ready:
                ordered.append(todo.pop(node.name))
        return tuple(ordered)

    def _refuse_cycle(self, names: Iterable[str]) -> None:
        raise InvalidPipeline(
            f"pipeline {self.graph.name!r}: {', '.join(sorted(names))} feed each other in a cycle. "
            "Declare the stream that closes it: p.stream(NAME, feedback=True)"
        )

    def _find_cycles(self) -> dict[str, frozenset[str]]:
        """For each computation on a cycle, all computations on that cycle."""
        after = {
            name: {h for i in node.inputs for h in self.hosts[i.stream] if h in self.keyed}
            for name, node in self.keyed.items()
        }
        reach: dict[str, set[str]] = {}
        for name in self.keyed:
            seen: set[str] = set()
            todo = list(after[name])
            while todo:
                host = todo.pop()
                if host not in seen:
                    seen.add(host)
                    todo.extend(after[host])
            reach[name] = seen
        return {
            name: frozenset(o for o in reach[name] if name in reach[o])
            for name in self.keyed
            if name in reach[name]
        }

    def _find_merged(self) -> frozenset[str]:
        found = {
            stream
            for node in self.keyed.values()
            if node.template.follows
            for stream in node.outputs.values()
        }
        for node in self.fused:  # in the order in which they feed each other
            if any(given.stream in found for given in node.inputs):
                found.update(node.outputs.values())
        return frozenset(found)

    def _find_origins(self) -> frozenset[str]:
        """Streams whose records must carry their origin, because a consumer sorts by it."""
        inputs = [(n.ordered, i.stream) for n in self.keyed.values() for i in n.inputs]
        needing = {stream for ordered, stream in inputs if ordered or stream in self.merged}
        changed = True
        while changed:
            changed = False
            for node in self.graph.nodes.values():
                follows = node.keyless or node.template.follows
                passes_on = node.emitted() if follows else _late_stream(node)
                if any(s in needing for s in passes_on):
                    for given in node.inputs:
                        if given.stream not in needing:
                            needing.add(given.stream)
                            changed = True
        return frozenset(needing)

    def uses_services(self) -> bool:
        """Whether some computation calls outside services."""
        return any(node.services for node in self.graph.nodes.values())

    def _find_identities(self) -> frozenset[str]:
        """Streams whose records carry their identity, because calls are named by their causes."""
        nodes = self.graph.nodes.values()
        # Calls of a table have no single cause, so they are not named by a cause.
        named = [n for n in nodes if n.services and not n.shape.takes_table]
        needing = {i.stream for n in named for i in n.inputs}
        found = -1
        while needing and found != len(needing):
            found = len(needing)
            for node in nodes:
                inputs = {given.stream for given in node.inputs}
                if not needing.isdisjoint(node.emitted()):
                    needing |= inputs
                if not needing.isdisjoint(inputs):
                    needing.update(_late_stream(node))  # late records pass unchanged
        return frozenset(needing)


def _late_stream(node: Node) -> tuple[str, ...]:
    """The stream to which a computation sends late records unchanged, if any."""
    return (node.late.stream,) if isinstance(node.late, To) else ()
