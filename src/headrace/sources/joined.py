"""`sources.then`: one source to its end, and then another, as one stream.

Splits of the first are called `first/...`, those of the second `then/...`. The second begins when
every split of the first is read to its end and committed; if the first is itself such a source,
when its second has ended too. That moment is written to the workspace
before any split of the second is listed, so a restart finds the same splits.

Both are prepared at the first start: `start="latest"`, or a time, is decided then, and what arrives
while the first is read is not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline
from headrace.model.source import Change, Range, Reading, Seen, Source, Timing, Workspace
from headrace.store.store import Store

_FIRST, _SECOND = "first", "then"
_BEGUN = "second-begun"
_TIMES = ("timestamp", "unit", "zone", "id", "id_slack_us")


def then(first: Source, second: Source) -> Source:
    """The records of `first`, which must end, and after them those of `second`.

    For a backfill: files up to a moment, and then a topic from that moment on, for example
    `then(sources.jsonl("history/*.jsonl", timestamp="at"), sources.kafka("orders", start=moment,
    timestamp="at", ...))`. There is no gap and nothing twice if `second` begins where `first` ends.
    Both must take the time of records from the same place; a topic may also take it from its
    messages. The watermark goes on from what the first has reached: records of the second that are
    older than that are late.
    """
    for name, given in (("first", first), ("second", second)):
        if not isinstance(given, Source):
            raise InvalidPipeline(f"sources.then: {name} is no source: {given!r:.80}")
    if not all(part.bounded for part in parts_of(first).values()):
        raise InvalidPipeline(
            f"sources.then: {first.describe()} never ends, so nothing can come after it"
        )
    return ThenSource(first, second)


def parts_of(source: Source, prefix: str = "") -> dict[str, Source]:
    """The sources that a source consists of, by how the names of their splits begin."""
    if not isinstance(source, ThenSource):
        return {prefix: source}
    found: dict[str, Source] = {}
    for name, side in source.sides.items():
        found |= parts_of(side, _named(f"{prefix}{name}", ""))
    return found


class ThenSource(Source):
    """Two sources, one after the other."""

    def __init__(self, first: Source, second: Source) -> None:
        self.sides = {_FIRST: first, _SECOND: second}
        self.timing = _timing(first, second)
        self.rereads = first.rereads and second.rereads
        self.schema = second.schema if second.schema is not None else first.schema
        self._forget()

    def _forget(self) -> None:
        self._store: Store | None = None
        self._begun = False
        self._listed: set[str] = set()
        self._finished: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {
            "_store": None,
            "_begun": False,
            "_listed": set(),
            "_finished": set(),
        }
        return {**self.__dict__, **fresh}

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        """Not known before the second has begun: until then there is always more to come."""
        return self._begun and self.sides[_SECOND].bounded

    def prepare(self, workspace: Workspace) -> None:
        self._forget()
        for name, side in self.sides.items():
            side.prepare(_part(workspace, name))
        self._store = workspace.store
        self._begun = _exists(workspace.store, _BEGUN)
        self._listed = set(self.sides[_FIRST].splits())

    def look(self, workspace: Workspace) -> None:
        for name, side in self.sides.items():
            side.look(_part(workspace, name))

    def close(self) -> None:
        for side in self.sides.values():
            side.close()

    def splits(self) -> Sequence[str]:
        first = self.sides[_FIRST]
        if not self._begun:
            listed = first.splits()
            self._listed |= set(listed)
            if not first.bounded or not self._listed <= self._finished:
                return [_named(_FIRST, split) for split in listed]
            if self._store is not None:
                self._store.put_if_absent(_BEGUN, b"")
            self._begun = True
        return [_named(_SECOND, split) for split in self.sides[_SECOND].splits()]

    def finished(self, splits: Iterable[str]) -> None:
        ended = list(splits)
        for name, side in self.sides.items():
            side.finished([split for part, split in map(_parted, ended) if part == name])
        self._finished.update(split for part, split in map(_parted, ended) if part == _FIRST)

    def caught_up(self) -> bool:
        # Between the two, the second has something to offer that is not listed yet.
        return self._begun and self.sides[_SECOND].caught_up()

    def first(self, split: str) -> int:
        side, own = self._of(split)
        return side.first(own)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        side, own = self._of(split)
        return side.plan(own, start, records)

    def reaches(self, split: str) -> int | None:
        side, own = self._of(split)
        return side.reaches(own)

    def read(self, split: str, range: Range) -> Reading:
        side, own = self._of(split)
        return side.read(own, range)

    def read_columns(self, split: str, range: Range, needed: frozenset[str]) -> Reading:
        side, own = self._of(split)
        return side.read_columns(own, range, needed)

    def low_watermark(self, split: str, position: int) -> int | None:
        side, own = self._of(split)
        return side.low_watermark(own, position)

    def columns(self) -> Sequence[str] | None:
        first, second = (side.columns() for side in self.sides.values())
        return first if first == second else None

    def settle(self, split: str, position: int) -> None:
        side, own = self._of(split)
        side.settle(own, position)

    def release(self, split: str, position: int) -> None:
        side, own = self._of(split)
        side.release(own, position)

    def parts(self) -> Iterable[tuple[str, str]]:
        for name, side in self.sides.items():
            for split, part in side.parts():
                yield _named(name, split), part

    def unread(self) -> Mapping[str, Seen]:
        name = _SECOND if self._begun else _FIRST
        return {_named(name, split): was for split, was in self.sides[name].unread().items()}

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        side, own = self._of(split)
        found = side.compare(own, name, seen, closely=closely)
        if isinstance(found, Change) and seen.whole and side.bounded:
            return msgspec.structs.replace(found, told_only=True)
        return found

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        side, own = self._of(split)
        return side.accept(own, name, seen)

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        side, own = self._of(split)
        return side.parallel(own, range, parts)

    def describe(self) -> str:
        first, second = (side.describe() for side in self.sides.values())
        return f"{first}, then {second}"

    def _of(self, split: str) -> tuple[Source, str]:
        name, own = _parted(split)
        return self.sides[name], own


def _timing(first: Source, second: Source) -> Timing:
    """One timing for both: time comes from the same place, unless a source stamps itself."""
    mine, other = first.timing, second.timing
    if mine.expected or other.expected:
        raise InvalidPipeline("sources.then: expected= cannot be used in it")
    chosen = other
    for stamping, given in ((second, mine), (first, other)):
        if getattr(stamping, "stamps_itself", False):
            chosen = given
            break
    else:
        differing = [n for n in _TIMES if getattr(mine, n) != getattr(other, n)]
        if differing:
            raise InvalidPipeline(
                f"sources.then: both sources need the same {differing[0].removesuffix('_us')}=, "
                "because they are one stream"
            )
    made = Timing(timestamp=chosen.timestamp, unit=chosen.unit, zone=chosen.zone, id=chosen.id)
    made.id_slack_us = chosen.id_slack_us
    made.lateness_us = max(mine.lateness_us, other.lateness_us)
    made.idle_us, made.max_skew_us = other.idle_us, other.max_skew_us
    return made


def _named(side: str, split: str) -> str:
    return f"{side}/{split}"


def _parted(split: str) -> tuple[str, str]:
    side, _, own = split.partition("/")
    return side, own


def _part(workspace: Workspace, name: str) -> Workspace:
    workspace.store.make_directory(name)
    return Workspace(workspace.store.below(name), workspace.spark)


def _exists(store: Store, name: str) -> bool:
    try:
        store.read(name)
    except FileNotFoundError:
        return False
    return True
