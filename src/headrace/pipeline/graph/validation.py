"""Checks of one computation, and of a whole graph, which no single call of the builder can do."""

from __future__ import annotations

from headrace.errors import InvalidPipeline
from headrace.model.values.column_names import check_column
from headrace.model.values.names import did_you_mean
from headrace.pipeline.graph.checks import check_policy
from headrace.pipeline.graph.graph import CARRY, SHED, Graph, Node, Shed, To
from headrace.pipeline.graph.guarantees import check_levels

SLOTS_MAX = 10_000
CONCURRENCY_MAX = 1_000


def check_node(node: Node) -> None:
    """Raises InvalidPipeline for an option of a computation that cannot work."""
    where = f"computation {node.name!r}"
    if not node.inputs:
        raise InvalidPipeline(f"{where} has no inputs")
    if len({given.key.keyless for given in node.inputs}) == 2:
        raise InvalidPipeline(f"{where}: give every input a key, or none of them")
    check_policy(node.late, ("process", "drop"), f"{where}: late=")
    check_policy(node.errors, ("stop",), f"{where}: errors=")
    if node.slots is not None and not 1 <= node.slots <= SLOTS_MAX:
        raise InvalidPipeline(
            f"{where}: slots= is a number from 1 to {SLOTS_MAX:,}, not {node.slots!r}"
        )
    if node.percentile is not None and not 0.0 < node.percentile < 1.0:
        raise InvalidPipeline(f"{where}: watermark= is a share between 0 and 1, such as 0.99")
    _check_overload(node, where)
    _check_concurrency(node, where)
    _check_state(node, where)


def _check_overload(node: Node, where: str) -> None:
    if not isinstance(node.overload, Shed) and node.overload not in ("", CARRY, SHED):
        raise InvalidPipeline(
            f'{where}: overload= is "carry", "shed" or shed(priority=...), not '
            f"{node.overload!r:.80}"
        )
    if node.overload and node.keyless:
        raise InvalidPipeline(
            f"{where}: overload= is about slots, and it has none, as it has no key: give it to the "
            "computation that is slow"
        )


def _check_concurrency(node: Node, where: str) -> None:
    given = node.concurrency
    if type(given) is not int or not 1 <= given <= CONCURRENCY_MAX:
        raise InvalidPipeline(
            f"{where}: concurrency= is a number from 1 to {CONCURRENCY_MAX:,}, not {given!r}"
        )
    if given > 1 and (node.keyless or node.shape.takes_table):
        why = "it has none" if node.keyless else "it takes tables of many keys"
        raise InvalidPipeline(f"{where}: concurrency= runs keys at once; {why}")


def _check_state(node: Node, where: str) -> None:
    assigned = vars(node.template)
    if "options" in assigned:
        raise InvalidPipeline(
            f"{where}: __init__ assigns 'options', which is a name of Computation itself; call "
            "it otherwise, such as settings"
        )
    for field in node.shape.fields:
        if field.name in assigned:
            raise InvalidPipeline(
                f"{where}: __init__ assigns {field.name!r}, which is state, and so would have "
                f"no effect; give it there: `{field.name}: ... = state(default)`"
            )
    if node.keyless and node.shape.fields:
        raise InvalidPipeline(f"{where} declares state, so it needs a key: inputs={{stream: key}}")
    if node.keyless and (node.ordered or node.shape.takes_timers):
        raise InvalidPipeline(f"{where} is ordered or has timers, so it needs a key")


def check(graph: Graph) -> None:
    """Raises InvalidPipeline for the first mistake in the graph."""
    where = f"pipeline {graph.name!r}"
    if not graph.injectors:
        raise InvalidPipeline(f"{where} reads nothing: begin with p.read(name, source)")
    produced = _produced(graph)
    _check_streams(graph, produced, where)
    _check_outlets(graph, produced, where)
    _check_feedback(graph, produced, where)
    _check_columns(graph, where)
    _check_names(graph, where)
    check_levels(graph, where)


