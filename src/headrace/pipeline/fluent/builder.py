"""The builder: `read`, `compute`, `write`.

    p = Pipeline("zeitgeist")
    p.read("queries", sources.jsonl("in/*.jsonl", timestamp="ts"))
    p.compute(WindowCounter, inputs={"queries": "query"}, outputs="windows")
    p.stream("windows").write(sinks.parquet("out/windows"))

Every call checks its arguments as far as possible; `freeze` checks the rest and returns the graph.
`Stream` is the fluent interface over the same calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.key_spec import KeyGiven
from headrace.model.source import Source
from headrace.model.values.names import known_options
from headrace.model.values.time import Duration
from headrace.pipeline.fluent.catalog import Catalog
from headrace.pipeline.fluent.stream import Stream, stream_of
from headrace.pipeline.graph.checks import checked_name
from headrace.pipeline.graph.graph import EXACTLY_ONCE, Shed, To
from headrace.pipeline.graph.topology import Topology

T = TypeVar("T")


class PipelineBuilder:
    """Collects injectors, computations and sinks under a name."""

    def __init__(self, name: str, *, guarantee: str = EXACTLY_ONCE) -> None:
        """`guarantee`: "exactly-once" (default), "at-least-once" or "at-most-once"."""
        self.catalog = Catalog(name, guarantee)

    @property
    def name(self) -> str:
        """The name of the pipeline in messages and in its checkpoint."""
        return self.catalog.pipeline

    @property
    def guarantee(self) -> str:
        """Its guarantee level."""
        return self.catalog.guarantee

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

        `schema`: its columns, as a dataclass, msgspec Struct, TypedDict or `pa.Schema`. Records
        that do not fit go by `errors`.
        `errors`: "stop" (default), or `to(stream)` for input that is not a valid record.
        """
        self.catalog.add_injector(name, source, errors)
        self.catalog.declare(name, schema if schema is not None else source.schema)
        return Stream(self.catalog, name)

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
        overload: str | Shed = "",
    ) -> Stream[Any]:
        """Adds a computation.

        - `inputs`: stream or its name -> key (a column, several, a function, `()`, `None`).
        - `outputs`: a stream, several, or a mapping of port to stream for `ctx.produce(to=)`.
        - `late`: "process" (default), "drop" or `to(stream)`.
        - `errors`: "stop" (default) or `to(stream, only=, limit=)`.
        - `watermark`: a share such as 0.99 for a percentile watermark.
        - `strong=False`: output is delivered before the commit, and again after a crash.
        - `dedup=False`: skip the duplicate check of sources with `id=`.
        - `guarantee`: instead of these two, the guarantee level of its rows at sinks:
          "exactly-once", "at-least-once" or "at-most-once". By default the pipeline's level.
        - `concurrency`: how many keys of a slot run at once, in threads, while others wait for
          `ctx.http` and `ctx.call`. Results do not depend on it.
        - `services=True`: hooks use `ctx.http` or `ctx.call` through helper functions (if the
          class itself mentions them, this is detected).
        - `timeout`: a hook, or `setup`, that runs longer is stopped. It then counts as a hook that
          raised TimeoutError.
        - `overload`: what a slot that is too slow does with the records beyond its limit: "carry"
          (they wait for the next epoch), "shed" or `shed(priority=)` (they are dropped and
          counted). By default as the run says.
        """
        called = name or getattr(computation, "__name__", type(computation).__name__)
        keys = inputs_of(inputs, self.catalog, f"computation {called!r}")
        node = self.catalog.add_node(
            computation, inputs=keys, outputs=outputs, name=name,
            aliases=aliases, late=late, errors=errors, slots=slots, strong=strong, dedup=dedup,
            guarantee=guarantee, watermark=watermark, concurrency=concurrency, services=services,
            timeout=timeout, overload=overload,
        )  # fmt: skip
        return stream_of(self.catalog, node)

    @overload
    def stream(self, name: str, *, schema: type[T], feedback: bool = False) -> Stream[T]: ...

    @overload
    def stream(self, name: str, *, schema: None = None, feedback: bool = False) -> Stream[Any]: ...

    def stream(
        self, name: str, *, schema: type[Any] | pa.Schema | None = None, feedback: bool = False
    ) -> Stream[Any]:
        """A stream by name; `feedback=True` declares that it closes a cycle.

        `schema` declares its columns: records that are produced to it are then checked.
        """
        checked_name(name, "a stream")
        self.catalog.declare(name, schema)
        if feedback:
            self.catalog.feedback.add(name)
        return Stream(self.catalog, name)

    def validate(self) -> None:
        """Checks the whole pipeline; raises InvalidPipeline with what to do."""
        self.freeze()

    def freeze(self) -> Topology:
        """The checked graph, with the topology that says how it runs."""
        return self.catalog.topology()


def inputs_of(given: Any, catalog: Catalog, where: str) -> dict[str, KeyGiven]:
    """Stream's name -> key. A stream may be given instead of its name."""
    if not given:
        raise InvalidPipeline(f"{where} has no inputs")
    if isinstance(given, str | Stream):
        name = given if isinstance(given, str) else given.name
        raise InvalidPipeline(f"{where}: say by which key: inputs={{{name!r}: key}}, or None")
    if not isinstance(given, Mapping):
        raise InvalidPipeline(f"{where}: inputs={{stream: key}}, not {given!r:.80}")
    found: dict[str, KeyGiven] = {}
    for stream, key in given.items():
        name = stream.name_in(catalog, where) if isinstance(stream, Stream) else stream
        if name in found:
            raise InvalidPipeline(f"{where}: the input {name!r} is there twice")
        found[name] = key
    return found
