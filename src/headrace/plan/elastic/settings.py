"""What users may set about balance and scale, and what a decision needs to know of its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline
from headrace.model.values.time import Duration, duration

EVEN, RING, OFF = "even", "ring", "off"
POLICIES = (EVEN, RING, OFF)
REPORTS_MAX = 8
"""How many reports in a row a setting may ask for: the ledger keeps no more."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """When slots are added and removed: `scale=Scale(above=0.8)`.

    A computation is a bottleneck when the records of the pipeline need more than `above` of the
    time in `reports` reports in a row, and it has at least its share of that. One report covers
    `every` epochs. All settings have defaults.
    """

    above: float = 0.8
    """Slots are added if records need more than this part of the time, from 0.05 to 1."""
    below: float = 0.5
    """Slots are removed below this part of the time."""
    aim: float = 0.7
    """How much of the time records should need after a change; between `below` and `above`."""
    reports: int = 2
    """For how many reports in a row, from 1 to 8; for twice as many where it is not urgent."""
    every: int = 0
    """How many epochs one report covers; 0 for the default (2, and more with many slots)."""
    cooldown: Duration = "10s"
    """How long slots are not removed after any change."""
    slots_min: int = 1
    """No computation gets fewer slots."""
    drain: Duration = "1m"
    """How soon input that waits should be done, beside what arrives."""

    @property
    def drain_us(self) -> int:
        """The time for input that waits, in microseconds."""
        return duration(self.drain, what="drain")

    @property
    def cooldown_us(self) -> int:
        """The cooldown in microseconds."""
        return duration(self.cooldown, what="cooldown")

    def __post_init__(self) -> None:
        if not 0.05 <= self.above <= 1:
            raise InvalidPipeline(f"Scale(above=) is a part from 0.05 to 1, not {self.above!r}")
        if not 0 <= self.below < self.aim < self.above:
            raise InvalidPipeline(
                f"Scale() needs below < aim < above, not {self.below!r}, {self.aim!r} and "
                f"{self.above!r}: otherwise slots would be added and removed in turn"
            )
        if not 1 <= self.reports <= REPORTS_MAX:
            raise InvalidPipeline(
                f"Scale(reports=) is a number from 1 to {REPORTS_MAX}, not {self.reports!r}"
            )
        if not 0 <= self.every <= 1000:
            raise InvalidPipeline(f"Scale(every=) is a number from 0 to 1,000, not {self.every!r}")
        if not 1 <= self.slots_min <= 10_000:
            raise InvalidPipeline(
                f"Scale(slots_min=) is a number from 1 to 10,000, not {self.slots_min!r}"
            )
        if self.cooldown_us < 0:
            raise InvalidPipeline(f"Scale(cooldown=) is not negative, but {self.cooldown!r} is")
        if self.drain_us < 1:
            raise InvalidPipeline(f"Scale(drain=) is positive, but {self.drain!r} is not")


_KINDS: dict[str, Callable[[str], object]] = {
    "above": float, "below": float, "aim": float, "reports": int, "every": int, "cooldown": str,
    "slots_min": int, "drain": str,
}  # fmt: skip
"""What a setting is in Python, for settings that are given as text."""


def scale_of(given: Scale | str | None) -> Scale | None:
    """`scale=` as a struct: "on" is all defaults, "off" (or None) is no scaler.

    As text, as the command has it, settings have the form "above=0.8,cooldown=30s".
    """
    if given in ("off", None):
        return None
    if given == "on":
        return Scale()
    if isinstance(given, Scale):
        return given
    if not isinstance(given, str):
        raise InvalidPipeline(f'scale= is "on", "off" or Scale(...), not {given!r}')
    settings: dict[str, Any] = {}
    for part in given.split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in _KINDS:
            known = ", ".join(_KINDS)
            raise InvalidPipeline(
                f'scale= is "on", "off" or settings such as "above=0.8,reports=3", not {given!r}; '
                f"there are: {known}"
            )
        kind = _KINDS[name.strip()]
        try:
            settings[name.strip()] = kind(value.strip())
        except ValueError as error:
            raise InvalidPipeline(f"scale= {given!r}: {error}") from None
    return Scale(**settings)


class Elasticity(msgspec.Struct, frozen=True):
    """All that a decision about rings takes from its run; the rest is in the ledger."""

    policy: str = EVEN
    scale: Scale | None = None
    """None: no slot is added or removed."""
    slots_max: int = 1
    """How many slots the scaler may give a computation."""
    sets_tasks: bool = False
    """Whether the number of tasks follows the slots, as on a cluster that can grow."""
    tasks: int = 1
    """How many tasks a level has at present, if the ledger does not say."""
    uneven: float = 1.2
    """A slot gives load away when it has more than this times its fair share, twice in a row."""
    urgent: float = 1.3
    """With more than this times its share, by busy time and by records, one report is enough."""
    busy_min: float = 0.05
    """Below this part of the time no slot is worth moving keys for."""
    moves_max: int = 256
    """How many moves one decision may have."""
    intervals_per_slot: int = 8
    """With more intervals than this per slot, cold ones are merged with their neighbours."""
    epoch_us: int = 0
    """How long an epoch should take; 0 if its length is set by a number of records."""

    @property
    def is_on(self) -> bool:
        """Whether there is anything to decide at all."""
        return self.policy != OFF or self.scale is not None
