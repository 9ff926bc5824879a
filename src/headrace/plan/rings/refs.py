"""How a ring is named: by its version, an object that holds an earlier one, and the steps since.

A ring of half a million intervals has ten megabytes, and neither plans nor commits can carry it
(J1). So a ring as a whole is an object, named by its content, or the even ring of `n` slots, which
needs none. A `RingRef` names that base and the steps after it. Its digest names the ring itself,
and processes cache decoded rings by it.
"""

from __future__ import annotations

import msgspec
import numpy as np
import xxhash

from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move

EVEN = "even/"
"""Prefix of the base of a ring that has no object: `even/4` is the even ring of four slots."""

_FORMAT = 1


Reclassed = tuple[tuple[int, int, int], ...]
"""(slot it goes to, class before, class after) of all that moved."""


class RingStep(msgspec.Struct, frozen=True, array_like=True):
    """One change of a ring: net moves, and the classes that they made."""

    moves: tuple[Move, ...]
    """In order of hashes; no hash is moved twice."""
    classes: Reclassed

    def apply(self, ring: Ring) -> Ring:
        """The ring after this step."""
        whole, goes = ring.cut(self.moves)
        moved = np.flatnonzero(goes != whole.owners)
        classes = whole.classes.copy()
        # Few pairs of a slot and a class move, however many intervals do.
        pairs, at = np.unique(
            np.stack((goes[moved], whole.classes[moved])), axis=1, return_inverse=True
        )
        new = {(to, old): made for to, old, made in self.classes}
        made = np.array([new[to, old] for to, old in pairs.T.tolist()], np.int64)
        classes[moved] = made[at.reshape(-1)] if len(moved) else 0
        return whole.with_classes(goes, classes)


class RingRef(msgspec.Struct, frozen=True):
    """A ring by name."""

    version: int
    base: str
    """`even/<n>`, or the name of a ring object."""
    steps: tuple[RingStep, ...]
    digest: str
    """Names the ring by its content: its base, or H(digest before, step)."""
    next_class: int
    """The smallest number that no class of this computation has had."""

    @staticmethod
    def even(slots: int) -> RingRef:
        """The first ring of a computation."""
        base = f"{EVEN}{slots}"
        return RingRef(1, base, (), base, slots)

    @property
    def moves(self) -> int:
        """How many moves there are since the base."""
        return sum(len(step.moves) for step in self.steps)

    def then(self, step: RingStep, base: str | None = None) -> RingRef:
        """The ring after one more change; `base`: the object that holds it as a whole."""
        following = max((made + 1 for _, _, made in step.classes), default=self.next_class)
        if base is not None:
            return RingRef(self.version + 1, base, (), base, following)
        digest = step_digest(self.digest, step)
        return RingRef(self.version + 1, self.base, (*self.steps, step), digest, following)


def step_digest(before: str, step: RingStep) -> str:
    """The digest of a ring after one more step."""
    return xxhash.xxh3_128_hexdigest(before.encode() + b"\n" + msgspec.msgpack.encode(step))


def even_slots(base: str) -> int | None:
    """The number of slots of an even ring; None if the base is an object."""
    return int(base.removeprefix(EVEN)) if base.startswith(EVEN) else None


def encode_ring(ring: Ring) -> bytes:
    """The object of a ring."""
    columns = [ring.lows.astype("<u8"), ring.owners.astype("<i4"), ring.classes.astype("<i8")]
    return msgspec.msgpack.encode((_FORMAT, *(column.tobytes() for column in columns)))


def decode_ring(data: bytes) -> Ring:
    """The ring of an object; ValueError if it is of another format."""
    form, lows, owners, classes = msgspec.msgpack.decode(data, type=tuple[int, bytes, bytes, bytes])
    if form != _FORMAT:
        raise ValueError(f"ring format {form}; this Headrace reads up to {_FORMAT}: upgrade it")
    return Ring(
        np.frombuffer(lows, "<u8"), np.frombuffer(owners, "<i4"), np.frombuffer(classes, "<i8")
    )
