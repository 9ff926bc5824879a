"""Removes duplicate records of sources with ids, by a computation before all consumers.

A source with `id=` feeds `<stream>.raw`. `Dedup`, keyed by the id, passes the first record of each
id to `<stream>`. An id is remembered for the slack time. For an older record it is unknown whether
it is a duplicate, so it counts as too late and is dropped. Consumers with `dedup=False` read
`<stream>.raw` directly.

`Dedup` distributes the records over slots by their ids. Records of one split must still reach a key
in their order. So they keep their origins, and each consumer sorts the records from all slots by
origin (`Topology.merged`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.key_spec import KeySpec
from headrace.model.state import state
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import AT_LEAST_ONCE, Graph, Injector, Node, NodeInput

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record


class Dedup(Computation):
    """Passes on the first record of each id."""

    follows = True
    seen: int = state(0)

    def __init__(self, slack_us: int) -> None:
        self.slack_us = slack_us

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Passes on, drops or counts one record."""
        ended = ctx.watermark == END  # then no record is late any more, and ids stay
        if not ended and record.timestamp < ctx.watermark - self.slack_us:
            ctx.count("late")
        elif self.seen:
            ctx.count("duplicates")
        else:
            self.seen = 1
            if not ended:
                # After that its duplicates are too late themselves, so the id can be removed.
                until = max(record.timestamp, ctx.watermark) + self.slack_us + 1
                ctx.set_timer(at=until, hold=END)
            ctx.produce(record.value)

    def process_timer(self, timer: Any, ctx: Context) -> None:
        """Forgets the id, because the slack time has passed."""
        ctx.forget()


def with_dedup(graph: Graph, undeduplicated: frozenset[str]) -> Graph:
    """The graph with a `Dedup` after every source that has ids."""
    injectors, schemas = dict(graph.injectors), dict(graph.schemas)
    nodes = dict(graph.nodes)
    for name, injector in graph.injectors.items():
        given = injector.source.timing.id
        wanted = any(n.name not in undeduplicated for n in graph.consumers(name))
        if given is None or (graph.guarantee == AT_LEAST_ONCE and not wanted):
            continue
        raw, judge = f"{name}.raw", f"{name}.dedup"
        del injectors[name]
        if name in schemas:
            schemas[raw] = schemas[name]
        injectors[raw] = Injector(raw, injector.source, injector.errors)
        for taken in (raw, judge):
            if taken in graph.nodes or taken in graph.injectors:
                raise InvalidPipeline(
                    f"source {name!r} has ids, so the name {taken!r} is needed for its duplicate "
                    "check: rename what is called that"
                )
        for node in list(nodes.values()):
            if node.name in undeduplicated:
                inputs = tuple(
                    replace(i, stream=raw) if i.stream == name else i for i in node.inputs
                )
                nodes[node.name] = replace(node, inputs=inputs)
        nodes[judge] = Node(
            name=judge,
            template=Dedup(injector.source.timing.id_slack_us),
            inputs=(NodeInput(raw, KeySpec(given, where=f"source {name!r}, id=")),),
            outputs={"": name},
            errors=injector.errors,
            schemas={name: schemas[name]} if name in schemas else {},
            guarantee=graph.guarantee,
        )
    return replace(graph, injectors=injectors, nodes=nodes, schemas=schemas)
