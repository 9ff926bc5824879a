"""The driver's side of injectors: what each source can offer next.

All I/O of sources on the driver happens here; decisions about it are made in `plan/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.engine.driver.finished_input import FinishedSplits
from headrace.errors import SourceError
from headrace.log import paths
from headrace.model.source import Change, Range, Seen, Source, Timing, Workspace
from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.changed_input import (
    FINISHED,
    UNREAD,
    Compared,
    compare_split,
    refused,
)
from headrace.plan.decisions.next_step import Offer, missing
from headrace.plan.epoch import Sealing, SplitState
from headrace.plan.ledger import Ledger
from headrace.store.store import Store

CHECKS = 128
"""About this many finished parts are checked, in turn, each time an unbounded source is asked."""


class _Planned(NamedTuple):
    """The splits of a source, and the next range of each."""

    splits: dict[str, int]
    news: dict[str, int]
    caught_up: bool
    each: int
    """How many records were asked of each split."""
    ranges: dict[str, Range]


class Injectors:
    """All injectors of a pipeline."""

    def __init__(
        self, topology: Topology, store: Store, spark: Any, *, fills: bool = False
    ) -> None:
        """`fills`: what a split has too little of, others may read more of."""
        self._fills = fills
        self._sources: dict[str, Source] = {
            name: injector.source for name, injector in topology.graph.injectors.items()
        }
        self._store = store
        self._spark = spark
        self._record = FinishedSplits(store)
        self._fresh: dict[str, set[str]] = {name: set() for name in self._sources}
        """Listed splits that are known not to be in the record of finished splits."""
        self._closed: dict[str, set[str]] = {name: set() for name in self._sources}
        """Listed or expected splits that are in the record of finished splits."""
        self._settled: dict[tuple[str, str], tuple[int, bool]] = {}
        self._released: dict[tuple[str, str], int] = {}
        self._first_seen: dict[tuple[str, str], int] = {}
        self._turn = 0
        self._times: dict[tuple[str, str, str], int] = {}
        """The modification time at which the bytes were last found unchanged."""

    def prepare(self) -> None:
        """Prepares the sources; called once before the first plan of a run."""
        for name, source in self._sources.items():
            directory = f"{paths.SOURCES}/{paths.safe(name)}"
            self._store.make_directory(directory)
            source.prepare(Workspace(self._store.below(directory), self._spark))

    def compare(self, ledger: Ledger, accept: Sequence[str]) -> Compared:
        """Compares all input read so far with what is there; SourceError for a refused change."""
        found = Compared()
        for stream, source in self._sources.items():
            known, parts = ledger.splits.get(stream, {}), set(source.parts())
            expected = ((split, "") for split in source.timing.expected)
            sealed = self._record.find(ledger, stream, [*parts, *expected])
            self._closed[stream] = {split for split, name in sealed if not name}
            seen: dict[str, dict[str, Seen]] = {}
            for (split, name), read in sealed.items():
                if read is not None and (split, name) in parts:
                    seen.setdefault(split, {})[name] = read
            for split, state in known.items():
                own = {name: s for name, s in state.seen.items() if (split, name) in parts}
                seen[split] = {**seen.get(split, {}), **own}
            begun = {*seen, *self._closed[stream]}
            unread = {s: {"": was} for s, was in source.unread().items() if s not in begun}
            seen |= unread
            for split in sorted(seen):
                state = known.get(split, UNREAD if split in unread else FINISHED)
                compare_split(stream, source, split, state, seen[split], accept, found)
            source.finished(self._closed[stream])
        found.notices += [
            f"--accept-changed {name}: nothing of that name has changed; is it still needed?"
            for name in accept
            if name not in found.accepted
        ]
        return found

    def seal(self, epoch: int, ledger: Ledger) -> dict[str, Sealing]:
        """Records finished splits that leave the ledger with the commit of this epoch."""
        return self._record.seal(epoch, ledger)

    def close(self) -> None:
        """Closes the sources at the end of a run."""
        for source in self._sources.values():
            source.close()

    def offers(self, ledger: Ledger, records: int, parts: int, wall: int) -> dict[str, Offer]:
        """What every injector could read next, about `records` records in total."""
        share = max(1, records // len(self._sources))
        planned = {
            name: self._plan(name, source, ledger, share, wall)
            for name, source in self._sources.items()
        }
        if self._fills:
            self._fill(planned, records)
        return {name: self._offer(name, found, ledger, parts) for name, found in planned.items()}

    def _fill(self, planned: Mapping[str, _Planned], records: int) -> None:
        """Lets splits that have more read what others leave of the epoch.

        Otherwise one busy split among many quiet ones would keep epochs small, for ever.
        """
        left = records - sum(
            found.records for one in planned.values() for found in one.ranges.values()
        )
        full = [
            (name, split)
            for name, one in planned.items()
            for split, found in one.ranges.items()
            if found.records >= one.each and not found.last
        ]
        if left < records // 2 or not full:
            return
        for name, split in full:
            one = planned[name]
            start = one.ranges[split].start
            found = self._sources[name].plan(split, start, one.each + left // len(full))
            if found is not None:
                one.ranges[split] = found

    def settle(
        self, ledger: Ledger, released: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Tells sources up to where they are committed, and up to where no retained epoch reads."""
        before, self._released = self._released, {}
        for name, positions in (released or {}).items():
            for split, position in positions.items():
                if name in self._sources:
                    self._released[name, split] = position
                    if before.get((name, split)) != position:
                        self._sources[name].release(split, position)
        told, self._settled = self._settled, {}
        for name, source in self._sources.items():
            ended = []
            for split, state in ledger.splits.get(name, {}).items():
                self._settled[name, split] = (state.position, state.finished)
                before_it = told.get((name, split))
                if before_it is None or before_it[0] != state.position:
                    source.settle(split, state.position)
                if state.finished and (before_it is None or not before_it[1]):
                    ended.append(split)
            source.finished(ended)
            # Splits in the record are neither listed nor in the ledger, but are not missing.
            self._closed[name].update(set(source.timing.expected).intersection(ended))

    def _plan(self, name: str, source: Source, ledger: Ledger, share: int, wall: int) -> _Planned:
        known = ledger.splits.get(name, {})
        splits: dict[str, int] = {}
        news: dict[str, int] = {}
        for split in self._listed(name, source, ledger):
            state = known.get(split)
            own = source.low_watermark(split, state.position if state else source.first(split))
            splits[split] = BEGINNING if own is None else own
            if state is None:
                news[split] = self._first_seen.setdefault((name, split), wall)
            else:
                news[split] = state.news
                self._first_seen.pop((name, split), None)
        for split, state in known.items():
            # An expected split may come back; it holds the watermark back until then.
            lost = split not in splits and split not in source.timing.expected
            if lost and not state.finished:
                raise SourceError(
                    f"stream {name!r}: {split!r} of {source.describe()} is gone, but is not yet "
                    "read to its end: put it back, or start a new checkpoint"
                )
        # Asked before the ranges: input that arrives in between is offered, or the answer is no.
        caught_up = source.caught_up()
        waiting = _too_far_ahead(source.timing, splits, known, news, wall)
        ranges: dict[str, Range] = {}
        each = max(1, share // max(1, len(splits) - len(waiting)))
        for split in splits:
            if split in waiting:
                continue
            state = known.get(split)
            if state is not None:
                self._check(name, source, split, state.seen)
            start = state.position if state is not None else source.first(split)
            found = source.plan(split, start, each)
            if found is not None:
                ranges[split] = found
        return _Planned(splits, news, caught_up, each, ranges)

    def _offer(self, name: str, planned: _Planned, ledger: Ledger, parts: int) -> Offer:
        source, known = self._sources[name], ledger.splits.get(name, {})
        splits = planned.splits
        ranges = {s: source.parallel(s, found, parts) for s, found in planned.ranges.items()}
        left: int | None = 0
        for split, found in planned.ranges.items():
            beyond = _beyond(found, source.reaches(split))
            left = None if left is None or beyond is None else left + beyond
        missed = missing(source.timing, splits, known, self._closed[name])
        ended = source.bounded and not splits and not missed
        return Offer(splits, ranges, ended, planned.news, planned.caught_up, missed, left)

    def _listed(self, stream: str, source: Source, ledger: Ledger) -> list[str]:
        """The splits that exist and are not finished; refuses splits whose file has changed."""
        known, closed = ledger.splits.get(stream, {}), self._closed[stream]
        splits = source.splits()
        unknown = [split for split in splits if split not in known and split not in closed]
        new = [(split, "") for split in unknown if split not in self._fresh[stream]]
        if new:
            # A split that was read to its end may have been moved away and have returned.
            sealed = self._record.find(ledger, stream, new)
            for (split, name), seen in sealed.items():
                closed.add(split)
                self._check(stream, source, split, {} if seen is None else {name: seen})
            source.finished([split for split, _ in sealed])
        self._fresh[stream] = {split for split in unknown if split not in closed}
        if not source.bounded:
            ended = [split for split, state in known.items() if state.finished]
            self._turn += CHECKS
            for split in (ended[self._turn % len(ended) :] + ended)[:CHECKS] if ended else ():
                self._check(stream, source, split, known[split].seen)
            for (split, name), seen in self._record.in_turn(ledger, stream, CHECKS).items():
                own = known[split].seen if split in known else {}
                if seen is not None and name not in own:
                    self._check(stream, source, split, {name: seen})
        return [
            split
            for split in splits
            if split not in closed and not (split in known and known[split].finished)
        ]

    def _check(self, stream: str, source: Source, split: str, read: Mapping[str, Seen]) -> None:
        """Refuses input that is not what was read, judged by its size and modification time.

        If a bounded source changed after it was read, the start has already reported that.
        """
        for name, seen in read.items():
            place = (stream, split, name)
            if place in self._times:
                seen = msgspec.structs.replace(seen, time_ns=self._times[place])
            now = source.compare(split, name, seen, closely=False)
            if isinstance(now, Change):
                if not now.told_only and not (seen.whole and source.bounded):
                    raise refused(stream, now, seen)
            elif now is not None and now.time_ns != seen.time_ns:
                self._times[place] = now.time_ns


def _too_far_ahead(
    timing: Timing,
    splits: Mapping[str, int],
    known: Mapping[str, SplitState],
    news: Mapping[str, int],
    wall: int,
) -> set[str]:
    """Splits that wait because they are ahead of the slowest by more than max_skew (D5).

    A split without new records for the idle time delays no other; the slowest never waits.
    """
    if timing.max_skew_us is None:
        return set()
    marks = {s: known[s].mark.value if s in known else bound for s, bound in splits.items()}
    awake = [s for s in marks if timing.idle_us is None or wall - news[s] < timing.idle_us]
    slowest = min((marks[s] for s in awake), default=END)
    return {s for s in awake if marks[s] > slowest + timing.max_skew_us}


def _beyond(found: Range, reaches: int | None) -> int | None:
    """About how many records a split has after a range, if they are as large as those in it."""
    if reaches is None or found.end <= found.start:
        return None if reaches is None else 0
    return max(0, reaches - found.end) * found.records // (found.end - found.start)
