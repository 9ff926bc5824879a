"""Runs a pipeline on a few real records, and says what came out of every stream.

The engine is that of the harness: one process, everything in memory, every epoch run twice. Sources
are the real ones, cut after some records. Every sink is replaced by memory, so nothing outside is
written. First the pipeline runs until the sample is read; then the input ends, so that timers fire
and windows close.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import InvalidPipeline
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.graph import Graph, To
from headrace.pipeline.graph.topology import Topology
from headrace.plan.summary import unread
from headrace.testing.harness import Harness
from headrace.testing.sampling.source import SampledSource, sampled

RECORDS = 100
SAMPLES = 3
EPOCHS = 4
"""Into about how many epochs the sample is cut, so that state is kept from one to the next."""


class SampledInput(msgspec.Struct, frozen=True):
    """What was read of one source."""

    source: str
    records: int
    splits: int
    """How many splits were read."""
    splits_known: int
    """How many splits the source has."""
    parts: tuple[tuple[str, int], ...] = ()
    """Where `sources.then` makes one of several sources: each, and how many records it gave."""


class SampledStream(msgspec.Struct, frozen=True):
    """What came out of one stream."""

    rows: int
    at_end: int
    """How many of them came only when the input ended: closed windows, last timers."""
    samples: tuple[Any, ...]
    sinks: tuple[str, ...] = ()
    """What a run would write it to."""
    dead_letters: bool = False


class SampledComputation(msgspec.Struct, frozen=True):
    """One computation after the sample."""

    watermark: int
    """Its input watermark when the sample was read, before the input ended."""
    records: int | None = None
    """Records that reached it; None of a computation without a key."""
    keys: int | None = None
    samples: tuple[tuple[Any, Any], ...] = ()
    """(key, state) of some keys, after the end."""


class PipelineCheck(msgspec.Struct, frozen=True):
    """What a check has found."""

    pipeline: str
    seconds: float
    epochs: int
    inputs: dict[str, SampledInput]
    streams: dict[str, SampledStream]
    computations: dict[str, SampledComputation]
    late: int
    dead: int
    counts: dict[str, int]
    """`ctx.count` metrics, as computation.metric."""
    notes: tuple[str, ...]


def check_pipeline(
    pipeline: PipelineBuilder, records: int = RECORDS, *, calls: bool = False
) -> PipelineCheck:
    """Runs a pipeline on about `records` records of each source, in memory.

    `calls`: whether computations may call the outside by `ctx.http` and `ctx.call`.
    """
    began = time.perf_counter()
    h = _SampleHarness(pipeline, records, calls)
    with h:
        h.settle()
        watermarks = h.watermarks()
        before = {stream: len(h.records(stream)) for stream in h.streams}
        summary = h.end()
        streams = {stream: h.stream(stream, before[stream]) for stream in h.streams}
        counters = h.counters()
        computations = {
            name: h.computation(name, watermarks, counters.records_of) for name in h.graph.nodes
        }
        inputs = {
            name: SampledInput(
                source.describe(),
                counters.records_of.get(name, 0),
                len(source.sampled),
                source.known,
                parts if len(parts := source.records_of_parts()) > 1 else (),
            )
            for name, source in h.sampled.items()
        }
    # The sinks of the pipeline are replaced, so what nobody reads is known from its own graph.
    notes = (*summary.notes, *unread(h.graph, counters))
    return PipelineCheck(
        h.graph.name,
        time.perf_counter() - began,
        summary.epochs,
        inputs,
        streams,
        computations,
        summary.late,
        summary.dead,
        summary.counts,
        notes,
    )


class _SampleHarness(Harness):
    """A harness whose sources are the real ones, cut after some records."""

    def __init__(self, pipeline: PipelineBuilder, records: int, calls: bool) -> None:
        self._sample = records
        self._calls = calls
        self.sampled: dict[str, SampledSource] = {}
        super().__init__(
            pipeline, epoch_records=max(1, records // EPOCHS), start=time.time_ns() // 1000
        )

    @property
    def graph(self) -> Graph:
        """The graph as its author made it."""
        return self._given

    @property
    def streams(self) -> list[str]:
        """Every stream."""
        return list(self._outputs)

    def counters(self) -> Any:
        """All that was counted."""
        return self._open().ledger.counters

    def end(self) -> Any:
        """The input ends where the sample does."""
        for source in self.sampled.values():
            source.end()
        return super().end()

    def stream(self, name: str, before: int) -> SampledStream:
        """What came out of a stream."""
        values = self.read(name)
        letters = {
            owner.errors.stream
            for owners in (self._given.injectors, self._given.nodes)
            for owner in owners.values()
            if isinstance(owner.errors, To)
        }
        sinks = [o for o in self._given.outlets.values() if o.stream == name]
        return SampledStream(
            len(values),
            len(values) - before,
            tuple(values[:SAMPLES]),
            tuple(o.name for o in sinks),
            name in letters,
        )

    def computation(
        self, name: str, watermarks: Mapping[str, int], records: Mapping[str, int]
    ) -> SampledComputation:
        """A computation after the sample."""
        watermark = watermarks.get(name, 0)
        if name not in self._topology.keyed:
            return SampledComputation(watermark)
        checkpoint = Checkpoint(self.store)
        some = tuple(islice(checkpoint.scan(name), SAMPLES))
        keys = sum(1 for _ in checkpoint.scan(name))
        return SampledComputation(watermark, records.get(name, 0), keys, some)

    def _rewire(self, topology: Topology, streams: Collection[str] | None) -> Topology:
        """Every stream can be read, as in a harness, and sources are the real ones."""
        graph = self._given = topology.graph
        for node in graph.nodes.values():
            if node.services and not self._calls:
                raise InvalidPipeline(
                    f"computation {node.name!r} may call the outside (ctx.http, ctx.call), and a "
                    "check touches nothing outside unless it is told to: --calls (calls=True)"
                )
        outlets = super()._rewire(topology, streams).graph.outlets
        self._sources.clear()  # those that a test would send to
        injectors = {}
        for name, injector in graph.injectors.items():
            source = self.sampled[name] = sampled(name, injector.source, self._sample)
            injectors[name] = replace(injector, source=source)
        return Topology(replace(graph, injectors=injectors, outlets=outlets))
