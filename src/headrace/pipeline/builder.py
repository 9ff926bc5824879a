"""The builder: `read`, `compute`, `write`.

    p = Pipeline("zeitgeist")
    p.read("queries", sources.jsonl("in/*.jsonl", timestamp="ts"))
    p.compute(WindowCounter, inputs={"queries": "query"}, outputs="windows")
    p.stream("windows").write(sinks.parquet("out/windows"))

Every call checks what it can at once; `freeze` checks the rest and gives the graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.sink import Sink
from headrace.model.source import Source
from headrace.pipeline.dedup import with_dedup
from headrace.pipeline.graph import Graph, Injector, Input, Node, Outlet, To
from headrace.pipeline.keying import KeyGiven, KeySpec
from headrace.pipeline.topology import Topology
from headrace.pipeline.validation import check

_NAME_BYTES_MAX = 200
_NAME = re.compile(r"[^\W_][\w .:@#+-]{0,99}", re.UNICODE)


class Stream:
    """A named channel of records."""

    def __init__(self, builder: PipelineBuilder, name: str) -> None:
        self._builder = builder
        self.name = name

    def compute(
        self, computation: Computation | type[Computation], *, key: KeyGiven, **options: Any
    ) -> Stream:
        """A computation whose only input is this stream."""
        return self._builder.compute(computation, inputs={self.name: key}, **options)

    def write(self, sink: Sink, *, name: str | None = None) -> Stream:
        """Sends this stream to a sink as well."""
        self._builder._write(self.name, sink, name)
        return self

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"


class PipelineBuilder:
    """Collects injectors, computations and sinks under a name."""

    def __init__(self, name: str) -> None:
        self.name = _checked(name, "a pipeline")
        self._injectors: dict[str, Injector] = {}
        self._nodes: dict[str, Node] = {}
        self._outlets: dict[str, Outlet] = {}
        self._feedback: set[str] = set()
        self._no_dedup: set[str] = set()

    def read(self, name: str, source: Source, *, errors: str | To = "stop") -> Stream:
        """Reads a source as the stream `name`.

        `errors`: "stop" (default), or `to(stream)` for what is not a record.
        """
        _checked(name, "a stream")
        if not isinstance(source, Source):
            raise InvalidPipeline(
                f"read({name!r}): {source!r} is not a source; see headrace.sources"
            )
        if name in self._injectors:
            raise InvalidPipeline(
                f"stream {name!r} is read twice; give the second one another name"
            )
        _check_policy(errors, ("stop",), f"read({name!r}): errors=")
        self._injectors[name] = Injector(name, source, errors)
        return Stream(self, name)

    def compute(
        self,
        computation: Computation | type[Computation],
        *,
        inputs: Mapping[str, KeyGiven],
        outputs: str | Sequence[str] | Mapping[str, str] = (),
        name: str | None = None,
        aliases: Sequence[str] = (),
        late: str | To = "process",
        errors: str | To = "stop",
        slots: int | None = None,
        strong: bool = True,
        dedup: bool = True,
        watermark: float | None = None,
        concurrency: int = 1,
        services: bool | None = None,
    ) -> Stream:
        """Adds a computation.

        - `inputs`: stream -> key (a column, a tuple of columns, a function, `()`, `None`).
        - `outputs`: a stream, several, or a mapping of port to stream for `ctx.produce(to=)`.
        - `late`: "process" (default), "drop" or `to(stream)`.
        - `errors`: "stop" (default) or `to(stream, only=, limit=)`.
        - `watermark`: a share such as 0.99 for a percentile watermark.
        - `strong=False`: output is delivered before the commit, and again after a crash.
        - `dedup=False`: skip the duplicate check of sources with `id=`.
        - `concurrency`: how many keys of a slot run at once, in threads, while others wait for
          `ctx.http` and `ctx.call`. Results do not depend on it.
        - `services=True`: hooks use `ctx.http` or `ctx.call` through helper functions (where the
          class itself mentions them, that is seen).
        """
        template = _instance(computation)
        name = _checked(name or type(template).__name__, "a computation")
        where = f"computation {name!r}"
        if name in self._nodes:
            raise InvalidPipeline(f"{where} is there twice; give one of them a name= of its own")
        if not inputs:
            raise InvalidPipeline(f"{where} has no inputs")
        given = tuple(
            Input(_checked(s, "a stream"), KeySpec(k, where=f"{where}, input {s!r}"))
            for s, k in inputs.items()
        )
        if len({i.key.keyless for i in given}) == 2:
            raise InvalidPipeline(f"{where}: give every input a key, or none of them")
        _check_policy(late, ("process", "drop"), f"{where}: late=")
        _check_policy(errors, ("stop",), f"{where}: errors=")
        if slots is not None and not 1 <= slots <= 10_000:
            raise InvalidPipeline(f"{where}: slots= is a number from 1 to 10,000, not {slots!r}")
        if watermark is not None and not 0.0 < watermark < 1.0:
            raise InvalidPipeline(f"{where}: watermark= is a share between 0 and 1, such as 0.99")
        if type(concurrency) is not int or not 1 <= concurrency <= 1000:
            raise InvalidPipeline(
                f"{where}: concurrency= is a number from 1 to 1,000, not {concurrency!r}"
            )
        ports = _ports(outputs, where)
        node = Node(
            name=name,
            template=template,
            inputs=given,
            outputs=ports,
            late=late,
            errors=errors,
            slots=slots,
            strong=strong,
            percentile=watermark,
            aliases=tuple(aliases),
            concurrency=concurrency,
        )
        if services or (services is None and node.shape.uses_services):
            node = replace(node, services=True)
        if concurrency > 1 and (node.keyless or node.shape.takes_table):
            raise InvalidPipeline(f"{where}: concurrency= runs keys at once; it has none")
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
        if not dedup:
            self._no_dedup.add(name)
        return Stream(self, next(iter(ports.values()), ""))

    def stream(self, name: str, *, feedback: bool = False) -> Stream:
        """A stream by name; `feedback=True` declares that it closes a cycle."""
        _checked(name, "a stream")
        if feedback:
            self._feedback.add(name)
        return Stream(self, name)

    def validate(self) -> None:
        """Checks the whole pipeline; raises InvalidPipeline with what to do."""
        self.freeze()

    def freeze(self) -> Topology:
        """The checked graph and how it runs."""
        graph = Graph(
            self.name,
            dict(self._injectors),
            dict(self._nodes),
            dict(self._outlets),
            frozenset(self._feedback),
        )
        check(graph)
        return Topology(with_dedup(graph, frozenset(self._no_dedup)))

    def _write(self, stream: str, sink: Sink, name: str | None) -> None:
        if not isinstance(sink, Sink):
            raise InvalidPipeline(f"write: {sink!r} is not a sink; see headrace.sinks")
        name = _checked(name or self._outlet_name(stream), "a sink")
        if name in self._outlets:
            raise InvalidPipeline(f"two sinks are called {name!r}; give one a name= of its own")
        self._outlets[name] = Outlet(name, stream, sink)

    def _outlet_name(self, stream: str) -> str:
        taken = sum(1 for o in self._outlets.values() if o.stream == stream)
        return stream if not taken else f"{stream}.{taken + 1}"


def _instance(computation: Computation | type[Computation]) -> Computation:
    if isinstance(computation, type) and issubclass(computation, Computation):
        try:
            return computation()
        except TypeError as error:
            raise InvalidPipeline(
                f"{computation.__qualname__} needs parameters ({error}); pass an instance"
            ) from None
    if isinstance(computation, Computation):
        return computation
    raise InvalidPipeline(f"{computation!r} is not a Computation")


def _ports(outputs: str | Sequence[str] | Mapping[str, str], where: str) -> dict[str, str]:
    if isinstance(outputs, str):
        ports = {"": outputs}
    elif isinstance(outputs, Mapping):
        ports = dict(outputs)
    else:
        ports = {s: s for s in outputs}
        if len(ports) != len(outputs):
            raise InvalidPipeline(f"{where}: an output stream is named twice")
        if len(ports) == 1:
            ports = {"": next(iter(ports))}
    for stream in ports.values():
        _checked(stream, "a stream")
    if len(set(ports.values())) != len(ports):
        raise InvalidPipeline(f"{where}: two output ports name the same stream")
    return ports


def _checked(name: Any, what: str) -> str:
    # A name is also a directory's, where a character beyond ASCII takes up to twelve bytes.
    fits = isinstance(name, str) and _NAME.fullmatch(name) and len(quote(name)) <= _NAME_BYTES_MAX
    if not fits:
        raise InvalidPipeline(
            f"{name!r} cannot name {what}: use letters, digits, spaces and _ . : @ # + -, "
            "beginning with a letter or digit, at most 100 characters (fewer beyond ASCII)"
        )
    return str(name)


def _check_policy(policy: str | To, words: tuple[str, ...], where: str) -> None:
    if isinstance(policy, To):
        _checked(policy.stream, "a stream")
    elif policy not in words:
        choices = " or ".join(f'"{word}"' for word in words)
        raise InvalidPipeline(f"{where} is {choices} or to(stream), not {policy!r}")
