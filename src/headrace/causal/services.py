"""Clock, random numbers and unique ids that a replay repeats without a log (protocol E1).

`now()` is the plan's wall time plus a counter. `random` and `uuid()` are functions of the plan's
seed, the computation, the key (without a key: the label), the hook's ordinal and a counter. So the
random numbers of other hooks do not change when one record is skipped.

Everything that identifies a key's random numbers is hashed once, to 16 bytes. Each number is then
the hash of these bytes, seeded by the hook's ordinal and the counter. The Mersenne Twister of
`random` is not used, because seeding it takes longer than most hooks run. All other methods of
`random.Random` are inherited; they use `random()` and `getrandbits()`.
"""

from __future__ import annotations

import random
import uuid
from functools import cached_property
from typing import Any, NoReturn

import xxhash

_digest64 = xxhash.xxh3_64_intdigest
_digest128 = xxhash.xxh3_128_intdigest
_new, _set = object.__new__, object.__setattr__
_UNKNOWN = uuid.SafeUUID.unknown

_OF_UUID = ~(0xC000 << 48) & ~(0xF000 << 64)
_VERSION_4 = (0x8000 << 48) | (4 << 76)
"""RFC 9562: the bits of the variant and the version, and a mask of the other bits."""

_HOOK_BITS = 32
"""A draw's number is the hook's ordinal, followed by this many bits for the draw's ordinal."""
_IDS = 1 << 63
"""The first number for ids. Numbers below it are for random numbers."""

NO_HOOK = -1
_NONE = (NO_HOOK << _HOOK_BITS) - 1
"""The number before the first draw outside of any hook."""


class Drawing:
    """Clock, random numbers and ids of a context whose hooks have a key's bytes and an ordinal."""

    key_bytes: bytes
    """The bytes of the key or, without a key, of the label."""
    hook: int
    """The ordinal of the running hook for its key (without a key: in its label)."""

    def prepare_drawing(self, wall: int, seed: int, computation: str) -> None:
        """Must be called before the first hook."""
        self._before_wall = wall - 1
        self._plan_seed = f"{seed}\n{computation}\n".encode()
        self._key_seed = b""
        self._begun = NO_HOOK
        """The ordinal of the last hook that asked for the time or an id."""
        self._calls = 0

    def restart_draws(self) -> None:
        """Starts a pass over a key's hooks. There may be a second pass."""
        self._key_seed = b""
        self._begun = NO_HOOK
        if (dice := vars(self).get("random")) is not None:
            dice.begin()

    def key_seed(self) -> bytes:
        """The seed of all random numbers and ids of the key."""
        if not self._key_seed:
            key = self.key_bytes
            self._key_seed = xxhash.xxh3_128_digest(b"%s%d:%s" % (self._plan_seed, len(key), key))
        return self._key_seed

    def now(self) -> int:
        """Wall time of the epoch, plus one microsecond for each earlier call in the hook."""
        hook = self.hook
        calls = self._calls + 1 if self._begun == hook else 1
        self._begun, self._calls = hook, calls
        return self._before_wall + calls

    @cached_property
    def random(self) -> random.Random:
        """The random numbers of the running hook."""
        return Dice(self)

    def uuid(self) -> uuid.UUID:
        """A unique id of this hook."""
        hook = self.hook
        calls = self._calls + 1 if self._begun == hook else 1
        self._begun, self._calls = hook, calls
        seed = self._key_seed or self.key_seed()
        number = _digest128(seed, _IDS + (hook << _HOOK_BITS) + calls) & _OF_UUID | _VERSION_4
        # As UUID(int=number), without its checks, which take longer than everything else here.
        found = _new(uuid.UUID)
        _set(found, "int", number)
        _set(found, "is_safe", _UNKNOWN)
        return found


class Dice(random.Random):
    """A `random.Random` that starts again with every hook, without the cost of seeding."""

    def __new__(cls, drawing: Drawing) -> Dice:
        return super().__new__(cls)

    def __init__(self, drawing: Drawing) -> None:  # does not call super(), whose seeding is slow
        self._drawing = drawing
        self.begin()

    def begin(self) -> None:
        """Starts a pass over a key's hooks."""
        self._seed = b""
        self._drawn = _NONE
        self._gauss_of = NO_HOOK
        self.gauss_next = None

    def random(self) -> float:
        """The next number in [0, 1)."""
        drawn, hook = self._drawn + 1, self._drawing.hook
        if drawn >> _HOOK_BITS != hook:
            drawn = (hook << _HOOK_BITS) + 1
        self._drawn = drawn
        seed = self._seed
        if not seed:
            seed = self._seed = self._drawing.key_seed()
        return (_digest64(seed, drawn) >> 11) * 1.1102230246251565e-16  # 2**-53

    def getrandbits(self, k: int, /) -> int:
        """An integer of the next `k` random bits."""
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        hook, seed = self._drawing.hook, self._drawing.key_seed()
        found = length = 0
        while length < k:
            drawn = self._drawn + 1
            if drawn >> _HOOK_BITS != hook:
                drawn = (hook << _HOOK_BITS) + 1
            self._drawn = drawn
            found |= _digest64(seed, drawn) << length
            length += 64
        return found >> (length - k)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """A number from a normal distribution. Numbers are drawn in pairs, within one hook."""
        if self._gauss_of != self._drawing.hook:
            self._gauss_of = self._drawing.hook
            self.gauss_next = None
        return super().gauss(mu, sigma)

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Refuses a seed: the seed of a hook is its place in the plan."""
        raise TypeError(
            "ctx.random cannot be seeded: it must give the same numbers on every replay. "
            "For numbers of your own seed use random.Random(seed)"
        )

    def getstate(self) -> NoReturn:
        """Refused: there is no state, because every hook has its own random numbers."""
        raise TypeError("ctx.random belongs to its hook, and has no state to keep")

    def setstate(self, state: Any) -> NoReturn:
        """Refused, as for `getstate`."""
        raise TypeError("ctx.random belongs to its hook, and has no state to set")
