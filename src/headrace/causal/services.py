"""Clock, dice and unique ids that a replay repeats without any log (protocol E1).

`now()` is the plan's wall time plus a counter; `random` and `uuid()` are seeded
by the plan, the computation, the key (or, without one, label and position), the
hook's ordinal and a counter. Nobody else's dice shift when one record is skipped.
"""

from __future__ import annotations

import random
import uuid

import xxhash


class HookServices:
    """Services of one computation in one task; `begin` starts a hook."""

    __slots__ = ("_calls", "_context", "_dice", "_hook", "_seed", "_wall")

    def __init__(self, wall: int, seed: int, computation: str) -> None:
        self._wall = wall
        self._seed = f"{seed}\n{computation}\n".encode()
        self._context = b""
        self._hook = 0
        self._calls = 0
        self._dice: random.Random | None = None

    def begin(self, context: bytes, hook: int) -> None:
        """A hook begins: `context` is the key's bytes, `hook` its ordinal for that key."""
        self._context = context
        self._hook = hook
        self._calls = 0
        self._dice = None

    def now(self) -> int:
        """Wall time of the epoch; each call in a hook is a microsecond later."""
        self._calls += 1
        return self._wall + self._calls - 1

    @property
    def random(self) -> random.Random:
        """Dice of this hook."""
        if self._dice is None:
            self._dice = random.Random(self._digest(b"random"))
        return self._dice

    def uuid(self) -> uuid.UUID:
        """A unique id of this hook."""
        self._calls += 1
        return uuid.UUID(int=self._digest(b"uuid%d" % self._calls), version=4)

    def _digest(self, purpose: bytes) -> int:
        parts = (self._seed, self._context, b"\n%d\n" % self._hook, purpose)
        return xxhash.xxh3_128_intdigest(b"".join(parts))
