"""Placement of tasks on a cluster: which anchors to use, and which executors are replicas. Pure.

A placement says for each task on which executor an anchor frame is cached. Spark chooses it; we
build several anchors, look where Spark has placed them, and use the best ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Placement = tuple[str, ...]
"""The executor of each task."""


def excess(placement: Placement, executors: int) -> int:
    """How many tasks are on executors that have more than their share."""
    if not placement:
        return 0
    share = -(-len(placement) // max(1, executors))
    return sum(max(0, held - share) for held in Counter(placement).values())


def best(candidates: Sequence[Placement], executors: int, now: Placement = ()) -> int:
    """The best candidate for an anchor: the most even one; of those, the one that moves least."""

    def rank(at: int) -> tuple[int, int]:
        moved = sum(one != other for one, other in zip(candidates[at], now, strict=False))
        return excess(candidates[at], executors), moved

    return min(range(len(candidates)), key=rank)


def replicas_of(home: Placement, others: Sequence[Placement], wanted: int) -> list[tuple[str, ...]]:
    """Per task, the executors that take over, in the order in which Spark prefers them.

    When the home of a task dies, its anchor dies with it. Spark then uses the next anchor of that
    task that is still cached, which is never on the same executor.
    """
    found = []
    for task, first in enumerate(home):
        names = dict.fromkeys(other[task] for other in others)
        names.pop(first, None)
        found.append(tuple(names)[:wanted])
    return found


def lacking(home: Placement, others: Sequence[Placement], wanted: int) -> int:
    """How many replicas are still missing, over all tasks."""
    return sum(wanted - len(names) for names in replicas_of(home, others, wanted))


def guards(home: Placement, replicas: Sequence[tuple[str, ...]]) -> dict[int, list[int]]:
    """Which replicas each task keeps: those of all slots of other tasks, for its executor.

    The replicas of an executor are divided among the tasks that run there. An executor without a
    task cannot keep any, so it cannot be a replica.
    """
    at: dict[str, list[int]] = {}
    for task, executor in enumerate(home):
        at.setdefault(executor, []).append(task)
    found: dict[int, list[int]] = {}
    dealt: Counter[str] = Counter()
    for task, names in enumerate(replicas):
        for name in names:
            if name in at:
                keeper = at[name][dealt[name] % len(at[name])]
                dealt[name] += 1
                found.setdefault(keeper, []).append(task)
    return found


def moved(before: Placement, seen: Mapping[int, str]) -> list[int]:
    """The tasks that did not run where their anchor was."""
    return [task for task, name in seen.items() if task < len(before) and before[task] != name]
