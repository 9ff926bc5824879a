"""`Harness`: a whole pipeline in one process, under a fake clock, with crashes as input.

It runs the same driver, log, worker and state code as a run on Spark. Only the substrate is
replaced, files are kept in memory, the test sends the records of sources, and every stream can be
read. Each epoch runs twice, with a warm and with an empty cache, and both must make the same:
this finds direct calls of `random()`, state shared between keys, and errors of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headrace import failpoints
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.engine.primitives.imports.importing import import_state
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.replay.replay import Replay, replay_epoch
from headrace.engine.spark.shipping.shipment import require_picklable
from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.values.codec import packed
from headrace.model.values.keys import encode_key
from headrace.model.values.time import Duration, Instant, duration, instant
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.graph import Outlet
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.plan.progress import RunSummary
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import StateChoice
from headrace.sinks.memory import Memory
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.testing.source import HarnessSource, replaced
from headrace.testing.twice import TwiceSubstrate
from headrace.worker import key_state
from headrace.worker.runtime import Runtime

START = 1_700_000_000_000_000
"""Where the fake clock begins."""


class _CrashItem:
    """The type of `CRASH`."""

    def __repr__(self) -> str:
        return "CRASH"


CRASH = _CrashItem()
"""As an item of `send`: the driver dies while it commits the records before this item."""


class Crash(BaseException):
    """The death of a driver, as tests inject it."""


class Harness:
    """Feeds a pipeline, lets time pass, crashes it, and reads what comes out."""

    def __init__(
        self,
        pipeline: PipelineBuilder,
        *,
        slots: int = 2,
        epoch_records: int = 1_000_000,
        start: Instant = START,
        twice: bool = True,
        picklable: bool = True,
        state: MemoryServer | None = None,
        streams: Collection[str] | None = None,
    ) -> None:
        """`twice`: run each epoch twice and compare. `picklable`: refuse a pipeline that could not
        be sent to workers; turn it off where the test replaces something that `setup` opens by an
        object that cannot be pickled, such as one with a lock. `state`: a state store in memory;
        without one, segments hold the state. `streams`: those that the test reads, if not all; for
        tests with many records."""
        if not isinstance(pipeline, PipelineBuilder):
            raise InvalidPipeline(f"Harness takes a Pipeline, not {pipeline!r:.80}")
        self._now = instant(start, what="start=")
        self._seed = 0
        self._slots = slots
        self._twice = twice
        self._epoch_records = epoch_records
        self._sources: dict[str, HarnessSource] = {}
        self._outputs: dict[str, Memory] = {}
        self._topology = self._rewire(pipeline.freeze(), streams)
        self._fingerprint = fingerprint(self._topology.graph)
        self._opens = None if state is None else partial(MemoryBackend, state)
        self._runtime = Runtime(self._topology, MemoryStore(), WorkerCache(), self._opens)
        self._actions: list[tuple[Callable[[], None], str | None]] = []
        self._checked = not picklable
        self._ended = False
        self._failed = False
        self._driver: Driver | None = None
        self.crashes = 0

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None and not self._failed:
                self.settle()
        finally:
            failpoints.disarm()

    # What happens ---------------------------------------------------------

    def send(self, stream: str, *values: Any) -> None:
        """Records arrive, in one epoch; `CRASH` among them kills the driver there."""
        source = self._source(stream)
        batch: list[Any] = []
        for value in values:
            if isinstance(value, _CrashItem):
                self._send(source, batch)
                batch = []
                self.crash()
            else:
                packed(value)  # a value that cannot be encoded fails here, at the line of the test
                batch.append(value)
        self._send(source, batch)

    def _send(self, source: HarnessSource, values: list[Any]) -> None:
        def act() -> None:
            for value in values:
                source.send(value)

        if values:
            self._actions.append((act, None))

    def import_state(
        self,
        computation: str,
        data: Any,
        *,
        key: str | Sequence[str] = (),
        written_at: Instant | None = None,
    ) -> None:
        """Fills the state of a computation from a table, before anything is sent."""
        state = StateChoice(SEGMENTS if self._opens is None else "memory")
        import_state(
            self._topology, self._runtime.store, computation, data, key=key,
            written_at=written_at, slots=self._slots, state=state, opens=self._opens,
        )  # fmt: skip

    def advance(self, time: Duration) -> None:
        """Time passes: the wall clock, and every source's watermark from its newest record on.

        A source that has sent nothing yet keeps up with the others.
        """
        micros = duration(time, what="advance")

        def act() -> None:
            self._now += micros
            fronts = [s.front for s in self._sources.values() if s.front is not None]
            silent = max(fronts) + micros if fronts else self._now
            for source in self._sources.values():
                source.tick(micros, silent)

        self._actions.append((act, None))

    def crash(self, at: str = "before-commit-write") -> None:
        """The driver dies at a failpoint while it handles what was sent; a new driver starts."""
        if at not in failpoints.NAMES:
            raise ValueError(f"unknown failpoint {at!r}; known are {', '.join(failpoints.NAMES)}")
        if self._actions and self._actions[-1][1] is None:
            act, _ = self._actions.pop()
            self._actions.append((act, at))
        else:
            self._actions.append((lambda: None, at))

    def rescale(self, slots: int) -> None:
        """The driver stops between two epochs, and one with another `slots=` goes on.

        Followed by `crash`, the new driver dies: `crash(at="after-ring-write")`.
        """
        if type(slots) is not int or slots < 1:
            raise ValueError(f"rescale takes a number of slots from 1 on, not {slots!r}")

        def act() -> None:
            self._slots, self._driver = slots, None

        self._actions.append((act, None))

    def end(self) -> RunSummary:
        """All sources end; the watermark becomes final. The summary includes drivers that died."""

        def act() -> None:
            self._ended = True
            for source in self._sources.values():
                source.end()

        self._actions.append((act, None))
        self.settle()
        driver = self._open()
        return driver.summary("end", whole=True)

    # What is seen ---------------------------------------------------------

    def read(self, stream: str) -> list[Any]:
        """Every value that has come out of a stream."""
        return [value for value, _ in self.records(stream)]

    def records(self, stream: str) -> list[tuple[Any, int]]:
        """(value, timestamp) of everything that has come out of a stream."""
        self.settle()
        if stream not in self._outputs:
            raise InvalidPipeline(
                f"there is no stream {stream!r}; there are: {', '.join(self._outputs)}"
            )
        return list(self._outputs[stream].records)

    def state(self, computation: str, key: Any) -> Any:
        """The object of a key, as of the last commit; None where the key has no state."""
        self.settle()
        node = self._topology.keyed.get(computation)
        if node is None:
            known = ", ".join(self._topology.keyed)
            raise InvalidPipeline(f"{computation!r} keeps no state here; these do: {known}")
        checkpoint = Checkpoint(self._runtime.store, opens=self._opens)
        if checkpoint.get(computation, key) is None:
            return None
        stored = checkpoint.stored(computation, key)
        stored.clock = checkpoint.clock(computation)
        loaded: Computation = key_state.load(
            self._runtime.live(node), encode_key(key), stored
        ).object
        return loaded

    def keys(self, computation: str) -> list[Any]:
        """Every key that has state."""
        self.settle()
        return [
            key for key, _ in Checkpoint(self._runtime.store, opens=self._opens).scan(computation)
        ]

    @property
    def store(self) -> Store:
        """The store, in memory, with its checkpoint: for `Checkpoint`, as of the last commit."""
        self.settle()
        return self._runtime.store

    @property
    def watermark(self) -> int:
        """The lowest input watermark of all computations."""
        self.settle()
        return self._open().watermark()

    def watermarks(self) -> dict[str, int]:
        """The input watermark of every computation."""
        self.settle()
        return dict(self._open().ledger.ins)

    @property
    def counts(self) -> dict[str, int]:
        """`ctx.count` metrics, and late and dead records."""
        self.settle()
        counters = self._open().ledger.counters
        return {"late": counters.late, "dead": counters.dead, **counters.metrics}

    @property
    def epoch(self) -> int:
        """The last committed epoch."""
        self.settle()
        return self._open().ledger.epoch

    def replay(self, epoch: int, *, computation: str | None = None, key: Any = None) -> Replay:
        """Runs a committed epoch again: its hook calls, and whether its output was the same."""
        self.settle()
        return replay_epoch(
            self._topology,
            self._runtime.store,
            epoch,
            computation=computation,
            key=key,
            prepared=True,
        )

    # How it runs ----------------------------------------------------------

    def settle(self) -> None:
        """Handles everything that was sent, until nothing is left to do."""
        while self._actions:
            act, crash_at = self._actions.pop(0)
            self._open()
            act()
            if crash_at is None:
                self._run()
                continue
            failpoints.arm(crash_at, self._die)
            try:
                self._run()
                # The failpoint was not reached: perhaps the next driver reaches it at its takeover.
                self._driver = None
                self._run()
                self._driver = None
            except Crash:
                pass
            finally:
                failpoints.disarm(crash_at)
            self.crashes += 1
            self._run()
        self._run()

    def _die(self) -> None:
        self._driver = None
        raise Crash

    def _run(self) -> None:
        try:
            while isinstance(self._open().step(), Run):
                pass
        except Exception:
            self._failed = True
            raise

    def _open(self) -> Driver:
        if self._driver is None:
            if not self._checked:  # a test should find what Spark would refuse
                try:
                    require_picklable(self._topology.graph)
                except InvalidPipeline as error:
                    hint = "(Stand-ins of a test may stay: Harness(p, picklable=False).)"
                    raise InvalidPipeline(f"{error} {hint}") from error
                self._checked = True
            options = Options(
                until="end" if self._ended else "caught_up",
                slots=self._slots,
                epoch_records=self._epoch_records,
                background=False,
                state=StateChoice(SEGMENTS if self._opens is None else "memory"),
            )
            substrate = TwiceSubstrate(self._runtime, self._slots, self._twice)
            setup = Setup(
                self._topology,
                self._fingerprint,
                self._runtime.store,
                substrate,
                options,
                clock=lambda: self._now,
                seeds=self._next_seed,
                opens=self._opens,
            )
            self._driver = Follower(setup).take_over()
        elif self._ended and self._driver.settings.until != "end":
            self._driver = None
            return self._open()
        return self._driver

    def _next_seed(self) -> int:
        self._seed += 1
        return self._seed

    def _source(self, stream: str) -> HarnessSource:
        for name in (stream, f"{stream}.raw"):
            if name in self._sources:
                return self._sources[name]
        raise InvalidPipeline(f"no source feeds {stream!r}; there are: {', '.join(self._sources)}")

    def _rewire(self, topology: Topology, streams: Collection[str] | None) -> Topology:
        graph = topology.graph
        injectors = {}
        for name, injector in graph.injectors.items():
            source = self._sources[name] = replaced(injector.source, lambda: self._now)
            injectors[name] = replace(injector, source=source)
        outlets = {}
        unknown = [name for name in streams or () if name not in topology.hosts]
        if unknown:
            raise InvalidPipeline(
                f"there is no stream {unknown[0]!r}; there are: {', '.join(topology.hosts)}"
            )
        for stream in topology.hosts if streams is None else streams:
            sink = self._outputs[stream] = Memory()
            outlets[stream] = Outlet(stream, stream, sink)
        return Topology(replace(graph, injectors=injectors, outlets=outlets))
