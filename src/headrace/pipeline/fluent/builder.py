"""The builder: `read`, `compute`, `write`.

    p = Pipeline("zeitgeist")
    p.read("queries", sources.jsonl("in/*.jsonl", timestamp="ts"))
    p.compute(WindowCounter, inputs={"queries": "query"}, outputs="windows")
    p.stream("windows").write(sinks.parquet("out/windows"))

Every call checks what it can at once; `freeze` checks the rest and gives the graph.
`Stream` is the fluent interface over the same calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.key_spec import KeyGiven, KeySpec
from headrace.model.sink import Sink
from headrace.model.source import Source
from headrace.model.values.names import did_you_mean, known_options, names_of
from headrace.model.values.schema import Schema
from headrace.model.values.time import Duration
from headrace.pipeline.fluent.catalog import Steps
from headrace.pipeline.fluent.hints import sink_meant, source_meant
from headrace.pipeline.fluent.inputs import NoStream, inputs_of
from headrace.pipeline.fluent.stream import Stream
from headrace.pipeline.graph import guarantees
from headrace.pipeline.graph.checks import (
    check_policy,
    checked_name,
    instance_of,
    ports_of,
    timeout_of,
)
from headrace.pipeline.graph.dedup import with_dedup
from headrace.pipeline.graph.graph import EXACTLY_ONCE, Graph, Injector, Node, NodeInput, Outlet, To
from headrace.pipeline.graph.topology import Topology
from headrace.pipeline.graph.validation import check

T = TypeVar("T")


class PipelineBuilder(Steps):
    """Collects injectors, computations and sinks under a name."""

    def __init__(self, name: str, *, guarantee: str = EXACTLY_ONCE) -> None:
        """`guarantee`: "exactly-once" (default), "at-least-once" or "at-most-once"."""
        self.name = checked_name(name, "a pipeline")
        self.guarantee = guarantees.checked(guarantee, f"pipeline {name!r}")
        self._injectors: dict[str, Injector] = {}
        self._nodes: dict[str, Node] = {}
        self._outlets: dict[str, Outlet] = {}
        self._feedback: set[str] = set()
        self._no_dedup: set[str] = set()
        self._schemas: dict[str, Schema] = {}
        self._unnamed: dict[str, str] = {}
        self._known_columns: dict[str, tuple[str, ...]] = {}

    @overload
    def read(
        self, name: str, source: Source, *, schema: type[T], errors: str | To = "stop"
    ) -> Stream[T]: ...

    @overload
    def read(
        self, name: str, source: Source, *, schema: None = None, errors: str | To = "stop"
    ) -> Stream[Any]: ...

    def read(
        self,
        name: str,
        source: Source,
        *,
        schema: type[Any] | pa.Schema | None = None,
        errors: str | To = "stop",
    ) -> Stream[Any]:
        """Reads a source as the stream `name`.

        `schema`: the columns that it has, as a dataclass, msgspec Struct, TypedDict or
        `pa.Schema`; what does not fit follows `errors`.
        `errors`: "stop" (default), or `to(stream)` for what is not a record.
        """
        checked_name(name, "a stream")
        if not isinstance(source, Source):
            raise InvalidPipeline(
                f"read({name!r}): {source!r:.80} is not a source{source_meant(source)}"
            )
        if name in self._injectors:
            raise InvalidPipeline(
                f"stream {name!r} is read twice; give the second one another name"
            )
        check_policy(errors, ("stop",), f"read({name!r}): errors=")
        self._injectors[name] = Injector(name, source, errors)
        self._declare(name, schema)
        return Stream(self, name)

    @known_options("compute")
    def compute(
        self,
        computation: Computation | type[Computation],
        *,
        inputs: Mapping[str, KeyGiven] | Mapping[Stream[Any], KeyGiven],
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
    ) -> Stream[Any]:
        """Adds a computation.

        - `inputs`: stream or its name -> key (a column, several, a function, `()`, `None`).
        - `outputs`: a stream, several, or a mapping of port to stream for `ctx.produce(to=)`.
        - `late`: "process" (default), "drop" or `to(stream)`.
        - `errors`: "stop" (default) or `to(stream, only=, limit=)`.
        - `watermark`: a share such as 0.99 for a percentile watermark.
        - `strong=False`: output is delivered before the commit, and again after a crash.
        - `dedup=False`: skip the duplicate check of sources with `id=`.
        - `guarantee`: instead of these two, a level of its own for its rows at sinks:
          "exactly-once", "at-least-once" or "at-most-once". The pipeline's if not given.
        - `concurrency`: how many keys of a slot run at once, in threads, while others wait for
          `ctx.http` and `ctx.call`. Results do not depend on it.
        - `services=True`: hooks use `ctx.http` or `ctx.call` through helper functions (where the
          class itself mentions them, that is seen).
        - `timeout`: a hook, or `setup`, that runs longer is stopped, and is then a hook that
          raised TimeoutError.
        """
        template = instance_of(computation)
        name = checked_name(name or type(template).__name__, "a computation")
        where = f"computation {name!r}"
        if name in self._nodes:
            raise InvalidPipeline(f"{where} is there twice; give one of them a name= of its own")
        if not inputs:
            raise InvalidPipeline(f"{where} has no inputs")
        given = tuple(
            NodeInput(checked_name(s, "a stream"), KeySpec(k, where=f"{where}, input {s!r}"))
            for s, k in inputs_of(inputs, self, where).items()
        )
        for one in given:
            known = self._known_columns.get(one.stream)
            gone = [c for c in one.key.columns or () if known is not None and c not in known]
            if gone:
                raise InvalidPipeline(
                    f"{where} takes its key from the column {gone[0]!r} of {one.stream!r}"
                    f"{did_you_mean(gone[0], known or ())}, which has only: "
                    f"{', '.join(known or ())}. Keep the key in the step that makes "
                    "them, as in select={...}, or key_by() another column"
                )
        if len({i.key.keyless for i in given}) == 2:
            raise InvalidPipeline(f"{where}: give every input a key, or none of them")
        check_policy(late, ("process", "drop"), f"{where}: late=")
        check_policy(errors, ("stop",), f"{where}: errors=")
        if slots is not None and not 1 <= slots <= 10_000:
            raise InvalidPipeline(f"{where}: slots= is a number from 1 to 10,000, not {slots!r}")
        if watermark is not None and not 0.0 < watermark < 1.0:
            raise InvalidPipeline(f"{where}: watermark= is a share between 0 and 1, such as 0.99")
        if type(concurrency) is not int or not 1 <= concurrency <= 1000:
            raise InvalidPipeline(
                f"{where}: concurrency= is a number from 1 to 1,000, not {concurrency!r}"
            )
        level, is_strong, deduplicated = guarantees.switches(
            self.guarantee, guarantee, strong, dedup, where
        )
        ports = ports_of(outputs, where)
        node = Node(
            name=name,
            template=template,
            inputs=given,
            outputs=ports,
            late=late,
            errors=errors,
            slots=slots,
            strong=is_strong,
            guarantee=level,
            percentile=watermark,
            aliases=names_of(aliases, what=f"{where}: aliases="),
            concurrency=concurrency,
            timeout_us=timeout_of(timeout, where),
        )
        if services or (services is None and node.shape.uses_services):
            node = replace(node, services=True)
        if concurrency > 1 and (node.keyless or node.shape.takes_table):
            why = "it has none" if node.keyless else "it takes tables of many keys"
            raise InvalidPipeline(f"{where}: concurrency= runs keys at once; {why}")
        if "options" in vars(template):
            raise InvalidPipeline(
                f"{where}: __init__ assigns 'options', which is a name of Computation itself; call "
                "it otherwise, such as settings"
            )
        for field in node.shape.fields:
            if field.name in vars(template):
                raise InvalidPipeline(
                    f"{where}: __init__ assigns {field.name!r}, which is state, and so would have "
                    f"no effect; give it there: `{field.name}: ... = state(default)`"
                )
        if node.keyless and node.shape.fields:
            raise InvalidPipeline(
                f"{where} declares state, so it needs a key: inputs={{stream: key}}"
            )
        if node.keyless and (node.ordered or node.shape.takes_timers):
            raise InvalidPipeline(f"{where} is ordered or has timers, so it needs a key")
        self._nodes[name] = node
        for stream in ports.values():
            self._known_columns.pop(stream, None)  # from now on it may have others
        if not deduplicated:
            self._no_dedup.add(name)
        return Stream(self, next(iter(ports.values()))) if ports else NoStream(self, name)

    @overload
    def stream(self, name: str, *, schema: type[T], feedback: bool = False) -> Stream[T]: ...

    @overload
    def stream(self, name: str, *, schema: None = None, feedback: bool = False) -> Stream[Any]: ...

    def stream(
        self, name: str, *, schema: type[Any] | pa.Schema | None = None, feedback: bool = False
    ) -> Stream[Any]:
        """A stream by name; `feedback=True` declares that it closes a cycle.

        `schema` declares its columns: what is produced to it is then checked.
        """
        checked_name(name, "a stream")
        self._declare(name, schema)
        if feedback:
            self._feedback.add(name)
        return Stream(self, name)

    def _declare(self, stream: str, given: type[Any] | pa.Schema | None) -> None:
        if given is None:
            return
        schema = Schema(given, where=f"stream {stream!r}")
        known = self._schemas.setdefault(stream, schema)
        if known.given is not given and known.given != given:
            raise InvalidPipeline(f"stream {stream!r} is declared with two schemas")

    def validate(self) -> None:
        """Checks the whole pipeline; raises InvalidPipeline with what to do."""
        self.freeze()

    def freeze(self) -> Topology:
        """The checked graph and how it runs."""
        if self._unnamed:
            name = next(iter(self._unnamed.values()))
            raise InvalidPipeline(
                f"pipeline {self.name!r}: two steps are called {name!r}; state belongs to "
                'names, so give the second one its own right behind it: .named("...")'
            )
        schemas = dict(self._schemas)
        graph = Graph(
            self.name,
            dict(self._injectors),
            {name: _with_schemas(node, schemas) for name, node in self._nodes.items()},
            dict(self._outlets),
            frozenset(self._feedback),
            schemas,
            self.guarantee,
        )
        check(graph)
        return Topology(with_dedup(graph, frozenset(self._no_dedup)))

    def _write(self, stream: str, sink: Sink, name: str | None) -> None:
        if not isinstance(sink, Sink):
            raise InvalidPipeline(f"write: {sink!r:.80} is not a sink{sink_meant(sink)}")
        name = checked_name(name or self._outlet_name(stream), "a sink")
        if name in self._outlets:
            raise InvalidPipeline(f"two sinks are called {name!r}; give one a name= of its own")
        self._outlets[name] = Outlet(name, stream, sink)

    def _outlet_name(self, stream: str) -> str:
        taken = sum(1 for o in self._outlets.values() if o.stream == stream)
        return stream if not taken else f"{stream}.{taken + 1}"


def _with_schemas(node: Node, schemas: Mapping[str, Schema]) -> Node:
    mine = {s: schemas[s] for s in node.outputs.values() if s in schemas}
    return replace(node, schemas=mine) if mine else node
