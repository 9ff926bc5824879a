"""The graph of a pipeline, as plain frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation, Shape
from headrace.model.key_spec import KeySpec
from headrace.model.sink import Sink
from headrace.model.source import Source
from headrace.model.values.schema import Schema

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE = "exactly-once", "at-least-once", "at-most-once"


@dataclass(frozen=True)
class To:
    """A policy that sends late or failed records to a stream."""

    stream: str
    only: tuple[type[BaseException], ...] = (Exception,)
    limit: int | None = None


def to(
    stream: str,
    *,
    only: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    limit: int | None = None,
) -> To:
    """Sends late or failed records to `stream`.

    For errors: `only` these exceptions go there, others stop the pipeline. More than `limit` of
    them, from one computation or source in one epoch, stop it too. A unit of work that alone
    exceeds the limit stops at once.
    """
    kinds: tuple[Any, ...] = only if isinstance(only, tuple) else (only,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise InvalidPipeline(f"to({stream!r}): only= is an exception or a tuple of them")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidPipeline(f"to({stream!r}): limit= is a number of records, not {limit!r}")
    return To(stream, kinds, limit)


@dataclass(frozen=True)
class Shed:
    """A policy that drops records of an overloaded slot."""

    priority: Callable[[Any], float] | None = None


def shed(*, priority: Callable[[Any], float] | None = None) -> Shed:
    """Drops the records of an overloaded slot that are beyond its limit, instead of keeping them.

    Without `priority` the oldest are dropped first. Otherwise those with the lowest priority, a
    number that the function computes from a record's value; among equals the oldest.
    """
    if priority is not None and not callable(priority):
        raise InvalidPipeline(f"shed(priority=) is a function of a value, not {priority!r:.80}")
    return Shed(priority)


CARRY, SHED = "carry", "shed"
"""What an overloaded slot does with the records beyond its limit: keep them, or drop them."""


@dataclass(frozen=True)
class Injector:
    """A source that feeds a stream."""

    stream: str
    source: Source
    errors: str | To = "stop"

    @property
    def name(self) -> str:
        """The name of the injector, which is the name of its stream."""
        return self.stream


@dataclass(frozen=True)
class NodeInput:
    """One subscription: a stream and the key that this consumer extracts from it."""

    stream: str
    key: KeySpec


@dataclass(frozen=True)
class Node:
    """A computation in the graph."""

    name: str
    template: Computation
    inputs: tuple[NodeInput, ...]
    outputs: Mapping[str, str]
    """Port -> stream. A single output has the port ""."""
    late: str | To = "process"
    errors: str | To = "stop"
    slots: int | None = None
    strong: bool = True
    percentile: float | None = None
    aliases: tuple[str, ...] = ()
    services: bool = False
    """Whether its hooks may use `ctx.http` and `ctx.call`."""
    guarantee: str = EXACTLY_ONCE
    """Its guarantee level: its own, or the pipeline's."""
    concurrency: int = 1
    """How many keys of a slot run at once, in threads."""
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    """Stream -> schema, for its output streams that have a schema."""
    timeout_us: int | None = None
    """How long a hook may run."""
    overload: str | Shed = ""
    """"carry", "shed" or a `Shed`; "" if the run decides."""
    shape: Shape = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", Shape(type(self.template)))

    @property
    def keyless(self) -> bool:
        """Whether it has no key, and so no state, no timers and no slots."""
        return all(i.key.keyless for i in self.inputs)

    def sheds(self, of_run: str) -> bool:
        """Whether its overloaded slots drop records; `of_run` counts if it says nothing itself."""
        policy = self.overload or of_run
        return isinstance(policy, Shed) or policy == SHED

    @property
    def lasting_name(self) -> str:
        """The name in the names of its calls: its first alias, so that a rename keeps them (L7)."""
        return self.aliases[0] if self.aliases else self.name

    @property
    def ordered(self) -> bool:
        """Whether its records wait for the watermark."""
        return self.shape.options.ordered

    @property
    def combines(self) -> bool:
        """Whether its records are combined before the shuffle.

        Not if late ones are sent aside, or if a function judges single records under overload.
        """
        judged = isinstance(self.overload, Shed) and self.overload.priority is not None
        return self.shape.combines and not isinstance(self.late, To) and not judged

    def emitted(self) -> tuple[str, ...]:
        """Every stream it may produce to, policies included."""
        aside = [p.stream for p in (self.late, self.errors) if isinstance(p, To)]
        return tuple(dict.fromkeys([*self.outputs.values(), *aside]))


@dataclass(frozen=True)
class Outlet:
    """A sink at the end of a stream."""

    name: str
    stream: str
    sink: Sink


@dataclass(frozen=True)
class Graph:
    """A whole pipeline. `Topology` derives how it runs."""

    name: str
    injectors: Mapping[str, Injector]
    nodes: Mapping[str, Node]
    outlets: Mapping[str, Outlet]
    feedback: frozenset[str]
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    """Stream -> schema, for streams that have one."""
    guarantee: str = EXACTLY_ONCE

    def consumers(self, stream: str) -> list[Node]:
        """The computations that subscribe to a stream."""
        return [n for n in self.nodes.values() if any(i.stream == stream for i in n.inputs)]
