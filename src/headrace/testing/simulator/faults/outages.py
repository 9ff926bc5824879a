"""Outages of the checkpoint's store or of a sink, each of which ends after a while.

During an outage the store refuses every call; a disk may also vanish like an unmounted filesystem:
no driver may create anything in its place. Power and late writes are not simulated
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import Node, SimulatedDisk


class Outages:
    """Places with an outage, and until when."""

    log: LogChecker

    def __init__(
        self, chance: Chance, disk: SimulatedDisk, root: str, uptime_s: Callable[[], float]
    ) -> None:
        self._chance, self._disk, self._root, self._uptime_s = chance, disk, root, uptime_s
        self._until: dict[str, float] = {}
        """Prefix of paths -> when its outage ends."""
        self._vanished: tuple[Node, float] | None = None
        """The checkpoint's directory, and when it comes back."""
        self.since_s = 0.0
        """When the last outage began that did not overlap an earlier one."""

    @property
    def is_vanished(self) -> bool:
        """Whether the checkpoint has vanished: a driver that starts now would create a new one."""
        return self._vanished is not None

    def begin(self, *, may_vanish: bool) -> None:
        """May begin an outage; `may_vanish` is true where every driver has seen the checkpoint."""
        for kind, place in ((kinds.STORE_AWAY, self._root), (kinds.SINK_AWAY, "/out")):
            if place in self._until or not self._chance.strikes(kind, "turn"):
                continue
            until = self._uptime_s() + self._chance.random.choice((1.0, 10.0, 60.0))
            if not self._until and self._vanished is None:
                self.since_s = self._uptime_s()
            if place == self._root and may_vanish and self._chance.random.random() < 0.5:
                self._vanish(until)
            else:
                self._chance.note(f"{place} has an outage: every call is refused")
                self._until[place] = until

    def refuses(self, path: str) -> bool:
        """Whether a call on this path fails."""
        return any(path.startswith(place) for place in self._until)

    def end(self, *, all_of_them: bool = False) -> None:
        """Ends the outages that have lasted long enough."""
        now = self._uptime_s()
        for place, until in list(self._until.items()):
            if until <= now or all_of_them:
                del self._until[place]
                self._chance.note(f"{place} is back")
        if self._vanished is not None and (self._vanished[1] <= now or all_of_them):
            self._come_back(self._vanished[0])

    def _vanish(self, until: float) -> None:
        found = self._disk.find(self._root)
        if found is None or self._vanished is not None:
            return
        self.log.catch_up()
        self.log.away = True
        self._chance.note(f"{self._root} has vanished, as if it were unmounted")
        del self._disk.root.names[self._root.strip("/")]
        self._vanished = (found, until)

    def _come_back(self, node: Node) -> None:
        name = self._root.strip("/")
        if (made := self._disk.root.names.get(name)) is not None:
            inside = sorted(getattr(made, "names", ()))
            raise Violation(f"{self._root} was created again while it had vanished, with {inside}")
        self._disk.root.names[name] = node
        self._vanished = None
        self.log.away = False
        self._chance.note(f"{self._root} is back")
