"""The contract of a pipeline: what its code promises about state, input and output.

It is plain data and stands in the log beside the fingerprint of the code in force. A fingerprint
says whether two codes differ; contracts say how, so that a deploy can be judged before it begins.
"""

from __future__ import annotations

from typing import Any

import msgspec
import xxhash

from headrace.model.field_shapes import shape_of
from headrace.pipeline.graph.graph import EXACTLY_ONCE, Graph, Injector, Node, To
from headrace.pipeline.graph.topology import Topology
from headrace.plan.fingerprint import text_of


class InputContract(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a computation takes its key from one of its streams."""

    stream: str
    key: str
    """The columns, "a function", or "no key"."""
    text: str = ""
    """A digest of the function's text."""


class ComputationContract(msgspec.Struct, frozen=True, omit_defaults=True):
    """One computation."""

    name: str
    inputs: tuple[InputContract, ...]
    outputs: dict[str, str] = {}
    """Port -> stream."""
    aliases: tuple[str, ...] = ()
    version: int = 1
    fields: dict[str, str] = {}
    """State field -> its declared type."""
    shapes: dict[str, str] = {}
    """State field -> what the classes inside its type consist of, where it has any."""
    flags: dict[str, str] = {}
    """Options that decide what records, timers and state mean, if they are not the default."""
    checksum: str = ""
    """Of windows and aggregates: changes when stored cells mean something else."""
    keyed: bool = True
    calls: bool = False
    """Whether it may make calls that must not be repeated."""

    @property
    def first_name(self) -> str:
        """The name under which its calls are logged: it stays when the computation is renamed."""
        return self.aliases[0] if self.aliases else self.name


class SourceContract(msgspec.Struct, frozen=True):
    """One source."""

    identity: str
    rereads: bool = True
    """Whether it can read again what was committed, until it is released."""


class SinkContract(msgspec.Struct, frozen=True):
    """One sink."""

    stream: str
    identity: str
    """Where it writes; "" if that is not known."""


class Contract(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contract of a whole pipeline."""

    pipeline: str
    computations: dict[str, ComputationContract] = {}
    sources: dict[str, SourceContract] = {}
    sinks: dict[str, SinkContract] = {}
    feedback: tuple[str, ...] = ()
    guarantee: str = EXACTLY_ONCE

    @property
    def keyed(self) -> dict[str, ComputationContract]:
        """The computations with a key."""
        return {name: found for name, found in self.computations.items() if found.keyed}


def contract_of(topology: Topology) -> Contract:
    """The contract of a pipeline."""
    graph = topology.graph
    return Contract(
        pipeline=graph.name,
        computations={name: _computation(node) for name, node in graph.nodes.items()},
        sources={name: _source(injector) for name, injector in graph.injectors.items()},
        sinks={
            name: SinkContract(outlet.stream, outlet.sink.identity() or "")
            for name, outlet in graph.outlets.items()
        },
        feedback=tuple(sorted(graph.feedback)),
        guarantee=_weakest(graph),
    )


def _weakest(graph: Graph) -> str:
    """The level of the pipeline, or that of a computation with another one."""
    others = {node.guarantee for node in graph.nodes.values()} - {EXACTLY_ONCE}
    return graph.guarantee if graph.guarantee != EXACTLY_ONCE else min(others, default=EXACTLY_ONCE)


def _source(injector: Injector) -> SourceContract:
    return SourceContract(injector.source.describe(), injector.source.rereads)


def _computation(node: Node) -> ComputationContract:
    shape = node.shape
    return ComputationContract(
        name=node.name,
        inputs=tuple(
            InputContract(given.stream, _key(given.key), _digest(given.key.function))
            for given in node.inputs
        ),
        outputs=dict(node.outputs),
        aliases=node.aliases,
        version=shape.options.version,
        fields={field.name: field.type_text for field in shape.fields},
        shapes={f.name: text for f in shape.fields if (text := shape_of(f.codec.type))},
        flags=_flags(node),
        checksum=_checksum(node.template),
        keyed=not node.keyless,
        calls=node.services,
    )


def _key(key: Any) -> str:
    """What a key is. All functions have one name: their text has a digest of its own."""
    return "a function" if key.function is not None else str(key.describe())


def _digest(function: Any) -> str:
    return "" if function is None else xxhash.xxh3_64_hexdigest(text_of(function).encode())


def _checksum(template: Any) -> str:
    maker = getattr(template, "maker", None)
    return "" if maker is None else f"{type(template).__qualname__} {maker}"


def _flags(node: Node) -> dict[str, str]:
    options = node.shape.options
    given = {
        "ordered": (options.ordered, False),
        "ttl": (options.ttl_us, None),
        "clock": (options.clock, "event"),
        "late": (_policy(node.late), "process"),
        "errors": (_policy(node.errors), "stop"),
        "strong": (node.strong, True),
        "percentile": (node.percentile, None),
        "guarantee": (node.guarantee, EXACTLY_ONCE),
    }
    fields = {
        f"ttl of {field.name}": (field.ttl_us, None)
        for field in node.shape.fields
        if field.ttl_us is not None
    }
    return {name: str(value) for name, (value, usual) in (given | fields).items() if value != usual}


def _policy(policy: str | To) -> str:
    return f"to {policy.stream}" if isinstance(policy, To) else policy
