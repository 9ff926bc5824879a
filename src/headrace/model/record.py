"""Records and timers, as hooks see them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")


class Record(msgspec.Struct, Generic[V], gc=False):
    """One record of a stream, in the context of the key that its consumer gave it."""

    value: V
    timestamp: int
    key: Any
    stream: str
    late: bool = False


class Timer(msgspec.Struct, gc=False, frozen=True):
    """A timer that fires. `clock` is "event" or "wall"."""

    tag: Any
    timestamp: int
    clock: str
