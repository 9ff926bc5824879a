"""Decides at each failpoint, call and request whether a driver dies, sleeps or gets a fault."""

from __future__ import annotations

from collections.abc import Callable

from headrace.testing.simulator.checkers.consumer import Consumer
from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.drivers.readers import Pins, Visitor
from headrace.testing.simulator.drivers.substrate import SimulatedSubstrate
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.faults.leases import Leases
from headrace.testing.simulator.faults.outages import Outages
from headrace.testing.simulator.faults.requests import Requests
from headrace.testing.simulator.faults.state_server import StateServer
from headrace.testing.simulator.machine.disk import SimulatedDisk
from headrace.testing.simulator.machine.fiber import Killed
from headrace.testing.simulator.machine.syscalls import Fault

PROMISES = (
    "after-takeover",
    "after-plan-write",
    "after-commit-write",
    "after-checkpoint-write",
)
"""Failpoints after which the last log entry must survive everything."""

OUTAGE_CALLS_MAX = 40
CALLS_MAX = 20_000
"""A turn with more system calls is an endless loop."""
TAKEOVERS_MAX = 5
"""How often one driver may take over while the clock stands still."""

_BELIEVED = ("/determinants/0", "/_claims", "/log/0")
"""Paths where one process acts on a file that another has put: dangerous while not synced."""

_CHANGES = frozenset(
    ("create", "write", "link", "rename", "unlink", "rmdir", "put", "overwrite", "copy", "delete")
)

_PLACES = {".trimmed": "trim", ".closed": "marker", ".intent-1": "intent"}
"""Objects whose put decides what others may do: dangerous before and after."""

_SELDOM = {
    "before-plan-write": "plan",
    "after-plan-write": "plan",
    "before-ring-write": "ring",
    "after-ring-write": "ring",
    "after-collect": "collect",
}
"""Failpoints that few drivers reach: later plans ride in commits, and most runs are short."""

_KEEPING = (
    "after-fragment-write",
    "before-checkpoint-write",
    "after-checkpoint-write",
    "before-repair",
)
"""Failpoints that only drivers with a checkpoint interval reach."""

_ASKED = ("before-control-write", "after-control-write", "after-answer-write")
"""Failpoints that a driver reaches only where somebody asks for something."""

_YIELDS = 0.08
"""How often a thread beside the loop lets the loop go on, at each request."""

_FAULTS = {
    "link": (Fault.REFUSED, Fault.UNREPORTED, Fault.REPEATED, Fault.LATE),
    "rename": (Fault.REFUSED, Fault.UNREPORTED, Fault.REPEATED),
    "unlink": (Fault.REFUSED, Fault.UNREPORTED),
    "write": (Fault.REFUSED, Fault.TORN),
}


