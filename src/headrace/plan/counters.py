"""What tasks count, and how counts are added up."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct, gc=False):
    """The counters of a task."""

    records: int = 0
    hooks: int = 0
    timers: int = 0
    late: int = 0
    dead: int = 0
    behind: int = 0
    """Records produced behind the output watermark."""
    unfired: int = 0
    """Timers that timers set under the final watermark, and that did not fire."""
    skipped: int = 0
    """About how many records of sources were never read, after crashes (at-most-once)."""
    metrics: dict[str, int] = {}
    dead_of: dict[str, int] = {}
    """Dead letters by the computation or stream whose policy produced them."""
    records_of: dict[str, int] = {}
    """Records that a source read into a stream, or that reached a keyed computation."""
    shed_of: dict[str, int] = {}
    """Records that overloaded slots have dropped, by the stream they came from."""
    late_of: dict[str, int] = {}
    """Late records by the computation that they were late for."""

    @property
    def shed(self) -> int:
        """Records that overloaded slots have dropped, of all streams."""
        return sum(self.shed_of.values())

    def add(self, more: Counters) -> None:
        """Adds the counts of `more`."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        for name in _BY_NAME:
            setattr(self, name, summed(getattr(self, name), getattr(more, name)))

    def copy(self) -> Counters:
        """A copy of the present counts."""
        return msgspec.structs.replace(self)

    def since(self, before: Counters) -> Counters:
        """What was counted after `before`; names without new counts are left out."""
        found = Counters()
        for name in _NUMBERS:
            setattr(found, name, getattr(self, name) - getattr(before, name))
        for name in _BY_NAME:
            known = getattr(before, name)
            less = {key: n - known.get(key, 0) for key, n in getattr(self, name).items()}
            setattr(found, name, {key: n for key, n in less.items() if n})
        return found


_NUMBERS = ("records", "hooks", "timers", "late", "dead", "behind", "unfired")
_BY_NAME = ("metrics", "dead_of", "records_of", "shed_of", "late_of")


def summed(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The sum of two sets of counts, by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in [*one, *other]}
