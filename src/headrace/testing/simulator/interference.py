"""What a driver meets on its way: at every failpoint and system call, death, sleep or a fault."""

from __future__ import annotations

from headrace.testing.simulator.chance import Chance
from headrace.testing.simulator.consumer import Consumer
from headrace.testing.simulator.disk import SimulatedDisk
from headrace.testing.simulator.fiber import Killed
from headrace.testing.simulator.life import Life
from headrace.testing.simulator.log_checker import LogChecker
from headrace.testing.simulator.substrate import SimulatedSubstrate
from headrace.testing.simulator.syscalls import Fault

PROMISES = ("after-takeover", "after-plan-write", "after-commit-write")
"""Failpoints after which the last log entry must survive everything."""

OUTAGE_CALLS_MAX = 40

_BELIEVED = ("/determinants/0", "/_claims", "/log/0")
"""Where one process acts on what another has put: delicate as long as it is not synced."""

_FAULTS = {
    "link": (Fault.REFUSED, Fault.UNREPORTED, Fault.REPEATED, Fault.LATE),
    "rename": (Fault.REFUSED, Fault.UNREPORTED, Fault.REPEATED),
    "unlink": (Fault.REFUSED, Fault.UNREPORTED),
    "write": (Fault.REFUSED, Fault.TORN),
}


class Interference:
    """Stands between the drivers and their world."""

    log: LogChecker
    consumer: Consumer
    substrate: SimulatedSubstrate

    def __init__(self, chance: Chance, disk: SimulatedDisk, root: str) -> None:
        self._chance = chance
        self._disk = disk
        self._root = root
        self.running: Life | None = None
        """The driver whose turn it is; None while the world itself acts."""
        self._outage = 0
        """How many more calls on the disk fail."""

    def remembered(self) -> set[str]:
        """What the running process keeps in its modules."""
        return self.running.remembered if self.running is not None else set()

    def reached(self, failpoint: str) -> None:
        """A driver, or one of its tasks, is at a failpoint."""
        life = self.running
        if life is None:
            return
        if life.fiber.dead:
            raise Killed
        if failpoint in PROMISES and life.driver is not None:
            self.log.promised = max(self.log.promised, life.driver.log.position)
            self.log.catch_up()
            self.log.check_files()
        self.substrate.reached(failpoint)
        if life.reached(failpoint) or self._chance.strikes("driver pauses", 0.02):
            self._pause(life, f"at {failpoint}")

    def gate(self, call: str, path: str) -> Fault | None:
        """A driver makes a system call."""
        life = self.running
        if life is None:
            return None
        if life.fiber.dead:
            raise Killed
        life.called(f"{call} {path}")
        unsynced = self._is_unsynced(call, path)
        if call == "read" and unsynced and self._chance.strikes("power fails", 0.7):
            # What somebody has put, and not synced, is about to be believed by another.
            life.power_fails_in = self._chance.random.randint(1, 2)
        if self._chance.strikes("driver pauses", 0.15 if call == "fsync" and unsynced else 0.01):
            self._pause(life, f"before {call} {path}")
        if call == "unlink" and path.startswith(self._root):
            self.log.catch_up()
            self.log.check_deletion(path, self.consumer.delivered)
        return self._fault(call, path)

    def naps(self) -> None:
        """A task waits; meanwhile others may come to their turn."""
        life = self.running
        if life is None:
            return
        if life.fiber.dead:
            raise Killed
        if self._chance.random.random() < 0.3:
            life.fiber.pause()

    def time_passes(self) -> None:
        """A driver has stopped, and somebody looks why: an outage does not last for ever."""
        self._outage //= 2

    def _is_unsynced(self, call: str, path: str) -> bool:
        if call not in ("read", "fsync") or not any(place in path for place in _BELIEVED):
            return False
        if not (self._chance.awaits("driver pauses") or self._chance.awaits("power fails")):
            return False
        return self._disk.is_unsynced(path, inside=call == "fsync")

    def _pause(self, life: Life, where: str) -> None:
        self._chance.note(f"driver {life.number} pauses {where}")
        life.sleeps = True
        life.fiber.pause()

    def _fault(self, call: str, path: str) -> Fault | None:
        if self._outage > 0:
            self._outage -= 1
            self._chance.disturbances += 1
            return Fault.REFUSED
        often = call in ("link", "rename")
        if not self._chance.strikes("disk fails", 0.05 if often else 0.004):
            return None
        if self._chance.random.random() < 0.1:
            self._outage = self._chance.random.randint(1, OUTAGE_CALLS_MAX)
        fault = self._chance.choice(_FAULTS.get(call, (Fault.REFUSED,)))
        self._chance.note(f"{call} {path} {fault.value}")
        return fault
