"""What a seed decides: the kinds of faults of a schedule, when each strikes, and the trace.

A schedule gets only a few kinds of faults, but these strike often: this finds rare combinations
that an even mixture of all kinds would hardly ever contain. Faults have a budget; when it is spent,
the run must end by itself.

Every kind has a random generator of its own (its dice), seeded by the seed and its name. It decides
whether the schedule has this kind and when it strikes. All other choices come from `random`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

from headrace.testing.simulator.faults.kinds import (
    COMPACTION_ASKED,
    DISK,
    EXECUTORS_LOST,
    EXECUTORS_SHARE,
    KINDS,
    LEASE_FAILS,
    OBJECTS,
    REQUESTER,
    RIVAL_DRIVER,
    STANDBY_DRIVER,
    STATE_STORE,
    WRITTEN_STATE_LOST,
    FaultKind,
)

_Item = TypeVar("_Item")


class Chance:
    """Dice, budget and trace of one schedule."""

    def __init__(
        self,
        seed: int,
        *,
        faults: bool = True,
        outer: Sequence[str] = (),
        face: str = DISK,
        stored: bool = False,
    ) -> None:
        """`outer`: names of kinds (with `around=True`) that this schedule always has. `stored`:
        whether there is a state store beside the checkpoint."""
        self.seed, self.face, self.stored = seed, face, stored
        self.random = Random(seed)
        self._dice = {kind: Random(f"{seed} {kind.name}") for kind in KINDS}
        self.kinds: frozenset[FaultKind] = frozenset()
        self.budget = 0
        if faults:
            self._pick_kinds(frozenset(outer))
            if stored:
                self._pick_kinds_of_state_store()
        self.struck = 0
        self.disturbances = 0
        """Faults and their consequences, such as the second refused call of an outage."""
        self.counts: Counter[str] = Counter()
        """How often each kind has struck, by its name."""
        self.trace: list[str] = []

    def _pick_kinds(self, wanted: frozenset[str]) -> None:
        """One schedule in three has leases, outages or readers, often with few other kinds."""
        draws = {kind: dice.random() for kind, dice in self._dice.items()}
        self.budget = self.random.randint(2, 12)
        share = self.random.choice((0.08, 0.13, 0.13, 0.2, 0.2, 0.3, 0.4))
        faces = (None, self.face)
        known = [kind for kind in KINDS if not kind.apart]
        inner = _picked(draws, (k for k in known if not k.around and k.face in faces), share)
        if self.face == OBJECTS and Random(f"{self.seed} requests").random() < 0.7:
            own = _picked(draws, (k for k in known if k.face == OBJECTS), 0.0)
            inner = [*own, *(kind for kind in inner if kind not in own)]
        meets = Random(f"{self.seed} around")
        lost = Random(f"{self.seed} {EXECUTORS_LOST.name}").random() < EXECUTORS_SHARE
        if self.face == OBJECTS and lost and not wanted:
            inner.append(EXECUTORS_LOST)
            self.budget += 5
        if meets.random() >= 0.33 and not wanted:
            self.kinds = frozenset(inner)
            return
        around = _picked(draws, (k for k in known if k.around), meets.choice((0.1, 0.3, 0.5)))
        if wanted:
            around = [kind for kind in KINDS if kind.name in wanted]
        if LEASE_FAILS in around:
            around.append(STANDBY_DRIVER)  # only a standby reads the lease
        self.kinds = frozenset((*around, *inner[: meets.choice((0, 1, 1, 2))]))
        self.budget += 8 if REQUESTER in self.kinds else 3

    def _pick_kinds_of_state_store(self) -> None:
        """Most schedules with a state store have some of its kinds, and drivers that overlap."""
        dice = Random(f"{self.seed} {STATE_STORE}")
        own = [kind for kind in KINDS if kind.face == STATE_STORE and dice.random() < 0.6]
        if dice.random() < 0.7:
            own.append(RIVAL_DRIVER)
        refused = (WRITTEN_STATE_LOST, EXECUTORS_LOST)
        inner = [k for k in self.kinds if not k.around and k not in refused]
        self.kinds = frozenset((*inner, *own))
        self.budget += 10

    def _has(self, kind: FaultKind) -> bool:
        return kind.face in (None, self.face) or (self.stored and kind.face == STATE_STORE)

    @property
    def is_conducted(self) -> bool:
        """Whether drivers run as `headrace run` starts them: a loop, with a lease and retries."""
        return any(kind.around for kind in self.kinds)

    @property
    def only_the_outside(self) -> bool:
        """Whether there are only outages, standbys and readers, and no other faults."""
        return bool(self.kinds) and all(kind.around for kind in self.kinds)

    @property
    def is_asked(self) -> bool:
        """Whether requests to the pipeline belong to this schedule."""
        return REQUESTER in self.kinds or COMPACTION_ASKED in self.kinds

    def strikes(self, kind: FaultKind, place: str) -> bool:
        """Whether a fault of this kind happens now, at one of its places."""
        likely = kind.likely[place]
        if not self.awaits(kind) or self._dice[kind].random() >= likely:
            return False
        self.struck += 1
        self.disturbances += 1
        self.counts[kind.name] += 1
        return True

    def awaits(self, kind: FaultKind) -> bool:
        """Whether faults of this kind may still strike."""
        return kind in self.kinds and self._has(kind) and self.struck < self.budget

    def choice(self, items: Sequence[_Item]) -> _Item:
        """A random item."""
        return items[int(self.random.random() * len(items))]

    def token(self, size: int = 8) -> str:
        """A name that no other process has, as `secrets.token_hex`."""
        return self.random.getrandbits(8 * size).to_bytes(size, "big").hex()

    def note(self, what: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(what)


def _picked(
    draws: dict[FaultKind, float], kinds: Iterable[FaultKind], share: float
) -> list[FaultKind]:
    """The kinds whose draw is below `share`, at least one, lowest draw first."""
    ordered = sorted(kinds, key=lambda kind: draws[kind])
    return [kind for kind in ordered if draws[kind] < share] or ordered[:1]
