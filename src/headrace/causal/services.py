"""Clock, dice and unique ids that a replay repeats without any log (protocol E1).

`now()` is the plan's wall time plus a counter; `random` and `uuid()` are seeded
by the plan, the computation, the key (or, without one, label and position), the
hook's ordinal and a counter. Nobody else's dice shift when one record is skipped.

Dice are a hash of a counter, not the Mersenne Twister of `random`: that one takes
longer to seed than most hooks take to run. All else of `random.Random` stands on
`random()` and `getrandbits()`, and is inherited.
"""

from __future__ import annotations

import random
import uuid
from typing import Any, NoReturn

import xxhash

_digest64 = xxhash.xxh3_64_intdigest
_digest128 = xxhash.xxh3_128_intdigest
_new, _set = object.__new__, object.__setattr__
_UNKNOWN = uuid.SafeUUID.unknown

_OF_UUID = ~(0xC000 << 48) & ~(0xF000 << 64)
_VERSION_4 = (0x8000 << 48) | (4 << 76)
"""RFC 9562: the variant and the version, and the bits that are left."""


class Dice(random.Random):
    """Dice that are set anew in no time."""

    _seed = b""
    _drawn = 0

    def __init__(self) -> None:
        self.gauss_next = None  # and no seeding, which is what costs

    def start(self, seed: bytes) -> None:
        """Begins the sequence of a seed."""
        self._seed, self._drawn = seed, 0
        self.gauss_next = None

    def random(self) -> float:
        """The next number from 0 up to 1."""
        self._drawn = drawn = self._drawn + 1
        return (_digest64(self._seed + b"%d" % drawn) >> 11) * 1.1102230246251565e-16  # 2**-53

    def getrandbits(self, k: int, /) -> int:
        """The next `k` bits."""
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        found = length = 0
        while length < k:
            self._drawn = drawn = self._drawn + 1
            found |= _digest64(self._seed + b"%d" % drawn) << length
            length += 64
        return found >> (length - k)

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Dice of a hook are seeded by its place in the plan; a seed of one's own is refused."""
        raise TypeError(
            "ctx.random cannot be seeded: it must give the same numbers on every replay. "
            "For numbers of your own seed use random.Random(seed)"
        )

    def getstate(self) -> NoReturn:
        """There is none to keep: the next hook has dice of its own."""
        raise TypeError("ctx.random belongs to its hook, and has no state to keep")

    def setstate(self, state: Any) -> NoReturn:
        """Nor any to go back to."""
        raise TypeError("ctx.random belongs to its hook, and has no state to set")


NO_HOOK = -1


class HookServices:
    """Services of one computation in one task; `begin` starts a hook."""

    __slots__ = ("_before", "_calls", "_context", "_dice", "_seed", "_started", "_wall", "hook")

    def __init__(self, wall: int, seed: int, computation: str) -> None:
        self._wall = wall
        self._seed = f"{seed}\n{computation}\n".encode()
        self._context = b""
        self._before = self._seed + b"\n"
        """How all seeds of a key begin."""
        self.hook = NO_HOOK
        """The ordinal of the hook that has begun."""
        self._calls = 0
        self._dice: Dice | None = None
        self._started = False

    def begin(self, context: bytes, hook: int) -> None:
        """A hook begins: `context` is the key's bytes, `hook` its ordinal for that key."""
        if context is not self._context:
            self._context = context
            self._before = b"%s%d:%s\n" % (self._seed, len(context), context)
        self.hook = hook
        self._calls = 0
        self._started = False

    def now(self) -> int:
        """Wall time of the epoch; each call in a hook is a microsecond later."""
        self._calls += 1
        return self._wall + self._calls - 1

    @property
    def random(self) -> random.Random:
        """Dice of this hook."""
        dice = self._dice
        if dice is None:
            dice = self._dice = Dice()
        if not self._started:
            self._started = True
            dice.start(b"%s%d\nrandom" % (self._before, self.hook))
        return dice

    def uuid(self) -> uuid.UUID:
        """A unique id of this hook."""
        self._calls += 1
        seed = b"%s%d\nuuid%d" % (self._before, self.hook, self._calls)
        number = _digest128(seed) & _OF_UUID | _VERSION_4
        # What UUID(int=number) does, without its checks, which take longer than all the rest.
        found = _new(uuid.UUID)
        _set(found, "int", number)
        _set(found, "is_safe", _UNKNOWN)
        return found
