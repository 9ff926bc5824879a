"""What a leader tells of its run, as an object of the checkpoint: for pages and tools, anywhere.

Nothing depends on it: it is written without a sync, may be old, torn or missing, and no driver
reads it to decide anything. It says what the log does not hold: the graph, how long the acts of
each epoch took, rates, outages, notices, examples of dead letters. A newer leader writes its own;
who reads compares the generation with that of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from headrace.errors import HeadraceError, StoreError
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.model.values.shown import encodable
from headrace.pipeline.graph.graph import To
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.transient import Outage
from headrace.plan.listener import Listener
from headrace.plan.progress import (
    ComputationProgress,
    DeadLetter,
    EpochProgress,
    Notice,
    Phases,
    RunSummary,
    StoreUse,
)
from headrace.store.counts import LEASE, counted_as
from headrace.store.store import Store
from headrace.system import REAL, System

EPOCHS_KEPT = 120
NOTICES_KEPT = 50
LETTERS_KEPT = 50
RATE_OVER_S = 10.0
"""Over how long rates are averaged."""
ANYWAY_S = 10.0
"""A status is written at least this often, to show that it is not old."""
TEXT_MAX = 500

_MAGIC = b"headrace-status"


class GraphPart(msgspec.Struct, frozen=True):
    """A source, a computation or a sink."""

    name: str
    kind: str
    """source, computation or sink."""
    about: str = ""
    """The class of a computation, or what a source reads."""
    inputs: tuple[str, ...] = ()
    """Streams that it reads."""
    outputs: tuple[str, ...] = ()
    keyed: bool = False
    letters: str = ""
    """The stream of its dead letters."""


class EpochTimes(msgspec.Struct, frozen=True, array_like=True):
    """One epoch of the timeline."""

    epoch: int
    ended: int
    """Wall time, microseconds."""
    seconds: float
    phases: Phases
    records: int
    produced: int
    attempts: int = 1


class TimedNotice(msgspec.Struct, frozen=True, array_like=True):
    """A notice of the run, and when it came."""

    wall: int
    """Microseconds."""
    kind: str
    text: str


class LeaderStatus(msgspec.Struct, frozen=True):
    """What a leader tells."""

    generation: int
    wall: int
    """When it was written, microseconds by the leader's clock."""
    started: int
    """When this driver began to lead."""
    phase: str
    host: str = ""
    graph: tuple[GraphPart, ...] = ()
    feedback: tuple[str, ...] = ()
    """Streams that close a cycle."""
    outage: Outage | None = None
    epochs: tuple[EpochTimes, ...] = ()
    notices: tuple[TimedNotice, ...] = ()
    letters: tuple[DeadLetter, ...] = ()
    computations: dict[str, ComputationProgress] = {}
    rates: dict[str, float] = {}
    """Computation, or stream of a source -> records per second, lately."""
    counts: dict[str, int] = {}
    store: StoreUse = StoreUse()
    backlog: int | None = None
    newest: int = 0
    voids: int = 0


def read_status(store: Store) -> LeaderStatus | None:
    """What a leader has told; None if nothing readable is there. StoreError in an outage."""
    try:
        with counted_as(LEASE):
            data = store.read(paths.STATUS)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(unseal(_MAGIC, data, paths.STATUS), type=LeaderStatus)
    except (HeadraceError, msgspec.DecodeError, msgspec.ValidationError):
        return None  # written without a sync, or by another version


