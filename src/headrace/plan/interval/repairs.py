"""Which units of work run again, in which epochs, to make lost deltas again (M5). Pure.

A lost delta is made again by its own unit, with the logged plan, over the state that its slot had
before. What the unit reads in that epoch comes from the units that feed it: they run too, all of
them, since any may have sent it records. Each of these needs its own state of that time, and where
a delta of that is lost as well, the same holds there, in an earlier epoch.

It must not know files, sources or Spark: what can be reached is asked of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

Place = tuple[int, str]
"""(epoch, label) of a unit of work."""


class NotMadeAgain(Exception):
    """A segment that cannot be reached was not made since the last checkpoint."""

    def __init__(self, segment: str) -> None:
        super().__init__(segment)
        self.segment = segment


def repairs_of(
    missing: Collection[str],
    made_by: Mapping[str, Place],
    *,
    feeds: Callable[[int, str], Iterable[str]],
    base: Callable[[int, str], Iterable[str]],
    is_reachable: Callable[[str], bool],
) -> list[tuple[int, tuple[str, ...]]]:
    """(epoch, labels) to run again, the oldest epoch first.

    - `missing`: segments that a task could not reach;
    - `made_by`: segment -> the unit that made it, for all segments since the last checkpoint that
      were only written;
    - `feeds`: the labels whose output a unit consumes in an epoch;
    - `base`: the segments that are the state of a unit before an epoch.

    NotMadeAgain if a segment is missing that no unit since the last checkpoint has made.
    """
    wanted: dict[int, set[str]] = {}

    def want(segment: str) -> None:
        if segment not in made_by:
            raise NotMadeAgain(segment)
        epoch, label = made_by[segment]
        wanted.setdefault(epoch, set()).add(label)

    for segment in sorted(missing):
        want(segment)
    done: dict[int, tuple[str, ...]] = {}
    while wanted:
        epoch = max(wanted)  # a base is of earlier epochs, so nothing later is added from here on
        labels = _with_feeders(epoch, wanted.pop(epoch), feeds)
        done[epoch] = tuple(sorted(labels))
        for label in done[epoch]:
            for segment in base(epoch, label):
                if not is_reachable(segment):
                    want(segment)
    return sorted(done.items())


def _with_feeders(
    epoch: int, labels: Iterable[str], feeds: Callable[[int, str], Iterable[str]]
) -> set[str]:
    """These units, all that feed them, all that feed those, and so on."""
    found: set[str] = set()
    todo = list(labels)
    while todo:
        label = todo.pop()
        if label not in found:
            found.add(label)
            todo += feeds(epoch, label)
    return found
