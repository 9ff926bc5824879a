"""One schedule: drivers start, die, sleep and wake over one checkpoint, until all input is read.

Only one thing runs at a time: a driver, until it pauses at a failpoint or in the middle of a system
call; or the surroundings between two turns, where time passes, records arrive, zombie tasks finish,
rival drivers start and the power fails. The checkers run after each turn. When the budget of faults
is spent, the run must end by itself.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import cast

from headrace.engine.replay.checkpoint import Checkpoint
from headrace.log.paths import safe
from headrace.pipeline.graph.graph import Outlet
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.skips import skips
from headrace.store.disk import DiskStore
from headrace.store.store import Store
from headrace.testing.simulator.checkers.consumer import Consumer
from headrace.testing.simulator.checkers.deliveries import Deliveries
from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.manifests import ManifestConsumer
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.checkers.warmth import check_warm
from headrace.testing.simulator.contract import SimulationOutcome, Workload
from headrace.testing.simulator.drivers.conducted import ConductedLife
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.drivers.substrate import SimulatedSubstrate
from headrace.testing.simulator.drivers.surroundings import LIVES_MAX, TURNS_MAX, Surroundings
from headrace.testing.simulator.drivers.workers import Workers
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.faults.interference import Interference
from headrace.testing.simulator.faults.interval import WrittenState
from headrace.testing.simulator.faults.leases import Leases
from headrace.testing.simulator.faults.outages import Outages
from headrace.testing.simulator.faults.requests import Requests
from headrace.testing.simulator.faults.state_server import state_store_of
from headrace.testing.simulator.machine.disk import SimulatedDisk
from headrace.testing.simulator.machine.fiber import Fiber
from headrace.testing.simulator.machine.objects import ObjectServer, SimulatedObjectStore
from headrace.testing.simulator.machine.syscalls import Syscalls
from headrace.testing.simulator.machine.world import SimulatedSystem, Tuning, at_failpoints
from headrace.testing.simulator.workloads import WORKLOADS
from headrace.testing.simulator.workloads.sink import SimulatedSink, SimulatedStoredSink

START = 1_700_000_000_000_000
CONDUCTED_TURNS_MAX = 1500
"""Higher than for other schedules: a standby reads the lease about every second, one turn each."""
ROOT = "/checkpoint"


class Simulation:
    """A workload under the schedule of one seed."""

    def __init__(self, workload: Workload, chance: Chance) -> None:
        self.workload, self.chance = workload, chance
        self.now = START
        self.code_version = 1
        self.tuning = Tuning(chance)
        self.disk = SimulatedDisk()
        self.written = WrittenState(chance, self.disk, ROOT, lambda: self.workers)
        self.tuning.limits = self.written.limits(self.tuning.limits)
        self.stopped = False  # by unlogged dice that gave another result in a repair
        self._uptime = 0
        self.outages = Outages(chance, self.disk, ROOT, self.uptime_s)
        self._interference = Interference(chance, self.disk, ROOT, self.outages, self._clock_s)
        files = Syscalls(self.disk, self._interference.gate, self._clock_s)
        files.remembered = self._interference.remembered
        self.system = SimulatedSystem(files, chance, self._clock_s, self.tuning.limits)
        self.system.uptime, self.system.on_sleep = self.uptime_s, self._sleep
        self.system.running = lambda: self._interference.running
        self.requests: Requests | None = None
        self.background = self._stores_output = False
        if chance.face == kinds.OBJECTS:
            self.background = Random(f"{chance.seed} background").random() < 0.6
            self._stores_output = Random(f"{chance.seed} output").random() < 0.7
            chance.note("the checkpoint lies in an object store")
            self.requests = Requests(chance, ObjectServer(self.disk, self._clock_s))
            self.requests.landed = lambda what: self.leases.landed(what, self.lives)
            self._interference.requests = self.requests
        self.state_server, self.opens = state_store_of(chance, self._interference)
        if chance.stored:
            self.background = Random(f"{chance.seed} background").random() < 0.6
        self.epoch_records = chance.random.randint(4, 12)
        self.lease_s = chance.random.uniform(4, 10) if chance.is_conducted else 0.0
        self.lives: list[Life] = []
        self.learnt: dict[str, str] = {}
        self.around = Surroundings(self)
        self._naps = 0
        if (attach := getattr(workload, "attach", None)) is not None:
            attach(self)

    def run(self) -> SimulationOutcome:
        """Runs the schedule; raises Violation where a guarantee was broken."""
        meets = self._interference
        with at_failpoints(meets.reached):
            self._build()
            try:
                self._until_end()
                if self.stopped:
                    return self._found()
                self._afterwards()
                outcome = self._outcome()
                self.workload.check(outcome)
                return outcome
            finally:
                self._kill_all()

    def _build(self) -> None:
        topology = self.workload.pipeline().freeze()
        graph = topology.graph
        self.sources = {
            name: self.written.source(injector.source.timing, self.workload.records[name])
            for name, injector in graph.injectors.items()
        }
        injectors = {
            name: replace(injector, source=self.sources[name])
            for name, injector in graph.injectors.items()
        }
        streams = {name: outlet.stream for name, outlet in graph.outlets.items()}
        if not streams:
            streams = {stream: stream for stream in topology.hosts}
        outlets = {name: Outlet(name, stream, self._sink(name)) for name, stream in streams.items()}
        self.topology = Topology(replace(graph, injectors=injectors, outlets=outlets))
        self.store = self.new_store()
        count = self.chance.random.randint(1, 3)
        made = self.written.executors_on(self.system, self.new_store)
        self.workers = Workers(self.topology, self.store, self.chance, count, self.opens, made)
        self.substrate = SimulatedSubstrate(self.topology, self.workers, self.chance)
        self.log = LogChecker(
            self.disk, ROOT, self.tuning.limits.log_directory_entries, self.tuning.retain_epochs
        )
        roots = {name: f"/out/{safe(name)}" for name in outlets}
        self.log.note = self.chance.note
        self.log.noted = self.substrate.measured.noted
        repeats = getattr(self.workload, "repeats", self.workload.name in WORKLOADS)
        self.substrate.repeats = repeats and not self.topology.uses_services()
        if kinds.LOAD_MOVES in self.chance.kinds:
            self.log.watch_load(self.tuning.elasticity(self.substrate.parallelism))
        may_lose = [n for n, o in outlets.items() if self.topology.is_at_most_once(o.stream)]
        self.consumer = (ManifestConsumer if self._stores_output else Consumer)(
            self.disk, self.log, roots, may_lose, self.chance, self.workload.appeared
        )
        self.deliveries = Deliveries(self.log, self.consumer, self._teller)
        meets = self._interference
        for outlet in outlets.values():
            failures = cast(SimulatedSink | SimulatedStoredSink, outlet.sink).failures
            failures.on_delivery, failures.on_failure = self.deliveries.begins, meets.sink_fails
        self.substrate.driver = lambda: meets.running
        self.substrate.time_passes = self.time_passes
        meets.log, meets.consumer, meets.substrate = self.log, self.consumer, self.substrate
        self.leases = Leases(self.chance, self.disk, ROOT, self.log, self.uptime_s)
        meets.leases, self.outages.log = self.leases, self.log
        self.system.files.seen = self._seen
        if self.chance.random.random() < 0.5:
            self._records_arrive(1_000_000)

    def _sink(self, name: str) -> SimulatedSink | SimulatedStoredSink:
        place = f"/out/{safe(name)}"
        if not self._stores_output:
            return SimulatedSink(name, place, self.chance)
        running = self._interference
        return SimulatedStoredSink(
            name, lambda: self.new_store(place), lambda: running.running, self.chance
        )

    def _teller(self) -> tuple[int, int, int]:
        """The running driver: its number, its generation, and the rows it has reported as lost."""
        life = self._interference.running
        driver = life.follower.driver if life is not None and life.follower is not None else None
        if life is None or driver is None:
            raise Violation("a sink is handed an epoch, but no driver is running")
        return life.number, driver.log.generation, driver._deliverer.undelivered

    def _clock_s(self) -> float:
        return self.now / 1e6

    def uptime_s(self) -> float:
        """The monotonic clock of every process, which no jump of the wall clock moves."""
        return self._uptime / 1e6

    def progress(self) -> tuple[int, int]:
        """How much is in the log, and in the outputs."""
        self.log.catch_up()
        return self.log.length, sum(
            self.consumer.high_water(name) for name in self.consumer.outputs
        )

    def new_store(self, root: str = ROOT) -> Store:
        """The checkpoint, or an output, as a process that has just started sees it."""
        if self.requests is None:
            return DiskStore(root, self.system)
        meets = self._interference
        store = SimulatedObjectStore(self.requests.server, root, self.system, meets.request)
        store.seen, store.pause = self._seen, lambda seconds: meets.naps()
        return self.written.far(store)

    def _seen(self, path: str, data: bytes) -> bytes:
        """The bytes that the running process sees."""
        return self.leases.seen(self._interference.running, path, data)

    def time_passes(self, microseconds: int) -> None:
        """Both clocks move on."""
        self.now += microseconds
        self._uptime += microseconds

    def _sleep(self, seconds: float) -> None:
        """A task waits for the answer of another's call; it polls with growing intervals."""
        self._naps += 1
        self.now += int(seconds * 1e6) << min(self._naps, 12)
        self._interference.naps()

    # How a schedule runs --------------------------------------------------

    def _until_end(self) -> None:
        turns = CONDUCTED_TURNS_MAX if self.chance.is_conducted else TURNS_MAX
        for _ in range(turns):
            life = self._next_life()
            self.turn(life)
            if life.finished or self.stopped:
                return
            self._between(life)
        raise Violation(f"there is no end after {turns} turns")

    def _next_life(self) -> Life:
        alive = [life for life in self.lives if not life.fiber.done]
        if not alive:  # all drivers have given up; outages end before another driver starts
            self.outages.end(all_of_them=True)
        if not self.outages.is_vanished and (
            not alive or (len(alive) < 3 and self._rival_comes(alive[-1]))
        ):
            return self.start(standby=not self.lives and self._is_first_a_standby())
        if self.chance.is_conducted:
            return self.around.due(alive)
        if len(alive) > 1 and self.chance.random.random() < 0.4:
            return self.chance.choice(alive)
        return alive[-1]

    def _is_first_a_standby(self) -> bool:
        return kinds.STANDBY_DRIVER in self.chance.kinds and self.chance.random.random() < 0.1

    def start(self, *, standby: bool) -> Life:
        """Starts a driver."""
        if len(self.lives) == LIVES_MAX:
            raise Violation(f"there is no end after {LIVES_MAX} drivers")
        if self.chance.strikes(kinds.CODE_CHANGES, "start"):
            self.code_version += 1
        supervised = not standby and self.around.is_supervised()
        life = self.new_life(standby=standby, supervised=supervised)
        what = " as a standby" if standby else ", supervised" if supervised else ""
        self.chance.note(f"driver {life.number} starts{what} (code {self.code_version})")
        return life

    def new_life(self, *, standby: bool = False, supervised: bool = False) -> Life:
        """A driver is started, without a fault of its own."""
        number = len(self.lives) + 1
        if self.chance.is_conducted:
            self.lives.append(ConductedLife(self, number, standby=standby, supervised=supervised))
        else:
            self.lives.append(Life(self, number))
        return self.lives[-1]

    def _rival_comes(self, newest: Life) -> bool:
        """Whether another driver is started, usually because this one seems dead."""
        slept, newest.sleeps = newest.sleeps, False
        return (slept and self.chance.random.random() < 0.6) or self.chance.strikes(
            kinds.RIVAL_DRIVER, "turn"
        )

    def turn(self, life: Life) -> None:
        """A driver runs until it pauses or ends."""
        if not self.chance.is_conducted:
            life.wake(self.uptime_s())
        self.resume(life, life.fiber)
        if life.fiber.done:
            life.check_end()
            self.leases.ended(life)
            self._interference.time_passes()
        self.log.check_load(life.number, life.follower)
        check_warm(self.log, self.workers.take_rebuilt(), self.tuning.limits.chains_kept)
        self.consumer.look()

    def resume(self, life: Life, fiber: Fiber) -> None:
        """One thread of a process runs until it pauses; if its process dies, so do the others."""
        self._interference.running, life.current, life.calls = life, fiber, 0
        try:
            fiber.resume()
        finally:
            self._interference.running, life.current = None, life.fiber
        if life.took_the_power:
            life.took_the_power = False
            self._lose_power()
        if life.fiber.dead or life.fiber.done:
            self._kill(life)
        if isinstance(fiber.error, Violation):
            raise fiber.error
        self.log.catch_up()

    def _between(self, life: Life) -> None:
        """The events between two turns of drivers."""
        chance = self.chance
        waits = life.waits_until
        self.time_passes(chance.random.randint(1, 2_000_000))
        if waits is not None:
            self.now = max(self.now, waits)
        if chance.is_conducted:
            self.around.goes_on()
        elif self.background or self.requests is not None:
            self.around.threads_run()
        self.around.state_readers_run()
        self._records_arrive(chance.random.randint(0, 3) if waits is None else 3)
        if chance.strikes(kinds.CLOCK_JUMPS, "idle hour"):
            self.now += 3_600_000_000
            chance.note("an idle hour passes")
        if chance.strikes(kinds.CLOCK_JUMPS, "turn"):
            self.now = max(1, self.now + chance.random.randint(-7_200_000_000, 7_200_000_000))
            chance.note(f"the clock jumps to {(self.now - START) // 1_000_000} s")
        if self.substrate.zombies and chance.random.random() < 0.3:
            self.substrate.run_zombie()
        if self._late and not self.log.away and chance.random.random() < 0.3:
            self._land_late()
        if chance.strikes(kinds.POWER_FAILS, "turn") or self.written.lose_perhaps():
            self._lose_power()

    def _records_arrive(self, more: int) -> None:
        for name, source in self.sources.items():
            for split in self.workload.records[name]:
                source.show(split, more)

    @property
    def _late(self) -> bool:
        """Whether refused calls, or requests without an answer, will still be done."""
        return bool(self.system.files.late or (self.requests and self.requests.server.late))

    def _land_late(self) -> None:
        if self.requests is not None and self.requests.server.late:
            self.requests.land()
            return
        what, act = self.system.files.late.pop(0)
        self.chance.note(f"late, but done: {what}")
        try:
            act()
        except OSError:
            pass  # another process was first

    def _lose_power(self) -> None:
        self.outages.end(all_of_them=True)
        self.chance.note("the power fails: all drivers die, and what was not synced is lost")
        self._kill_all()
        self.system.files.late.clear()
        self.disk.lose_power(self.chance.random)
        self.written.after_power_loss()
        self.log.after_power_loss()
        self.consumer.after_power_loss()

    def _kill_all(self) -> None:
        for life in self.around.everybody():
            self._kill(life)

    def _kill(self, life: Life) -> None:
        self._interference.running = life
        life.kill()
        self._interference.running = None

    def _afterwards(self) -> None:
        """Sleeping drivers wake, late writes are done, and one more driver finds nothing to do."""
        self.chance.budget = 0
        self.outages.end(all_of_them=True)
        self._interference.ends()
        for life in self.lives:
            life.power_fails_in = None
        self._records_arrive(1_000_000)
        while self.substrate.zombies:
            self.substrate.run_zombie()
        while self._late:
            self._land_late()
        self.around.readers_end()
        self.around.lives_end()
        self.around.check_requests(self.tuning.limits.outcomes_kept)

    def _outcome(self) -> SimulationOutcome:
        self.log.catch_up()
        self.log.check_files()
        self.consumer.check_complete()
        self.deliveries.check_lost()
        stops = bool(getattr(self.workload, "stops_with", ""))
        meant = skips(self.topology.graph) or stops or self.around.is_asked
        if self.log.voids and self.chance.only_the_outside and not meant:
            raise Violation(f"only outages, but a plan was voided: {self.log.voids[0][1]}")
        return self._found()

    def _found(self) -> SimulationOutcome:
        checkpoint, log = Checkpoint(self.store, opens=self.opens), self.log
        hooks, weak = self.substrate.hooks_of(log.commits), self.consumer.weak()
        outputs = {name: output.epochs for name, output in self.consumer.outputs.items()}
        return SimulationOutcome(outputs, checkpoint, hooks, log.commits, log.voids, weak)