class StatusBoard(Listener):
    """Collects what a run tells, for the status that its leader writes."""

    def __init__(self, topology: Topology, system: System = REAL, host: str = "") -> None:
        self._system, self._host = system, host
        self._graph = graph_parts(topology)
        self._feedback = tuple(sorted(topology.graph.feedback))
        self._started = self._wall()
        self._epochs: deque[EpochTimes] = deque(maxlen=EPOCHS_KEPT)
        self._notices: deque[TimedNotice] = deque(maxlen=NOTICES_KEPT)
        self._letters: deque[DeadLetter] = deque(maxlen=LETTERS_KEPT)
        self._last: EpochProgress | None = None
        self._counted: deque[tuple[float, dict[str, int]]] = deque()
        self.events = 0
        """Rises with everything that is told."""

    def on_epoch(self, progress: EpochProgress) -> None:
        """Notes an epoch."""
        self._last = progress
        self._epochs.append(
            EpochTimes(
                progress.epoch,
                self._wall(),
                round(progress.seconds, 6),
                Phases(*(round(each, 6) for each in msgspec.structs.astuple(progress.phases))),
                progress.records,
                progress.produced,
                progress.attempts,
            )
        )
        self._letters.extend(progress.letters)
        counted = {name: each.records for name, each in progress.computations.items()}
        self._counted.append((self._system.uptime_s(), counted))
        while len(self._counted) > 2 and self._counted[-1][0] - self._counted[1][0] > RATE_OVER_S:
            self._counted.popleft()
        self.events += 1

    def on_notice(self, notice: Notice) -> None:
        """Notes a notice."""
        self._notices.append(
            TimedNotice(self._wall(), notice.kind, encodable(notice.text[:TEXT_MAX]))
        )
        self.events += 1

    def on_end(self, summary: RunSummary) -> None:
        """Notes the end of the run."""
        self.on_notice(Notice(summary.pipeline, "end", "; ".join(summary.lines())))

    def on_failure(self, error: Exception) -> None:
        """Notes the failure of the run."""
        self.on_notice(Notice("", "failure", f"{type(error).__name__}: {error}"))

    def status(self, generation: int, phase: str, outage: Outage | None) -> LeaderStatus:
        """What is to be written now. Called by another thread than that of the run."""
        last = self._last
        return LeaderStatus(
            generation,
            self._wall(),
            self._started,
            phase,
            self._host,
            self._graph,
            self._feedback,
            outage,
            tuple(self._epochs.copy()),
            tuple(self._notices.copy()),
            tuple(self._letters.copy()),
            {} if last is None else last.computations,
            self._rates(),
            {} if last is None else last.counts,
            StoreUse() if last is None else last.store,
            None if last is None else last.backlog,
            0 if last is None else last.newest,
            0 if last is None else last.voids,
        )

    def _rates(self) -> dict[str, float]:
        counted = self._counted.copy()
        if len(counted) < 2:
            return {}
        (began, before), now = counted[0], counted[-1][1]
        seconds = max(self._system.uptime_s() - began, 1e-3)  # idle time counts too
        return {name: round((n - before.get(name, 0)) / seconds, 1) for name, n in now.items()}

    def _wall(self) -> int:
        return int(self._system.wall_s() * 1e6)


class StatusKeeper:
    """Writes the status of a leader in its own thread, where something has changed."""

    def __init__(
        self,
        store: Store,
        board: StatusBoard,
        generation: int,
        phase: Callable[[], tuple[str, Outage | None]],
        every_s: float,
    ) -> None:
        self._store, self._board, self._generation = store, board, generation
        self._phase, self._every_s = phase, every_s
        self._written: tuple[object, ...] = ()
        self._written_s = float("-inf")
        self._ending = store.system.event()
        self._thread = store.system.thread(self._keep, "headrace-status")
        self._thread.start()

    def _keep(self) -> None:
        while not self._ending.wait(self._every_s):
            if not self._write():
                return

    def _write(self) -> bool:
        """Writes the status, if it is news; returns False if a newer leader has written one."""
        phase, outage = self._phase()
        news = (self._board.events, phase, outage)
        now_s = self._store.system.uptime_s()
        if news == self._written and now_s - self._written_s < ANYWAY_S:
            return True
        try:
            found = read_status(self._store)
            if found is not None and found.generation > self._generation:
                return False
            status = self._board.status(self._generation, phase, outage)
            with counted_as(LEASE):
                data = seal(_MAGIC, msgspec.json.encode(status))
                self._store.write_volatile(paths.STATUS, data)
        except (OSError, StoreError):
            return True  # the store is unavailable; the loop finds and reports that
        self._written, self._written_s = news, now_s
        return True

    def end(self, reason: str) -> None:
        """Writes what was told last, and that this driver leads no more."""
        self._ending.set()
        self._thread.join()
        self._board.on_notice(Notice("", "ended", reason))
        self._phase = lambda: ("ended", None)
        self._write()

    def abandon(self) -> None:
        """Ends without writing: a newer driver leads."""
        self._ending.set()
        self._thread.join()


def graph_parts(topology: Topology) -> tuple[GraphPart, ...]:
    """The graph of a pipeline, for people."""
    graph = topology.graph
    found = [
        GraphPart(i.name, "source", i.source.describe()[:TEXT_MAX], (), (i.stream,), False,
                  _letters(i.errors))
        for i in graph.injectors.values()
    ]  # fmt: skip
    found += [
        GraphPart(
            node.name,
            "computation",
            type(node.template).__name__,
            tuple(dict.fromkeys(given.stream for given in node.inputs)),
            node.emitted(),
            not node.keyless,
            _letters(node.errors),
        )
        for node in graph.nodes.values()
    ]
    found += [
        GraphPart(outlet.name, "sink", type(outlet.sink).__name__, (outlet.stream,))
        for outlet in graph.outlets.values()
    ]
    return tuple(found)


def _letters(policy: str | To) -> str:
    return policy.stream if isinstance(policy, To) else ""


def status_every_s(store: Store) -> float | None:
    """How often a leader writes its status; None: never."""
    every = store.system.limits.status_every_s
    if every is None or not store.rewrite_interval_s:
        return every
    return max(every, store.system.limits.status_rest_s, store.rewrite_interval_s)
