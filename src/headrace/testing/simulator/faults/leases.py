"""Faults of the lease, and a check of the rules for standbys, from the files alone.

Safety depends on the log, never on the lease. But a standby writes nothing while it observes the
lease (A4), waits as long as the lease says, takes over only from the generation whose lease it saw
expire, and ends by itself only where the leader has written that nothing is left to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.testing.simulator.checkers.log_checker import LogChecker, is_trimmed
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.conducted import ConductedLife
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import File, SimulatedDisk

_DELETES = ("unlink", "rmdir", "rename", "delete")


@dataclass
class _Look:
    """One read of the lease by a standby."""

    at: float
    generation: int
    """The last generation in the log at that time."""
    lease: dict[str, Any] | None
    """The lease that it saw; None where it saw no lease of this generation."""
    spoilt: bool
    """Whether a fault made it differ from the file."""
    done: int | None = None
    """The generation whose lease said that all is done, whatever the log said at that time."""


def _last_sign_of_life(looks: Sequence[_Look]) -> float:
    """When the leader of the last look was heard: a count that was not seen before.

    An older copy of the lease, or none, says nothing about the leader.
    """
    generation, highest, at = None, -1, 0.0
    for look in looks:
        count = look.lease["count"] if look.lease else -1
        if look.generation != generation:
            generation, highest, at = look.generation, count, look.at
        elif count > highest:
            highest, at = count, look.at
    return at


class Leases:
    """The lease file of a schedule."""

    def __init__(
        self,
        chance: Chance,
        disk: SimulatedDisk,
        root: str,
        log: LogChecker,
        uptime_s: Callable[[], float],
    ) -> None:
        self._chance, self._disk, self._log, self._uptime_s = chance, disk, log, uptime_s
        self._root, self._path = root, f"{root}/LEASE"
        self._past: list[bytes] = []
        """All earlier contents of the file."""
        self._looks: dict[int, list[_Look]] = {}

    # Faults ---------------------------------------------------------------

    def seen(self, life: Life | None, path: str, data: bytes) -> bytes:
        """The bytes that a process sees when it reads the lease, perhaps with a fault."""
        if path != self._path or not isinstance(life, ConductedLife):
            return data
        if not self._past or self._past[-1] != data:
            self._past.append(data)
        spoilt = self._chance.strikes(kinds.LEASE_FAILS, "read")
        if spoilt:
            data = self._spoilt(data, f"driver {life.number} reads")
            life.unwell_at = self._uptime_s()
        self._note(life, data, spoilt=spoilt)
        return data

    def missing(self, life: Life) -> None:
        """A process looks for the lease, and the file is missing."""
        self._note(life, b"")

    def spoil(self, lives: Sequence[Life]) -> None:
        """Damages the file itself: a power loss tears it, or an older copy comes back."""
        file = self._disk.find(self._path)
        if isinstance(file, File) and self._chance.strikes(kinds.LEASE_FAILS, "file"):
            file.data = self._spoilt(file.data, "the file is")
            self.disturbed(lives)

    def landed(self, what: str, lives: Sequence[Life]) -> None:
        """A late request has landed; one that was for the lease has brought an old one back."""
        if what.endswith(self._path):
            self.disturbed(lives)

    def disturbed(self, lives: Sequence[Life]) -> None:
        """Whoever takes over now was misled, and may do so."""
        for life in lives:
            if isinstance(life, ConductedLife):
                life.unwell_at = self._uptime_s()

    def _spoilt(self, data: bytes, who: str) -> bytes:
        how = self._chance.choice(("torn", "empty", "old", "old"))
        if self._chance.face == kinds.OBJECTS:
            how = "old"  # objects are whole
        self._chance.note(f"{who} {how}: LEASE")
        if how == "torn":
            return data[: self._chance.random.randrange(len(data) or 1)]
        return b"" if how == "empty" or not self._past else self._chance.choice(self._past)

    # Checks ---------------------------------------------------------------

    def changes(self, life: Life, call: str, path: str) -> None:
        """A driver that has not taken over deletes nothing; an observing standby writes nothing."""
        if isinstance(life, ConductedLife) and life.watches:
            raise Violation(f"driver {life.number} is a standby and watches: {call} {path}")
        # A writer deletes its own put again where the directory was trimmed meanwhile.
        directory, _, name = path.rpartition("/")
        trimmed = "/log/" in path and name.isdigit() and is_trimmed(self._disk, directory)
        aside = path.endswith(".tmp") or trimmed
        if not life.took_over and not aside and call in _DELETES:
            raise Violation(f"driver {life.number} has not taken over yet: {call} {path}")

    def took_over(self, life: Life, generation: int, leader: Life | None) -> None:
        """A generation is in the log: checks that its driver could take over from `leader`."""
        self._log.catch_up()
        if not isinstance(life, ConductedLife) or not life.standby:
            return
        who = f"driver {life.number} (standby)"
        looks = self._looks.get(life.number, [])
        if not looks:
            raise Violation(f"{who} took over and never looked at the lease")
        last = looks[-1]
        before = max(g for g in self._log.generations if g < generation)
        if last.generation != before:
            raise Violation(
                f"{who} saw generation {last.generation} lapse and took over from {before}"
            )
        if last.lease is not None and last.lease["state"] == "released":
            return
        if last.lease is not None and last.lease["state"] == "done":
            raise Violation(f"{who} took over though its leader was done")
        heard = _last_sign_of_life(looks)
        length_s = last.lease["length_s"] if last.lease else life.lease_s
        if last.at - heard < length_s - 1e-6:
            raise Violation(
                f"{who} took over after {last.at - heard:.1f} s of silence; a lease lasts "
                f"{length_s}"
            )
        if isinstance(leader, ConductedLife) and leader.leads and not leader.asleep:
            disturbed = max(leader.last_unwell, leader.began_to_lead)
            if disturbed < heard and not any(look.spoilt for look in looks if look.at >= heard):
                raise Violation(
                    f"{who} took over from driver {leader.number}, which nothing has disturbed "
                    f"for {self._uptime_s() - disturbed:.1f} s"
                )

    def ended(self, life: Life) -> None:
        """A driver has ended: checks that it was allowed to."""
        if not isinstance(life, ConductedLife) or life.reason != "not_needed":
            return
        looks = self._looks[life.number]
        # A standby reads the log and then the lease. In between, or while it reads, the next driver
        # may begin: it knows the generations that were there at its previous look, and maybe more.
        known = looks[-2].generation if len(looks) > 1 else 0
        done = looks[-1].done
        if done is None or done < known:
            raise Violation(f"driver {life.number} ends, but no lease said that all is done")

    def _note(self, life: Life, data: bytes, *, spoilt: bool = False) -> None:
        if not isinstance(life, ConductedLife) or not life.standby or life.leads:
            return
        lease: dict[str, Any] | None = None
        try:
            lease = json.loads(data.split(b"\n", 1)[1])
        except (ValueError, IndexError):
            pass
        generation = self._log.generation
        done = lease["generation"] if lease is not None and lease["state"] == "done" else None
        if lease is not None and lease["generation"] < generation:
            lease = None
        looks = self._looks.setdefault(life.number, [])
        looks.append(_Look(self._uptime_s(), generation, lease, spoilt, done))
