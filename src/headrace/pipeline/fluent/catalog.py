"""`Catalog`: the parts of a pipeline under construction, and what is known about its streams.

The builder and the streams add to it. It must not know them, so that they need not know each
other.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.key_spec import KeyGiven, KeySpec
from headrace.model.sink import Sink
from headrace.model.source import Source
from headrace.model.values.names import did_you_mean, known_options, names_of, no_option
from headrace.model.values.schema import Schema
from headrace.model.values.time import Duration
from headrace.pipeline.fluent.hints import sink_meant, source_meant
from headrace.pipeline.graph import guarantees
from headrace.pipeline.graph.checks import (
    check_policy,
    checked_name,
    instance_of,
    ports_of,
    timeout_of,
)
from headrace.pipeline.graph.dedup import with_dedup
from headrace.pipeline.graph.graph import Graph, Injector, Node, NodeInput, Outlet, Shed, To
from headrace.pipeline.graph.topology import Topology
from headrace.pipeline.graph.validation import check, check_node

_GIVEN = ("computation", "inputs", "outputs", "name")
"""Arguments of `compute` that a step sets itself."""


class Catalog:
    """Injectors, computations and sinks by name."""

    def __init__(self, pipeline: str, guarantee: str) -> None:
        self.pipeline = checked_name(pipeline, "a pipeline")
        self.guarantee = guarantees.checked(guarantee, f"pipeline {pipeline!r}")
        self.injectors: dict[str, Injector] = {}
        self.nodes: dict[str, Node] = {}
        self.outlets: dict[str, Outlet] = {}
        self.feedback: set[str] = set()
        self._no_dedup: set[str] = set()
        self._schemas: dict[str, Schema] = {}
        self._unnamed: dict[str, str] = {}
        """Steps whose name was taken -> that name; they need `named()`."""
        self._known_columns: dict[str, tuple[str, ...]] = {}
        """The columns of streams, known from the steps that produce them."""

    # Parts of a pipeline --------------------------------------------------

    def add_injector(self, name: str, source: Source, errors: str | To) -> None:
        """Adds a source that feeds the stream `name`."""
        checked_name(name, "a stream")
        if not isinstance(source, Source):
            raise InvalidPipeline(
                f"read({name!r}): {source!r:.80} is not a source{source_meant(source)}"
            )
        if name in self.injectors:
            raise InvalidPipeline(
                f"stream {name!r} is read twice; give the second one another name"
            )
        check_policy(errors, ("stop",), f"read({name!r}): errors=")
        self.injectors[name] = Injector(name, source, errors)

    @known_options("compute")
    def add_node(
        self,
        computation: Computation | type[Computation],
        *,
        inputs: Mapping[str, KeyGiven],
        outputs: str | Sequence[str] | Mapping[str, str] = (),
        name: str | None = None,
        aliases: str | Sequence[str] = (),
        late: str | To = "process",
        errors: str | To = "stop",
        slots: int | None = None,
        strong: bool | None = None,
        dedup: bool | None = None,
        guarantee: str | None = None,
        watermark: float | None = None,
        concurrency: int = 1,
        services: bool | None = None,
        timeout: Duration | None = None,
        overload: str | Shed = "",
    ) -> Node:
        """Adds a computation; see `PipelineBuilder.compute`."""
        template = instance_of(computation)
        name = checked_name(name or type(template).__name__, "a computation")
        where = f"computation {name!r}"
        if name in self.nodes:
            raise InvalidPipeline(f"{where} is there twice; give one of them a name= of its own")
        given = tuple(
            NodeInput(checked_name(s, "a stream"), KeySpec(k, where=f"{where}, input {s!r}"))
            for s, k in inputs.items()
        )
        for one in given:
            self._check_key(one, where)
        level, is_strong, deduplicated = guarantees.switches(
            self.guarantee, guarantee, strong, dedup, where
        )
        node = Node(
            name=name,
            template=template,
            inputs=given,
            outputs=ports_of(outputs, where),
            late=late,
            errors=errors,
            slots=slots,
            strong=is_strong,
            guarantee=level,
            percentile=watermark,
            aliases=names_of(aliases, what=f"{where}: aliases="),
            concurrency=concurrency,
            timeout_us=timeout_of(timeout, where),
            overload=overload,
        )
        if services or (services is None and node.shape.uses_services):
            node = replace(node, services=True)
        check_node(node)
        self.nodes[name] = node
        for stream in node.outputs.values():
            self._known_columns.pop(stream, None)  # from now on it may have other columns
        if not deduplicated:
            self._no_dedup.add(name)
        return node

    def _check_key(self, given: NodeInput, where: str) -> None:
        """Refuses a key column that the stream, as far as its columns are known, does not have."""
        known = self._known_columns.get(given.stream)
        missing = [c for c in given.key.columns or () if known is not None and c not in known]
        if missing:
            raise InvalidPipeline(
                f"{where} takes its key from the column {missing[0]!r} of {given.stream!r}"
                f"{did_you_mean(missing[0], known or ())}, which has only: "
                f"{', '.join(known or ())}. Keep the key in the step that makes "
                "them, as in select={...}, or key_by() another column"
            )

    def add_outlet(self, stream: str, sink: Sink, name: str | None) -> None:
        """Adds a sink for a stream."""
        if not isinstance(sink, Sink):
            raise InvalidPipeline(f"write: {sink!r:.80} is not a sink{sink_meant(sink)}")
        taken = sum(1 for o in self.outlets.values() if o.stream == stream)
        usual = stream if not taken else f"{stream}.{taken + 1}"
        name = checked_name(name or usual, "a sink")
        if name in self.outlets:
            raise InvalidPipeline(f"two sinks are called {name!r}; give one a name= of its own")
        self.outlets[name] = Outlet(name, stream, sink)

    def declare(self, stream: str, given: type[Any] | pa.Schema | None) -> None:
        """Declares the schema of a stream, if one is given."""
        if given is None:
            return
        schema = Schema(given, where=f"stream {stream!r}")
        known = self._schemas.setdefault(stream, schema)
        if known.given is not given and known.given != given:
            raise InvalidPipeline(f"stream {stream!r} is declared with two schemas")

    def topology(self) -> Topology:
        """The checked graph, with the topology that says how it runs."""
        if self._unnamed:
            name = next(iter(self._unnamed.values()))
            raise InvalidPipeline(
                f"pipeline {self.pipeline!r}: two steps are called {name!r}; state belongs to "
                'names, so give the second one its own right behind it: .named("...")'
            )
        schemas = dict(self._schemas)
        graph = Graph(
            self.pipeline,
            dict(self.injectors),
            {name: _with_schemas(node, schemas) for name, node in self.nodes.items()},
            dict(self.outlets),
            frozenset(self.feedback),
            schemas,
            self.guarantee,
        )
        check(graph)
        return Topology(with_dedup(graph, frozenset(self._no_dedup)))

    # Steps of the fluent interface ----------------------------------------

    def add_step(
        self,
        name: str,
        computation: Computation,
        inputs: Mapping[str, KeyGiven],
        outputs: str | Mapping[str, str],
        **options: Any,
    ) -> str:
        """Adds a step; returns its name, or a temporary name if the name was taken."""
        given, name = name, self.free(name)
        known_options = self.step_options()
        unknown = [option for option in options if option not in known_options]
        if unknown:
            raise no_option(given, unknown[0], known_options)
        if name != given:
            if outputs == given:
                outputs = name
            elif isinstance(outputs, Mapping):
                outputs = {p: name if s == given else s for p, s in outputs.items()}
        ports = {"": outputs} if isinstance(outputs, str) else outputs
        for port, stream in ports.items():
            # Several windows may share a stream for late records; other streams are not shared.
            if port != "late":
                self.check_unmade(stream, given)
        streams = list(ports.values())
        known = {s: c for s in streams if (c := self._known_columns.get(s)) is not None}
        self.add_node(computation, inputs=inputs, outputs=outputs, name=name, **options)
        self._known_columns.update(known)
        return name

    def step_options(self) -> list[str]:
        """The options that every step accepts."""
        return [o for o in inspect.signature(self.add_node).parameters if o not in _GIVEN]

    def check_unmade(self, stream: str, where: str, *, but: tuple[str, ...] = ()) -> None:
        """Refuses a stream that exists: two streams of one name would be mixed silently."""
        makers = [n.name for n in self.nodes.values() if stream in n.emitted()]
        makers = [name for name in makers if name not in but]
        if stream in self.injectors:
            makers.append(f"read({stream!r})")
        if makers:
            raise InvalidPipeline(
                f"{where}: there is a stream {stream!r} already, made by {makers[0]}; call one "
                "of them otherwise"
            )

    def free(self, name: str) -> str:
        """The name or, if it is taken, a temporary name that `named()` must replace."""
        given = name
        while name in self.nodes:
            name = f"{name}+"
        if name != given:
            self._unnamed[name] = given
        return name

    def rename(self, nodes: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
        """Renames steps and the streams between them. Nothing may use the old name yet."""
        checked_name(new, "a step")
        users = [n.name for n in self.nodes.values() if n.name not in nodes]
        users = [n for n in users if any(i.stream == old for i in self.nodes[n].inputs)]
        users = [f"{name!r} reads" for name in users]
        users += [f"the sink {o.name!r} takes" for o in self.outlets.values() if o.stream == old]
        if users:
            raise InvalidPipeline(
                f"named({new!r}): {users[0]} {old!r} already; call named() right behind the step"
            )

        def renamed(name: str) -> str:
            mine = name == old or name in nodes
            return new + name.removeprefix(old) if mine and name.startswith(old) else name

        taken = [renamed(name) for name in nodes]
        for name in taken:
            if name in self.nodes:
                raise InvalidPipeline(f"named({new!r}): there is a computation of that name")
            self.check_unmade(name, f"named({new!r})", but=nodes)
        fresh: dict[str, Node] = {}
        for node in self.nodes.values():
            if node.name in nodes:
                inputs = tuple(replace(i, stream=renamed(i.stream)) for i in node.inputs)
                outputs = {port: renamed(stream) for port, stream in node.outputs.items()}
                node = replace(node, name=renamed(node.name), inputs=inputs, outputs=outputs)
            fresh[node.name] = node
        self.nodes = fresh
        for name in nodes:
            self._unnamed.pop(name, None)
            if name in self._known_columns:
                self._known_columns[renamed(name)] = self._known_columns.pop(name)
            if name in self._schemas:
                self._schemas[renamed(name)] = self._schemas.pop(name)
        return tuple(taken)

    def know_columns(self, stream: str, columns: Sequence[str]) -> None:
        """Records the columns of a stream, as the step that produces it knows them."""
        self._known_columns[stream] = tuple(columns)

    def schema_of(self, stream: str) -> Schema | None:
        """The schema of a stream, if one was declared."""
        return self._schemas.get(stream)

    def columns_of(self, stream: str) -> tuple[str, ...] | None:
        """The columns of a stream, if they are known while building."""
        if stream in self._schemas:
            return self._schemas[stream].names
        if stream in self.injectors:
            columns = self.injectors[stream].source.columns()
            return None if columns is None else tuple(columns)
        return self._known_columns.get(stream)

    def alike(self, stream: str, made: str) -> None:
        """Copies what is known about a stream's columns to a stream with the same values."""
        if stream in self._schemas:
            self._schemas[made] = self._schemas[stream]
        elif (columns := self.columns_of(stream)) is not None:
            self._known_columns[made] = columns

    def pour(self, streams: Sequence[str], made: str) -> None:
        """Merges what is known about the columns of several streams that feed one stream."""
        known = [self.columns_of(stream) for stream in streams]
        if sum(made in node.emitted() for node in self.nodes.values()) > 1:
            known.append(self._known_columns.pop(made, None))
        if all(columns is not None for columns in known):
            self._known_columns[made] = tuple(dict.fromkeys(c for cs in known for c in cs or ()))

    def kept_back(self, stream: str) -> str | None:
        """A step before this stream that may send records in a later epoch than they were read."""
        seen, todo = {stream}, [stream]
        while todo:
            name = todo.pop()
            if name in self.feedback:
                return name
            makers = [n for n in self.nodes.values() if name in n.emitted()]
            for node in makers:
                if not (node.keyless or node.template.prompt):
                    return node.name
                todo += [i.stream for i in node.inputs if i.stream not in seen]
                seen.update(todo)
            if not makers and name not in self.injectors:
                return name
        return None


def _with_schemas(node: Node, schemas: Mapping[str, Schema]) -> Node:
    mine = {s: schemas[s] for s in node.outputs.values() if s in schemas}
    return replace(node, schemas=mine) if mine else node