class Interference:
    """The gate between the drivers and the simulated machine."""

    log: LogChecker
    consumer: Consumer
    substrate: SimulatedSubstrate
    leases: Leases
    requests: Requests | None = None
    """The faults of the object store that holds the checkpoint; None where a disk does."""
    state_server: StateServer | None = None
    """The state store beside the checkpoint; None where there is none."""

    def __init__(
        self,
        chance: Chance,
        disk: SimulatedDisk,
        root: str,
        outages: Outages,
        clock_s: Callable[[], float],
    ) -> None:
        self._chance = chance
        self._disk = disk
        self._root = root
        self._conducted = chance.is_conducted
        self._clock_s = clock_s
        self.outages = outages
        self._pins = Pins(disk, root)
        self.leader: Life | None = None
        """The driver that has taken over last."""
        self.running: Life | None = None
        """The driver whose turn it is; None between turns."""
        self._takeovers: list[tuple[int, float]] = []
        self.outage = 0
        """How many more calls on the disk fail."""

    def remembered(self) -> set[str]:
        """What the running process remembers outside of objects (see `Life.remembered`)."""
        return self.running.remembered if self.running is not None else set()

    def reached(self, failpoint: str) -> None:
        """A driver, or one of its tasks, is at a failpoint."""
        life = self.running
        if life is None:
            return
        if life.fiber.dead:
            raise Killed
        if failpoint in PROMISES and life.follower is not None:
            self.log.promised = max(self.log.promised, life.follower.log.position)
            self.log.catch_up()
            self.log.check_files()
            self.log.check_own(life.follower.log.position, life.follower.log.generation)
        if isinstance(life, Visitor):
            return
        self.substrate.reached(failpoint)
        if failpoint == "before-collect":
            self._pins.collection_begins(life, self._clock_s())
        elif failpoint == "after-collect":
            self._pins.collection_ends(life)
        elif failpoint == "after-takeover":
            self._count_takeover(life)
            before, self.leader = self.leader, life
            if life.follower is not None:
                self.leases.took_over(life, life.follower.log.generation, before)
        seldom = _SELDOM.get(failpoint)
        if seldom and self._chance.strikes(kinds.DRIVER_DIES_IN_RARE_PLACES, seldom):
            life.die(failpoint)
        place = "stop" if self.log.control.stop == "asked" else "entry"
        if failpoint in _ASKED and self._chance.strikes(kinds.REQUESTER, place):
            life.die(failpoint)
        for kind in (kinds.WRITTEN_STATE_LOST, kinds.EXECUTORS_LOST):
            if failpoint in _KEEPING and self._chance.strikes(kind, "driver"):
                life.die(failpoint)
        rare = self.requests is not None and failpoint == "after-record-write"
        if rare and self._chance.strikes(kinds.DRIVER_DIES, "marker"):
            life.die(failpoint)
        if life.reached(failpoint) or self._chance.strikes(kinds.DRIVER_PAUSES, "failpoint"):
            self._pause(life, f"at {failpoint}")

    def _count_takeover(self, life: Life) -> None:
        """A driver that cannot start must not fill the log with generations."""
        moment = (life.number, self._clock_s())
        self._takeovers = [at for at in self._takeovers if at == moment] + [moment]
        if len(self._takeovers) > TAKEOVERS_MAX:
            raise Violation(f"driver {life.number} takes over again and again, without a pause")

    def gate(self, call: str, path: str) -> Fault | None:
        """A driver makes a system call."""
        life = self._begins(call, path)
        if life is None:
            return None
        unsynced = self._is_unsynced(call, path)
        if call == "read" and unsynced and self._chance.strikes(kinds.POWER_FAILS, "unsynced read"):
            # A process is about to rely on a file that another has put and not synced.
            # It looks whether the file still counts, and only then uses it.
            life.power_fails_in = self._chance.random.randint(1, 6)
        place = "unsynced name" if call == "fsync" and unsynced else "call"
        if self._chance.strikes(kinds.DRIVER_PAUSES, place):
            self._pause(life, f"before {call} {path}")
        return Fault.REFUSED if self._is_refused(life, call, path) else self._fault(call, path)

    def request(self, call: str, path: str) -> Fault | None:
        """A driver sends a request to an object store."""
        life = self._begins(call, path)
        if life is None or self.requests is None:
            return None
        place = _PLACES.get(path[path.rfind(".") :], "call") if call == "put" else "call"
        if place in ("marker", "trim") and self._chance.strikes(kinds.DRIVER_DIES, place):
            life.die(f"{call} {path}")
        if place == "trim" and self._chance.strikes(kinds.DRIVER_DIES_IN_RARE_PLACES, place):
            life.die(f"{call} {path}")
        if self._chance.strikes(kinds.DRIVER_PAUSES, place):
            self._pause(life, f"before {call} {path}")
        self._others_act(life, call, path)
        if self._is_refused(life, call, path):
            return Fault.REFUSED
        fault = self.requests.fault(call)
        if fault is not None:
            self._chance.note(f"{call} {path} {fault.value}")
        if fault not in (None, Fault.REPEATED, Fault.TWICE):
            self._meets_refusal()
        return fault

    def state_request(self, what: str) -> None:
        """A process sends a request to the state store; it may find another one there."""
        server, life = self.state_server, self.running
        if server is None:
            return
        if life is not None and life.fiber.dead:
            raise Killed
        server.happens()
        if self._begins("state store", what) is None or life is None:
            return
        beside = life.current is not life.fiber
        if self._chance.strikes(kinds.APPLIER_SLEEPS, "request"):
            self._pause(life, f"before the state store is asked to {what}")
        elif (beside or isinstance(life, Visitor)) and self._chance.random.random() < _YIELDS:
            life.pause()

    def _begins(self, call: str, path: str) -> Life | None:
        """The driver that makes a call, which may die here; None between turns."""
        life = self.running
        if life is None:
            return None
        if life.fiber.dead:
            raise Killed
        life.calls += 1
        if life.calls > CALLS_MAX:
            raise Violation(f"{life.kind} {life.number} is in an endless loop: {call} {path}")
        life.called(f"{call} {path}")
        if "/merged/" in path and self._chance.strikes(kinds.DRIVER_DIES, "merge"):
            life.die(f"{call} {path}")  # a rare place; the file left there must not count
        return life

    def _others_act(self, life: Life, call: str, path: str) -> None:
        """A thread waits for the answer to its request; other threads and processes go on."""
        if self._chance.strikes(kinds.SLOW_ANSWER, "request"):
            seconds = self._chance.choice((2.0, 10.0, 40.0))
            self._chance.note(f"{call} {path} takes {seconds:.0f} s")
            life.slowed(seconds)
        beside = life.current is not life.fiber and not path.endswith("/LEASE")
        if beside and self._chance.random.random() < _YIELDS:
            life.pause()  # what runs beside the epochs is seldom done within one

    def _is_refused(self, life: Life, call: str, path: str) -> bool:
        """Whether an outage refuses the call; a call that is not refused may change things."""
        if self._conducted and self._meets_the_outside(life, call, path):
            return True
        if call in _CHANGES and path.startswith(self._root) and not self.outages.is_vanished:
            self._check_change(life, call, path)
        elif call == "delete":
            self.log.catch_up()
            self.consumer.check_deletion(path)
        return False

    def _meets_the_outside(self, life: Life, call: str, path: str) -> bool:
        """Whether an outage refuses the call; visitors often pause first."""
        if isinstance(life, Visitor) and self._chance.random.random() < 0.15:
            self._pause(life, f"before {call} {path}")
        if call == "read" and path == f"{self._root}/LEASE" and self._disk.find(path) is None:
            self.leases.missing(life)
        refused = self.outages.refuses(path)
        if refused or (self.outages.is_vanished and path.startswith(self._root)):
            self._chance.disturbances += 1
            self._meets_refusal()
        return refused

    def _check_change(self, life: Life, call: str, path: str) -> None:
        if call in ("unlink", "delete"):
            self.log.catch_up()
            self.log.check_deletion(path, self.consumer.delivered)
        self._pins.check(life, call, path)
        if not isinstance(life, Visitor):
            self.leases.changes(life, call, path)

    def naps(self) -> None:
        """A task waits; meanwhile other processes may get a turn."""
        life = self.running
        if life is None:
            return
        if life.fiber.dead:
            raise Killed
        if self._chance.random.random() < 0.3:
            if self.requests is None:
                life.pause()
            else:
                life.slowed(0.0)

    def sink_fails(self) -> None:
        """A sink raises."""
        self._meets_refusal()

    def _meets_refusal(self) -> None:
        if self.running is not None:
            self.running.refused()

    def time_passes(self) -> None:
        """A driver has stopped: from now on only half as many calls fail."""
        self.outage //= 2
        if self.requests is not None:
            self.requests.calm_down()

    def ends(self) -> None:
        """No call fails any more."""
        self.outage = 0
        if self.requests is not None:
            self.requests.throttled = 0

    def _is_unsynced(self, call: str, path: str) -> bool:
        if call not in ("read", "fsync") or not any(place in path for place in _BELIEVED):
            return False
        if not (self._chance.awaits(kinds.DRIVER_PAUSES) or self._chance.awaits(kinds.POWER_FAILS)):
            return False
        return self._disk.is_unsynced(path, inside=call == "fsync")

    def _pause(self, life: Life, where: str) -> None:
        self._chance.note(f"{life.kind} {life.number} pauses {where}")
        life.sleeps = life.asleep = True
        life.pause()

    def _fault(self, call: str, path: str) -> Fault | None:
        if self.outage > 0:
            self.outage -= 1
            self._chance.disturbances += 1
            self._meets_refusal()
            return Fault.REFUSED
        place = "link or rename" if call in ("link", "rename") else "other call"
        if not self._chance.strikes(kinds.DISK_FAILS, place):
            return None
        if self._chance.random.random() < 0.1:
            self.outage = self._chance.random.randint(1, OUTAGE_CALLS_MAX)
        fault = self._chance.choice(_FAULTS.get(call, (Fault.REFUSED,)))
        self._meets_refusal()
        self._chance.note(f"{call} {path} {fault.value}")
        return fault
