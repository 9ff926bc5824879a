"""Which columns of a source's stream a pipeline looks at. Pure.

Steps that filter by an expression, choose columns or aggregate before the shuffle say which columns
they read. A source that can decode single columns then leaves the others out. A stream of which
anything else is done, or whose failed records are kept, is read as a whole.
"""

from __future__ import annotations

from headrace.operators.aggregates.collect import Collect
from headrace.operators.aggregates.count import Count
from headrace.operators.aggregates.distinct import Distinct
from headrace.operators.aggregates.distinct_approximate import DistinctApproximate
from headrace.operators.aggregates.edge import Edge
from headrace.operators.aggregates.extreme import Extreme
from headrace.operators.aggregates.quantiles import Quantiles
from headrace.operators.aggregates.sum import Sum
from headrace.operators.aggregates.top_values import TopValues
from headrace.operators.steps.stateless import FilterTable, PassOn, Select, SplitTable
from headrace.operators.windows.aggregation import CombinedAggregate
from headrace.operators.windows.hopping import CombinedPaned
from headrace.operators.windows.sliding import CombinedSliding
from headrace.pipeline.graph.graph import Graph, Node, To

_WINDOWS = (CombinedAggregate, CombinedPaned, CombinedSliding)
_OF_COLUMNS = (
    *(Collect, Count, Distinct, DistinctApproximate, Edge),
    *(Extreme, Quantiles, Sum, TopValues),
)
"""Aggregates of single columns. Others keep whole records: `top`, or a fold."""


def columns_read(graph: Graph) -> dict[str, frozenset[str]]:
    """Stream of a source -> the columns that are looked at; without streams read as a whole."""
    found = {}
    for name, injector in graph.injectors.items():
        timing = injector.source.timing
        by = [given for given in (timing.timestamp, timing.id) if given is not None]
        columns = _of_stream(graph, name)
        if columns is not None and all(isinstance(given, str) for given in by):
            found[name] = columns.union(given for given in by if isinstance(given, str))
    return found


def _of_stream(graph: Graph, stream: str) -> frozenset[str] | None:
    """The columns of a stream that are looked at; None: perhaps all."""
    schema = graph.schemas.get(stream)
    if stream in graph.feedback or (schema is not None and schema.of_class):
        return None
    if any(outlet.stream == stream for outlet in graph.outlets.values()):
        return None
    found: set[str] = set()
    for node in graph.consumers(stream):
        columns = _of_step(graph, node, stream)
        if columns is None:
            return None
        found |= columns
    return frozenset(found)


def _of_step(graph: Graph, node: Node, stream: str) -> frozenset[str] | None:
    """The columns of its input that a step looks at, and those after it; None: perhaps all."""
    if isinstance(node.errors, To) or isinstance(node.late, To):
        return None
    step = node.template
    if isinstance(step, CombinedAggregate) and type(step) in _WINDOWS:
        return _of_windows(node, step)
    if not node.keyless:
        return None
    after = _after(graph, node, stream)
    if type(step) is Select:
        passed = [of for name, of in step.named.items() if after is None or name in after]
        return frozenset((*passed, *step.names))
    if after is None:
        return None
    if type(step) is FilterTable:
        return after.union(step.names)
    if type(step) is SplitTable:
        return after.union(*step.names)
    return after if type(step) is PassOn else None


def _after(graph: Graph, node: Node, stream: str) -> frozenset[str] | None:
    """The columns of a step's output that are looked at; None: perhaps all.

    A schema that the output does not have from the input judges whole records.
    """
    found: set[str] = set()
    for output in node.outputs.values():
        schema = graph.schemas.get(output)
        columns = _of_stream(graph, output)
        if columns is None or (schema is not None and schema is not graph.schemas.get(stream)):
            return None
        found |= columns
    return frozenset(found)


def _of_windows(node: Node, step: CombinedAggregate) -> frozenset[str] | None:
    """The columns that windows look at: the key's, and those of the aggregates."""
    if not node.combines or step.late:
        return None  # whole records are sent to their slot
    found: set[str] = set()
    for given in node.inputs:
        if given.key.columns is None:
            return None  # the key is a function of the record
        found.update(given.key.columns)
    for aggregate in step.aggregates:
        if type(aggregate) not in _OF_COLUMNS:
            return None
        if not aggregate.columns() and type(aggregate) is not Count:
            return None  # of the whole records
        found.update(aggregate.columns())
    return frozenset(found)
