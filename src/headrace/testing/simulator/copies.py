"""Two copies of one checkpoint that run at once, over one output: one goes on, one is refused.

A driver dies at some point; its checkpoint is copied, and a driver starts over each copy. They take
turns in the middle of any call, die and start again. They cut their input into epochs differently,
so the two never publish the same.

Checked: the published output is one complete history, that of the driver which ran to its end.
The other driver was refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.errors import IncompatibleState
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.sink import Sink
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.decisions.next_step import Finish
from headrace.plan.options import Options
from headrace.sinks.files import FileSink
from headrace.sinks.stored.sink import StoredSink
from headrace.store.disk import DiskStore
from headrace.store.store import Store
from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.substrate import SimulatedSubstrate
from headrace.testing.simulator.drivers.workers import Workers
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import Directory, File, Node, SimulatedDisk
from headrace.testing.simulator.machine.fiber import Fiber, Killed
from headrace.testing.simulator.machine.objects import (
    ObjectServer,
    SimulatedObjectStore,
    StoredObject,
)
from headrace.testing.simulator.machine.syscalls import Fault, Syscalls
from headrace.testing.simulator.machine.world import SimulatedSystem, Tuning
from headrace.testing.simulator.workloads.records import LATENESS_US, stamped
from headrace.testing.simulator.workloads.sink import SimulatedRows, SimulatedSink
from headrace.testing.simulator.workloads.source import SimulatedSource

START_US = 1_700_000_000_000_000
TURNS_MAX = 5_000
ORIGINAL, COPY = "/checkpoint", "/copy"


class Sieve(Computation):
    """Lets every third number pass, so that epochs without rows are common."""

    seen: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.seen += 1
        if record.value["n"] % 3 == 0:
            ctx.produce({"n": record.value["n"], "seen": self.seen})


class CopiedRun:
    """A checkpoint, and the driver that runs over it now."""

    def __init__(self, copies: Copies, root: str, epoch_records: int, lives: int) -> None:
        self._copies, self.root, self._epoch_records = copies, root, epoch_records
        self.lives = lives
        """How many drivers it may still have."""
        self.dies_in: int | None = None
        """After how many more system calls its driver dies."""
        self.fiber = Fiber(self._run)
        self.steps = 0
        self.finished = False
        self.refused: IncompatibleState | None = None

    def begin(self, dies_in: int | None) -> None:
        """A driver starts."""
        self._copies.chance.note(f"a driver starts over {self.root}")
        self.lives -= 1
        self.dies_in, self.fiber = dies_in, Fiber(self._run)

    def _run(self) -> None:
        follower = self._copies.follower(self.root, self._epoch_records)
        try:
            driver = follower.take_over()
            self.fiber.pause()
            while not isinstance(driver.step(), Finish):
                self.steps += 1
                self._tidy(driver)
                self.fiber.pause()
        except IncompatibleState as error:
            self._copies.chance.note(f"{self.root} is refused: {str(error)[:160]}")
            self.refused = error
            return
        self._copies.chance.note(f"{self.root} comes to its end")
        self.finished = True

    def _tidy(self, driver: Driver) -> None:
        """Deletes old markers, as upkeep does. Without them only the driver can detect a copy."""
        for outlet in driver.graph.outlets.values():
            if isinstance(outlet.sink, FileSink):
                outlet.sink.tidy()


class Copies:
    """One schedule."""

    def __init__(self, chance: Chance) -> None:
        self.chance, self.random = chance, chance.random
        self._records = stamped(
            self.random, self.random.randint(8, 28), lambda i, at: {"n": i, "at": at}
        )
        self.disk = SimulatedDisk()
        files = Syscalls(self.disk, self._gate, lambda: self._now / 1e6)
        files.remembered = lambda: set()
        self._server = ObjectServer(self.disk, lambda: self._now / 1e6)
        self._now = START_US
        self._tuning = Tuning(chance)
        # Nothing is collected, so that both histories can be read to the end.
        self._limits = msgspec.structs.replace(self._tuning.limits, collect_every_epochs=1_000_000)
        self._system = SimulatedSystem(files, chance, lambda: self._now / 1e6, self._limits)
        self._running: CopiedRun | None = None
        self._haste = self.random.choice((0.01, 0.01, 0.05, 0.3))
        """The probability that a turn ends before a call."""
        self._first = self.random.choice((0.1, 0.5, 0.5, 0.9))
        """The probability that the next turn is the original's."""

    def run(self) -> None:
        """Runs the schedule; raises Violation where a promise was broken."""
        sides = self._begin()
        try:
            self._until_end(sides)
            self._check(sides)
        finally:
            for side in sides:
                side.fiber.kill()

    def follower(self, root: str, epoch_records: int) -> Follower:
        """A follower of a checkpoint, with sinks and workers of its own."""
        p = PipelineBuilder("copies")
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        source = SimulatedSource(timing, self._records)
        for split in self._records:
            source.show(split, len(self._records[split]))
        p.read("numbers", source)
        p.compute(Sieve, inputs={"numbers": "n"}, outputs="passed")
        p.stream("passed").write(self._sink())
        topology, store = p.freeze(), self._store(root)
        workers = Workers(topology, store, self.chance, 1)
        options = Options(slots=2, epoch_records=epoch_records, retain_epochs=2, background=False)
        setup = Setup(
            topology,
            "code-1",
            store,
            SimulatedSubstrate(topology, workers, self.chance),
            options,
            clock=lambda: self._now,
            seeds=lambda: self.random.getrandbits(63),
            choose_run=self._tuning.choose_run,
        )
        return Follower(setup)

    def _store(self, root: str) -> Store:
        if self.chance.face == kinds.DISK:
            return DiskStore(root, self._system)
        return SimulatedObjectStore(self._server, root, self._system, self._gate)

    def _sink(self) -> Sink:
        if self.chance.face == kinds.DISK:
            return SimulatedSink("passed", "/out/passed", self.chance)
        return StoredSink(self._store("/out/passed"), SimulatedRows())

    # How a schedule runs --------------------------------------------------

    def _begin(self) -> list[CopiedRun]:
        """A driver dies after some epochs, and its checkpoint is copied."""
        first = CopiedRun(self, ORIGINAL, self.random.randint(3, 6), 1)
        first.begin(None)
        for _ in range(self.random.randint(1, 4)):
            self._turn(first)
        if self.random.random() < 0.5:  # in the middle of an epoch
            first.dies_in = self.random.randint(1, 150)
            self._turn(first)
        first.fiber.kill()
        self.disk.root.names[COPY.strip("/")] = _copied(self.disk.directory(ORIGINAL))
        self.chance.note(f"{ORIGINAL} is copied to {COPY}")
        cuts = self.random.sample(range(1, 8), 2)
        sides = [CopiedRun(self, ORIGINAL, cuts[0], 3), CopiedRun(self, COPY, cuts[1], 3)]
        return sides

    def _until_end(self, sides: list[CopiedRun]) -> None:
        for side in sorted(sides, key=lambda side: self.random.random()):
            side.begin(self._some_death())
            self._turn(side)  # it opens
        for _ in range(TURNS_MAX):
            going = [side for side in sides if not side.finished and side.refused is None]
            if not going:
                return
            self._turn(going[0] if self.random.random() < self._first else going[-1])
        raise Violation(f"there is no end after {TURNS_MAX} turns")

    def _some_death(self) -> int | None:
        return self.random.randint(1, 400) if self.random.random() < 0.3 else None

    def _turn(self, side: CopiedRun) -> None:
        self._now += self.random.randint(1, 1_000_000)
        self._running = side
        try:
            side.fiber.resume()
        finally:
            self._running = None
        error = side.fiber.error
        if error is not None and not isinstance(error, Killed):
            if isinstance(error, Violation):
                raise error
            raise Violation(f"{side.root} stopped: {type(error).__name__}: {error}") from error
        if isinstance(error, Killed) and side.lives:
            side.begin(self._some_death() if side.lives > 1 else None)

    def _gate(self, call: str, path: str) -> Fault | None:
        """A driver makes a system call: it may die here, or another may have its turn first."""
        side = self._running
        if side is None:
            return None
        if side.fiber.dead:
            raise Killed
        if side.dies_in is not None:
            side.dies_in -= 1
            if side.dies_in <= 0:
                self.chance.note(f"the driver over {side.root} dies at {call} {path}")
                self.chance.counts[kinds.DRIVER_DIES.name] += 1
                side.fiber.dead = True
                raise Killed
        # Pause here, so that a driver's knowledge of the other is old when it puts or renames.
        likely = 0.4 if call in ("rename", "link", "put") else self._haste
        if path.startswith("/out") and self.random.random() < likely:
            side.fiber.pause()
            self._running = side
        return None

    # What must be true ----------------------------------------------------

    def _check(self, sides: list[CopiedRun]) -> None:
        logs = {side.root: self._log(side.root) for side in sides}
        histories = {root: log.commits for root, log in logs.items()}
        ended = [side.root for side in sides if side.finished]
        if len(ended) > 1:
            if histories[ORIGINAL] != histories[COPY]:  # equal: no work was left to do
                raise Violation("both copies came to their end, over one output")
            return
        if not ended:
            if not _may_both_be_refused(*histories.values()):
                raise Violation("both copies were refused, and no driver continues")
            return
        self._check_published(ended[0], logs[ended[0]])
        if self._is_admitted(next(side.root for side in sides if not side.finished)):
            raise Violation("the copy that was refused is admitted when it starts again")

    def _log(self, root: str) -> LogChecker:
        log = LogChecker(self.disk, root, self._limits.log_directory_entries, 2)
        log.catch_up()
        return log

    def _check_published(self, root: str, log: LogChecker) -> None:
        """The published output is that of this history: complete, and nothing else."""
        if self.chance.face == kinds.OBJECTS:
            self._check_manifests(root, log.commits)
            return
        for sink in self.disk.list("/out"):
            shown = {
                name: self._files(f"/out/{sink}/{name}")
                for name in self.disk.list(f"/out/{sink}")
                if name.startswith("epoch=")
            }
            expected = {}
            for commit in log.commits:
                mine = [f for f in commit["staged"] if f["sink"] == sink and f["rows"]]
                if mine:
                    names = [f"staged/{sink}/{file['name']}" for file in mine]
                    expected[f"epoch={commit['epoch']:012d}"] = sorted(
                        log.riders.bytes.get(name) or self.disk.file(f"{root}/{name}").data
                        for name in names
                    )
            for name in sorted({*shown, *expected}):
                if shown.get(name) != expected.get(name):
                    raise Violation(
                        f"{root} came to its end, but {sink}/{name} is not as it committed it: "
                        "rows are lost, or a copy's"
                    )

    def _check_manifests(self, root: str, commits: list[dict[str, Any]]) -> None:
        """Each epoch has a manifest, which names the files that this history committed."""
        names = self.disk.list("/out/passed/_epochs")
        for commit in commits:
            shown: list[str] | None = None
            if f"{commit['epoch']:012d}" in names:
                file = self.disk.file(f"/out/passed/_epochs/{commit['epoch']:012d}")
                [epoch] = json.loads(file.data.split(b"\n", 2)[1])
                shown = sorted(described[0] for described in epoch["files"])
            if shown != sorted(file["name"] for file in commit["staged"] if file["rows"]):
                raise Violation(
                    f"{root} came to its end, but epoch {commit['epoch']} is not as it committed "
                    "it: rows are lost, or a copy's"
                )
        if len(names) != len(commits):
            raise Violation(f"{root} has {len(commits)} epochs, its output {len(names)}")

    def _files(self, path: str) -> list[bytes]:
        names = self.disk.directory(path).names
        return sorted(file.data for file in names.values() if isinstance(file, File))

    def _is_admitted(self, root: str) -> bool:
        try:
            self.follower(root, 1).take_over()
        except IncompatibleState:
            return False
        return True


def _may_both_be_refused(*histories: list[dict[str, Any]]) -> bool:
    """Whether an epoch has rows in one history only: the other claims nothing, so each may see
    the other there and be refused."""

    def rows(commit: Mapping[str, Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        for file in commit["staged"]:
            found[file["sink"]] = found.get(file["sink"], 0) + file["rows"]
        return found

    pairs = zip(*histories, strict=False)
    return any(rows(one).keys() != rows(other).keys() for one, other in pairs)


def _copied(node: Node) -> Node:
    if isinstance(node, StoredObject):
        return StoredObject(node.data, node.nonce, node.changed_s)
    if isinstance(node, File):
        file = File(node.changed_s)
        file.data = node.data
        file.sync()
        return file
    made = Directory()
    made.names = {name: _copied(inner) for name, inner in node.names.items()}
    made.durable = dict(made.names)
    return made
