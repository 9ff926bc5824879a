"""Ways to choose which objects stay in memory, compared on the same trace.

A trace is what a pipeline asked of the object cache: objects are taken for an epoch, and given back
at its end. How many objects a policy may keep is given. `optimal` knows the rest of the trace, so
no policy can have more hits.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.state.objects import OBJECT_BYTES, ObjectCache


class CacheEvent(NamedTuple):
    """An object is taken (`given` is False), or given back."""

    key: bytes
    given: bool
    empty: bool = False
    """Of one that is given back: whether its key has no state any more."""


Trace = Sequence[CacheEvent]


class Policy(Protocol):
    """Which objects stay."""

    def take(self, key: bytes) -> bool:
        """Whether the object of a key is here; it is taken out."""
        ...

    def give(self, key: bytes, *, empty: bool) -> None:
        """An object comes back."""
        ...


class Lru:
    """Evicts what was not touched for longest."""

    def __init__(self, most: int, trace: Trace) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, None] = OrderedDict()

    def take(self, key: bytes) -> bool:
        found = key in self._kept
        self._kept.pop(key, None)
        return found

    def give(self, key: bytes, *, empty: bool) -> None:
        self._kept[key] = None
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


class _Weighed:
    """An object as the cache sees it."""

    def __init__(self, empty: bool) -> None:
        self._empty = empty

    def weigh(self) -> tuple[int, bool]:
        return OBJECT_BYTES, self._empty


class Stages:
    """The cache of Headrace: empty objects go first, then by use."""

    by_use = True

    def __init__(self, most: int, trace: Trace) -> None:
        self._cache = ObjectCache(most * OBJECT_BYTES)
        self._again: dict[bytes, bool] = {}

    def take(self, key: bytes) -> bool:
        found, self._again[key] = self._cache.take(key)
        return found is not None

    def give(self, key: bytes, *, empty: bool) -> None:
        again = self._again.pop(key, False)
        self._cache.give(key, _Weighed(empty and self.by_use), again=again)


class OnlyUse(Stages):
    """The same without a look at empty objects: used once, used again."""

    by_use = False


class Optimal:
    """Evicts what is needed last, as only one who knows the future can."""

    def __init__(self, most: int, trace: Trace) -> None:
        self._most = most
        self._uses: dict[bytes, deque[int]] = {}
        for at, event in enumerate(trace):
            if not event.given:
                self._uses.setdefault(event.key, deque()).append(at)
        self._kept: dict[bytes, int] = {}
        self._latest: list[tuple[int, bytes]] = []

    def take(self, key: bytes) -> bool:
        self._uses[key].popleft()
        return self._kept.pop(key, None) is not None

    def give(self, key: bytes, *, empty: bool) -> None:
        uses = self._uses.get(key)
        if not uses:
            return  # it is never needed again
        self._kept[key] = uses[0]
        heapq.heappush(self._latest, (-uses[0], key))
        while len(self._kept) > self._most:
            at, old = heapq.heappop(self._latest)
            if self._kept.get(old) == -at:
                del self._kept[old]


POLICIES: dict[str, Callable[[int, Trace], Policy]] = {
    "headrace": Stages,
    "without-empty": OnlyUse,
    "lru": Lru,
    "optimal": Optimal,
}


def hit_rate(policy: str, trace: Trace, most: int) -> float:
    """The share of takes that found their object, if `most` objects may be kept."""
    cache = POLICIES[policy](most, trace)
    hits = takes = 0
    for event in trace:
        if event.given:
            cache.give(event.key, empty=event.empty)
        else:
            takes += 1
            hits += cache.take(event.key)
    return hits / max(takes, 1)
