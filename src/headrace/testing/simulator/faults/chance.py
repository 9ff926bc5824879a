"""What a seed decides: the kinds of faults of a schedule, when each strikes, and the trace.

A schedule gets a few kinds of faults only, and often: rare combinations are met
that way which an even mixture of everything would hardly ever bring together. It
has a budget; when that is spent, the run must come to its end by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import TypeVar

_INNER = (
    "driver dies",
    "driver pauses",
    "rival driver",
    "task dies",
    "task runs twice",
    "task is a zombie",
    "output lost",
    "mixed attempts",
    "job aborted",
    "worker lost",
    "disk fails",
    "power fails",
    "sink fails",
    "ring changes",
    "clock jumps",
    "code changes",
)
_OUTER = (
    "standby driver",
    "lease fails",
    "store away",
    "sink away",
    "reader from outside",
)
"""What only a run with a lease and patience meets, as `headrace run` makes one."""
KINDS = (*_INNER, *_OUTER)

_Item = TypeVar("_Item")


class Chance:
    """Dice, budget and diary of one schedule."""

    def __init__(self, seed: int, *, faults: bool = True, outer: Sequence[str] = ()) -> None:
        """`outer`: kinds that this schedule has in any case, of those around a run."""
        self.seed = seed
        self.random = Random(seed)
        count = self.random.choice((1, 2, 2, 3, 3, 4, 6))
        self.kinds = frozenset(self.random.sample(_INNER, count)) if faults else frozenset()
        self.budget = self.random.randint(2, 12) if faults else 0
        if faults:
            self._meet_the_outside(Random(f"{seed} outside"), outer)
        self.struck = 0
        self.disturbances = 0
        """Faults, and what follows from them by itself: the second refusal of an outage, say."""
        self.counts: Counter[str] = Counter()
        """How often each kind has struck."""
        self.trace: list[str] = []

    def _meet_the_outside(self, dice: Random, wanted: Sequence[str]) -> None:
        """One schedule in three has leases, outages or readers, often with little else.

        It has dice of its own, so that the others are what they were.
        """
        if dice.random() < 0.33 or wanted:
            outer = [*wanted] or dice.sample(_OUTER, dice.choice((1, 1, 2, 3)))
            inner = sorted(self.kinds)[: dice.choice((0, 1, 1, 2))]
            if "lease fails" in outer:  # nobody else reads it
                outer.append("standby driver")
            self.kinds = frozenset((*outer, *inner))
            self.budget += 3

    @property
    def is_conducted(self) -> bool:
        """Whether drivers run as the command starts them: in a loop, with a lease and patience."""
        return not self.kinds.isdisjoint(_OUTER)

    @property
    def only_the_outside(self) -> bool:
        """Whether nothing goes wrong but that the outside is away, or looks on."""
        return bool(self.kinds) and self.kinds <= frozenset(_OUTER)

    def strikes(self, kind: str, probability: float) -> bool:
        """Whether a fault of this kind happens now."""
        if kind not in self.kinds or self.struck >= self.budget:
            return False
        if self.random.random() >= probability:
            return False
        self.struck += 1
        self.disturbances += 1
        self.counts[kind] += 1
        return True

    def awaits(self, kind: str) -> bool:
        """Whether faults of this kind may still come."""
        return kind in self.kinds and self.struck < self.budget

    def choice(self, items: Sequence[_Item]) -> _Item:
        """One of these."""
        return items[int(self.random.random() * len(items))]

    def token(self, size: int = 8) -> str:
        """A name that nobody else has, as `secrets.token_hex`."""
        return self.random.getrandbits(8 * size).to_bytes(size, "big").hex()

    def note(self, what: str) -> None:
        """A line of the trace."""
        self.trace.append(what)
