"""The cache of decoded key objects: which of them a worker keeps between two epochs.

What was just written to a window is the least likely to be read soon, so plain LRU evicts the wrong
objects. Here objects are kept in three stages:

1. *empty*: keys without state, such as a window that has closed or a session that has ended. They
   are evicted first.
2. *once*: used once since they were loaded.
3. *again*: used again while they were here, or soon after they were evicted.

How much of the memory the last two stages get follows the use, as in ARC (Megiddo and Modha, 2003):
the keys of evicted objects are remembered for a while, and when one of them is asked for, the stage
that it was evicted from gets more. So a scan over a million cold keys evicts none of the objects
that are used again, and where only recency counts, recency decides. Within a stage the object that
was not used for longest goes first.

An object is weighed by the bytes of its state and a fixed number for its Python objects. The cache
never affects a result: what is not here is read from the segments.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

OBJECT_BYTES = 1_000
"""About how much memory an object of a key takes beside the bytes of its values."""

_RECALLED_MAX = 100_000


class ObjectUse:
    """How much the caches of a process have helped."""

    __slots__ = ("hits", "misses", "prefetched", "used")

    def __init__(self) -> None:
        self.hits = self.misses = 0
        """How often an object that was asked for was here, and how often not."""
        self.prefetched = self.used = 0
        """How many objects were loaded before a key needed them, and how many of those were used.
        """

    def counts(self) -> tuple[int, int, int, int]:
        """Hits, misses, prefetched objects, and how many of these were used."""
        return self.hits, self.misses, self.prefetched, self.used


class ObjectCache:
    """A bounded cache of decoded key objects."""

    def __init__(self, bytes_max: int = 1 << 62, use: ObjectUse | None = None) -> None:
        self.bytes_max = bytes_max
        self.use = ObjectUse() if use is None else use
        self._empty, self._once, self._again = _Stage(), _Stage(), _Stage()
        self._once_share = 0.2
        """How much of the memory the stage of objects that were used once may take."""
        self._recalled: set[bytes] = set()
        """Keys that were asked for soon after they were evicted, and are not given back yet."""
        self._unused: set[bytes] = set()
        """The keys of prefetched objects that were not used yet."""

    def __len__(self) -> int:
        return len(self._empty.objects) + len(self._once.objects) + len(self._again.objects)

    @property
    def weight(self) -> int:
        """About how many bytes of memory the objects take."""
        return self._empty.bytes + self._once.bytes + self._again.bytes

    def take(self, key: bytes) -> tuple[Any, bool]:
        """Removes and returns an object, or None, and whether it was touched before."""
        found = self._remove(key)
        if found is None:
            self.use.misses += 1
            self._remember(key)
            return None, False
        self.use.hits += 1
        if self._unused and key in self._unused:
            self._unused.discard(key)
            self.use.used += 1
            return found, False
        return found, True

    def give(self, key: bytes, state: Any, *, again: bool) -> None:
        """Puts an object into the cache. `again`: it was touched before, while it was here."""
        self.drop(key)
        if self._recalled and key in self._recalled:
            self._recalled.discard(key)
            again = True
        weight, empty = _weight(state)
        if 2 * weight > self.bytes_max:
            return  # it would push all others out
        stage = self._empty if empty else self._again if again else self._once
        stage.put(key, state, weight)
        self.shrink()

    def prefetch(self, key: bytes, state: Any) -> None:
        """Puts an object into the cache that no key has asked for yet."""
        self.give(key, state, again=False)
        self.use.prefetched += 1
        if key in self._once.objects or key in self._empty.objects:  # it may be too large
            self._unused.add(key)

    def shrink(self) -> None:
        """Evicts objects until the rest fits."""
        while self.weight > self.bytes_max:
            if self._empty.objects:
                stage = self._empty
            elif self._once.bytes > self._once_share * self.bytes_max or not self._again.objects:
                stage = self._once
            else:
                stage = self._again
            key = stage.evict()
            self._unused.discard(key)
            stage.forget(0 if stage is self._empty else len(self))

    def keys(self) -> list[bytes]:
        """The keys of all objects."""
        return [key for key, _ in self.items()]

    def items(self) -> list[tuple[bytes, Any]]:
        """All objects, by key."""
        stages = (self._empty, self._once, self._again)
        return [(key, state) for stage in stages for key, (state, _) in stage.objects.items()]

    def drop(self, key: bytes) -> None:
        """Removes an object that is out of date."""
        self._remove(key)
        self._unused.discard(key)

    def clear(self) -> None:
        """Removes all objects."""
        self._empty, self._once, self._again = _Stage(), _Stage(), _Stage()
        self._unused.clear()

    def _remember(self, key: bytes) -> None:
        """A key was asked for that is not here: its stage gets more if it was evicted lately."""
        once, again = self._once.evicted, self._again.evicted
        if key in once:
            step = max(1.0, len(again) / len(once))
            del once[key]
        elif key in again:
            step = -max(1.0, len(once) / len(again))
            del again[key]
        else:
            return
        share = self._once_share + step / max(len(self), 1)
        self._once_share = min(max(share, 0.0), 1.0)
        if len(self._recalled) > _RECALLED_MAX:
            self._recalled.clear()  # tries that came to nothing have not given them back
        self._recalled.add(key)

    def _remove(self, key: bytes) -> Any:
        for stage in (self._again, self._once, self._empty):
            found = stage.objects.pop(key, None)
            if found is not None:
                stage.bytes -= found[1]
                return found[0]
        return None


class _Stage:
    """Objects in the order of their last use, and the keys of those that were evicted lately."""

    __slots__ = ("bytes", "evicted", "objects")

    def __init__(self) -> None:
        self.objects: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self.evicted: OrderedDict[bytes, None] = OrderedDict()
        self.bytes = 0

    def put(self, key: bytes, state: Any, weight: int) -> None:
        self.objects[key] = (state, weight)
        self.bytes += weight
        self.evicted.pop(key, None)

    def evict(self) -> bytes:
        key, (_, weight) = self.objects.popitem(last=False)
        self.bytes -= weight
        self.evicted[key] = None
        return key

    def forget(self, most: int) -> None:
        """Forgets evicted keys beyond a number, the oldest first."""
        while len(self.evicted) > most:
            self.evicted.popitem(last=False)


def _weight(state: Any) -> tuple[int, bool]:
    """About how much memory an object takes, and whether its key has no state."""
    weigh = getattr(state, "weigh", None)
    return (OBJECT_BYTES, False) if weigh is None else weigh()
