"""The guarantee levels: the effect of a crash on the output of a pipeline or of one computation.

    exactly-once     no loss, no duplicates: rows reach sinks after the commit, and again after a
                     crash until acknowledged; duplicates of sources with ids are dropped
    at-least-once    no loss, rows may appear twice: they reach sinks before the commit, and
                     duplicates of sources with ids are not dropped
    at-most-once     no duplicates, rows may be lost: after a crash the open plan's input is
                     skipped, and rows whose delivery is uncertain are not delivered

State is part of the commit, and so of one epoch, at every level. The level of a computation applies
to its rows at sinks and, for at-least-once, to the ids of its input. Which input an epoch reads
depends on the level of the pipeline, because all its computations share the epoch.
"""

from __future__ import annotations

from headrace.errors import InvalidPipeline
from headrace.pipeline.graph.graph import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Graph, Node

LEVELS = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)


def checked(level: str, where: str) -> str:
    """The level; raises InvalidPipeline if it is not a guarantee level."""
    if level not in LEVELS:
        choices = ", ".join(f'"{known}"' for known in LEVELS)
        raise InvalidPipeline(f"{where}: guarantee= is one of {choices}, not {level!r}")
    return level


def switches(
    pipeline: str, own: str | None, strong: bool | None, dedup: bool | None, where: str
) -> tuple[str, bool, bool]:
    """(level, strong, dedup) of a computation, from its options and those of its pipeline."""
    if own is not None:
        checked(own, where)
        if strong is not None or dedup is not None:
            raise InvalidPipeline(
                f"{where}: guarantee= sets strong= and dedup= by itself; give it or them, not both"
            )
    if pipeline == AT_MOST_ONCE:
        if own not in (None, AT_MOST_ONCE):
            raise InvalidPipeline(
                f"{where} cannot be {own} in a pipeline that is at-most-once: after a crash the "
                "whole pipeline skips input. Give the level to the other computations instead"
            )
        if strong is False:
            raise InvalidPipeline(
                f"{where}: strong=False delivers rows again after a crash, which an at-most-once "
                "pipeline must not"
            )
    level = own or pipeline
    sure = level != AT_LEAST_ONCE
    return level, sure if strong is None else strong, sure if dedup is None else dedup


def check_levels(graph: Graph, where: str) -> None:
    """Refuses levels that contradict each other or have no effect."""
    written = {outlet.stream for outlet in graph.outlets.values()}
    for node in graph.nodes.values():
        if node.guarantee != graph.guarantee and not _matters(graph, node, written):
            reads = " and it reads no source with id=" if node.guarantee != AT_MOST_ONCE else ""
            raise InvalidPipeline(
                f"{where}: computation {node.name!r} is {node.guarantee}, but none of its outputs "
                f"goes to a sink{reads}, so that means nothing: between computations an epoch is "
                "whole or was never there. Give the level to the computations before the sinks, "
                "or to the pipeline"
            )
    for stream in sorted(written):
        makers = [n for n in graph.nodes.values() if stream in n.outputs.values()]
        if len({n.guarantee for n in makers}) > 1:
            told = ", ".join(f"{n.name!r} ({n.guarantee})" for n in makers)
            raise InvalidPipeline(
                f"{where}: stream {stream!r} goes to a sink and is produced by {told}: a sink "
                "cannot tell their rows apart. Give them one level, or a stream each"
            )


def _matters(graph: Graph, node: Node, written: set[str]) -> bool:
    if not written.isdisjoint(node.outputs.values()):
        return True
    read = (graph.injectors.get(given.stream) for given in node.inputs)
    with_ids = any(i is not None and i.source.timing.id is not None for i in read)
    return with_ids and node.guarantee != AT_MOST_ONCE
