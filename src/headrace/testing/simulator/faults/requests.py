"""What becomes of requests to a simulated object store: each has an outcome, and an answer or none.

Requests without an answer may land later: between two turns of drivers, or before any request of
another process.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.objects import ObjectServer
from headrace.testing.simulator.machine.syscalls import Fault

THROTTLED_CALLS_MAX = 30
_LANDS = 0.03
"""The probability, before each request, that a late one lands."""

_PLACES = {"put": "put", "overwrite": "overwrite", "copy": "copy", "delete": "delete"}
_OUTCOMES = (
    (kinds.ANSWER_LOST, (Fault.REFUSED, Fault.UNREPORTED, Fault.UNREPORTED)),
    (kinds.REQUEST_LATE, (Fault.LATE,)),
    (kinds.REQUEST_TWICE, (Fault.TWICE,)),
    (kinds.REFUSED_BY_ITSELF, (Fault.REPEATED,)),
    (kinds.PUT_CONFLICTS, (Fault.CONFLICT,)),
)


class Requests:
    """The faults of one object store."""

    def __init__(self, chance: Chance, server: ObjectServer) -> None:
        self._chance, self.server = chance, server
        self.throttled = 0
        """How many more requests may be refused because there are too many."""
        self.landed: Callable[[str], None] = lambda what: None
        """Called when a late request has landed."""

    def fault(self, call: str) -> Fault | None:
        """What becomes of a request, other than an answer at once."""
        chance = self._chance
        if self.server.late and chance.random.random() < _LANDS:
            self.land()
        if self.throttled > 0:
            self.throttled -= 1
            if chance.random.random() < 0.7:
                chance.disturbances += 1
                return Fault.THROTTLED
        elif chance.strikes(kinds.THROTTLING, "request"):
            self.throttled = chance.random.randint(1, THROTTLED_CALLS_MAX)
            return Fault.THROTTLED
        place = _PLACES.get(call, "look")
        for kind, faults in _OUTCOMES:
            if place in kind.likely and chance.strikes(kind, place):
                return chance.choice(faults)
        return None

    def land(self) -> None:
        """One of the late requests lands."""
        late = self.server.late
        what, act = late.pop(int(self._chance.random.random() * len(late)))
        self._chance.note(f"late, but done: {what}")
        act()
        self.landed(what)

    def calm_down(self) -> None:
        """A driver has stopped: from now on only half as many requests are refused."""
        self.throttled //= 2
