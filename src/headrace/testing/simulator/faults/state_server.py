"""The state store of a simulation: a server that restarts, forgets, and is put back to old copies.

Each request is a place where a driver may die or sleep, and where the server may restart. What
must be one atomic step of the server is one step here; between two cells of one call anything may
happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from headrace.state.backend import AppliedCell, Hashes, OpenState, StoreMarks
from headrace.state.backends.memory import CellTable, MemoryBackend, MemoryServer
from headrace.state.segment import Cell
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance

Gate = Callable[[str], None]


class StateServer(MemoryServer):
    """The server, with what happens to it."""

    def __init__(self, chance: Chance) -> None:
        super().__init__()
        self._chance = chance
        self.copies: list[dict[str, CellTable]] = [{}]
        """All that was ever synced: somebody may put any of it back."""
        self.older = False
        """Whether an older copy was put back, and nothing newer since."""

    def sync(self) -> None:
        super().sync()
        self.copies.append(self.synced)

    def happens(self) -> None:
        """Something may happen to the server, between two requests."""
        chance = self._chance
        if chance.strikes(kinds.STATE_STORE_RESTARTS, "request"):
            chance.note("the state store restarts, without what was not synced")
            self.restart()
        if chance.strikes(kinds.STATE_STORE_PUT_BACK, "request"):
            at = int(chance.random.random() * len(self.copies))
            chance.note(f"copy {at} of {len(self.copies)} of the state store is put back")
            self.older = True
            self.restart(self.copies[at])

    def repaired(self) -> None:
        """A person puts the newest copy back, after a driver has refused an older one."""
        self._chance.note("the newest copy of the state store is put back")
        self.older = False
        self.restart(self.copies[self._newest()])

    def _newest(self) -> int:
        marks = [max((t.applied for t in copy.values()), default=0) for copy in self.copies]
        return max(range(len(marks)), key=marks.__getitem__)


class SimulatedBackend(MemoryBackend):
    """The state store as a process of the simulation sees it: each request passes the gate."""

    server: StateServer

    def __init__(self, server: StateServer, checkpoint: str, gate: Gate) -> None:
        super().__init__(server, checkpoint)
        self._gate = gate

    def marks(self) -> StoreMarks:
        self._gate("marks")
        return super().marks()

    def raise_applied(self, epoch: int, run: str) -> bool:
        self._gate("raise the mark")
        return super().raise_applied(epoch, run)

    def sync(self) -> None:
        self._gate("sync")
        super().sync()

    def purge(self, upto: int) -> None:
        self._gate("purge")
        super().purge(upto)

    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        for each in cells:
            self._gate("write")
            super().write(epoch, [each])

    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        found: list[Mapping[str, AppliedCell]] = []
        for i, key in enumerate(keys):
            self._gate("read")
            found += super().read_fields(computation, [key], hashes[i : i + 1])
        return found

    def read_entries(
        self, computation: str, name: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[bytes, AppliedCell]]:
        found: list[Mapping[bytes, AppliedCell]] = []
        for i, key in enumerate(keys):
            self._gate("read")
            found += super().read_entries(computation, name, [key], hashes[i : i + 1])
        return found

    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        self._gate("read")
        return super().read_entry(computation, name, key, entry)

    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        self._gate("read")
        return super().read_range(computation, name, key, low, high)

    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        self._gate("scan")
        return super().scan(computation)


class Gatekeeper(Protocol):
    """Decides at each request what happens to the process that sends it."""

    state_server: StateServer | None

    def state_request(self, what: str) -> None: ...


def state_store_of(
    chance: Chance, keeper: Gatekeeper
) -> tuple[StateServer | None, OpenState | None]:
    """The state store of a schedule, and how its processes open it; None where it has none."""
    if not chance.stored:
        return None, None
    chance.note("fields and map entries are kept in a state store")
    keeper.state_server = server = StateServer(chance)
    gate = keeper.state_request
    return server, lambda checkpoint: SimulatedBackend(server, checkpoint, gate)
