"""Faults of the lease, and what no standby may do: checked from the files alone.

Safety rests on the log, never on the lease. But a standby writes nothing while it watches
(A4), waits as long as the lease says, takes over only from the generation that it saw
lapse, and ends by itself only where the leader has said that nothing is left to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.testing.simulator.checkers.log_checker import LogChecker, Violation
from headrace.testing.simulator.drivers.conducted import ConductedLife
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import File, SimulatedDisk


@dataclass
class _Look:
    """A standby has read the lease."""

    at: float
    generation: int
    """The log's, at that moment."""
    lease: dict[str, Any] | None
    """What it got to see; None where that was no lease of this generation."""
    spoilt: bool
    """Whether that is not what lay there."""

    def shows(self) -> tuple[int, int | None]:
        return self.generation, self.lease["count"] if self.lease else None


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
        """What the file has held so far."""
        self._looks: dict[int, list[_Look]] = {}

    # Faults ---------------------------------------------------------------

    def seen(self, life: Life | None, path: str, data: bytes) -> bytes:
        """What a process that reads the lease gets to see."""
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
        """A process looks for a lease, and there is none."""
        self._note(life, b"")

    def spoil(self, lives: Sequence[Life]) -> None:
        """The file itself comes to harm: a power loss tore it, an older copy came back."""
        file = self._disk.find(self._path)
        if isinstance(file, File) and self._chance.strikes(kinds.LEASE_FAILS, "file"):
            file.data = self._spoilt(file.data, "the file is")
            for life in lives:
                if isinstance(life, ConductedLife):
                    life.unwell_at = self._uptime_s()

    def _spoilt(self, data: bytes, who: str) -> bytes:
        how = self._chance.choice(("torn", "empty", "old", "old"))
        self._chance.note(f"{who} {how}: LEASE")
        if how == "torn":
            return data[: self._chance.random.randrange(len(data) or 1)]
        return b"" if how == "empty" or not self._past else self._chance.choice(self._past)

    # Checks ---------------------------------------------------------------

    def changes(self, life: Life, call: str, path: str) -> None:
        """Who has not taken over deletes nothing; a standby that watches writes nothing."""
        if isinstance(life, ConductedLife) and life.watches:
            raise Violation(f"driver {life.number} is a standby and watches: {call} {path}")
        # A put into a directory that was trimmed meanwhile is taken back, by its writer.
        trimmed = "/log/" in path and self._disk.find(f"{path[:-21]}.trimmed") is not None
        aside = path.endswith(".tmp") or trimmed
        if not life.took_over and not aside and call in ("unlink", "rmdir", "rename"):
            raise Violation(f"driver {life.number} has not taken over yet: {call} {path}")

    def took_over(self, life: Life, generation: int, leader: Life | None) -> None:
        """A generation is in the log: was it its turn? `leader`: who led before it."""
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
        same = last.at
        for look in reversed(looks):
            if look.shows() != last.shows():
                break
            same = look.at
        length_s = last.lease["length_s"] if last.lease else life.lease_s
        if last.at - same < length_s - 1e-6:
            raise Violation(
                f"{who} took over after {last.at - same:.1f} s of silence; a lease lasts {length_s}"
            )
        if isinstance(leader, ConductedLife) and leader.leads and not leader.asleep:
            disturbed = max(leader.unwell_at, leader.began_to_lead)
            if disturbed < same and not any(look.spoilt for look in looks if look.at >= same):
                raise Violation(
                    f"{who} took over from driver {leader.number}, which nothing has disturbed "
                    f"for {self._uptime_s() - disturbed:.1f} s"
                )

    def ended(self, life: Life) -> None:
        """A driver has come to its end."""
        if not isinstance(life, ConductedLife) or life.reason != "not_needed":
            return
        last = self._looks[life.number][-1]
        if last.lease is None or last.lease["state"] != "done":
            raise Violation(f"driver {life.number} ends though nobody told it that all is done")

    def _note(self, life: Life, data: bytes, *, spoilt: bool = False) -> None:
        if not isinstance(life, ConductedLife) or not life.standby or life.leads:
            return
        lease: dict[str, Any] | None = None
        try:
            lease = json.loads(data.split(b"\n", 1)[1])
        except (ValueError, IndexError):
            pass
        generation = self._log.generation
        if lease is not None and lease["generation"] < generation:
            lease = None
        looks = self._looks.setdefault(life.number, [])
        looks.append(_Look(self._uptime_s(), generation, lease, spoilt))