def _produced(graph: Graph) -> dict[str, list[str]]:
    produced: dict[str, list[str]] = {}
    for injector in graph.injectors.values():
        produced.setdefault(injector.stream, []).append(f"read({injector.stream!r})")
        if isinstance(injector.errors, To):
            produced.setdefault(injector.errors.stream, []).append(injector.name)
    for node in graph.nodes.values():
        for stream in node.emitted():
            produced.setdefault(stream, []).append(node.name)
    return produced


def _check_streams(graph: Graph, produced: dict[str, list[str]], where: str) -> None:
    for name in graph.injectors:
        if len(produced[name]) > 1:
            makers = ", ".join(produced[name])
            raise InvalidPipeline(f"{where}: stream {name!r} is read and also produced ({makers})")
    for node in graph.nodes.values():
        for given in node.inputs:
            if given.stream not in produced:
                raise InvalidPipeline(
                    f"{where}: computation {node.name!r} reads stream {given.stream!r}, "
                    f"which nothing produces. {_known(produced)}"
                )


def _check_outlets(graph: Graph, produced: dict[str, list[str]], where: str) -> None:
    places: dict[str, str] = {}
    for outlet in graph.outlets.values():
        if outlet.stream not in produced:
            raise InvalidPipeline(
                f"{where}: sink {outlet.name!r} writes stream {outlet.stream!r}, "
                f"which nothing produces. {_known(produced)}"
            )
        place = outlet.sink.identity()
        if place is not None and places.setdefault(place, outlet.name) != outlet.name:
            raise InvalidPipeline(
                f"{where}: sinks {places[place]!r} and {outlet.name!r} both write to {place}; "
                "give each its own place"
            )


def _check_feedback(graph: Graph, produced: dict[str, list[str]], where: str) -> None:
    for stream in graph.feedback:
        if stream not in produced:
            raise InvalidPipeline(
                f"{where}: stream {stream!r} is declared as feedback, but nothing produces it. "
                f"{_known(produced)}"
            )
        if stream in graph.injectors:
            raise InvalidPipeline(f"{where}: stream {stream!r} is read, so it cannot be feedback")
        for node in graph.consumers(stream):
            if node.keyless:
                raise InvalidPipeline(
                    f"{where}: computation {node.name!r} reads feedback stream {stream!r} "
                    "without a key; feedback waits under a key, so give it one"
                )


def _check_columns(graph: Graph, where: str) -> None:
    """Refuses columns that a source does not have, if the source knows its columns."""
    read = {name: injector.source.columns() for name, injector in graph.injectors.items()}
    known = {**read, **{name: schema.names for name, schema in graph.schemas.items()}}
    for name, schema in graph.schemas.items():
        if read.get(name) is not None:
            for field in schema.arrow:
                if not field.nullable and field.name not in schema.defaults:
                    check_column(field.name, read[name], where=f"{where}: schema of {name!r}")
    for stream, injector in graph.injectors.items():
        given_time, columns = injector.source.timing.timestamp, read[stream]
        if isinstance(given_time, str) and columns is not None and given_time not in columns:
            raise InvalidPipeline(
                f"{where}: {stream!r} takes timestamps from column {given_time!r}, which is not "
                f"there; there are: {', '.join(columns)}"
            )
    for node in graph.nodes.values():
        for given in node.inputs:
            columns = known.get(given.stream)
            for name in given.key.columns or ():
                if columns is not None and name not in columns:
                    raise InvalidPipeline(
                        f"{where}: computation {node.name!r} keys {given.stream!r} by column "
                        f"{name!r}, which is not there{did_you_mean(name, columns)}; "
                        f"there are: {', '.join(columns)}"
                    )


def _check_names(graph: Graph, where: str) -> None:
    for node in graph.nodes.values():
        if node.name in graph.injectors:
            raise InvalidPipeline(
                f"{where}: {node.name!r} names a computation and a stream that is read; "
                "rename one of them"
            )
        for alias in node.aliases:
            if alias in graph.nodes:
                raise InvalidPipeline(
                    f"{where}: {node.name!r} takes over the state of {alias!r}, which still exists"
                )


def _known(produced: dict[str, list[str]]) -> str:
    return f"Streams that are produced: {', '.join(sorted(produced)) or 'none'}."
