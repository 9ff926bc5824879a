"""What sources have to offer: the driver's side of injectors, where their I/O happens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine.planning import Offer, missing
from headrace.errors import SourceError
from headrace.log import paths
from headrace.log.store import Store
from headrace.model.source import Range, Source, Timing, Workspace
from headrace.model.time import BEGINNING, END
from headrace.pipeline.topology import Topology
from headrace.plan.epoch import SplitState
from headrace.plan.ledger import Ledger


class Sources:
    """All injectors of a pipeline."""

    def __init__(self, topology: Topology, store: Store, spark: Any) -> None:
        self._sources: dict[str, Source] = {
            name: injector.source for name, injector in topology.graph.injectors.items()
        }
        self._store = store
        self._spark = spark
        self._settled: dict[tuple[str, str], int] = {}
        self._released: dict[tuple[str, str], int] = {}
        self._first_seen: dict[tuple[str, str], int] = {}

    def prepare(self) -> None:
        """Called once before the first plan of a run."""
        for name, source in self._sources.items():
            directory = f"{paths.SOURCES}/{paths.safe(name)}"
            self._store.make_directory(directory)
            where = os.path.join(self._store.root or "", directory)
            source.prepare(Workspace(where, self._spark))

    def close(self) -> None:
        """The run has ended."""
        for source in self._sources.values():
            source.close()

    def offers(self, ledger: Ledger, records: int, parts: int, wall: int) -> dict[str, Offer]:
        """What every injector could read next, about `records` records in all."""
        share = max(1, records // len(self._sources))
        return {
            name: self._offer(name, source, ledger.splits.get(name, {}), share, parts, wall)
            for name, source in self._sources.items()
        }

    def settle(
        self, ledger: Ledger, released: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Tells sources how far they are committed, and how far no kept epoch needs them."""
        for name, positions in (released or {}).items():
            for split, position in positions.items():
                if name in self._sources and self._released.get((name, split)) != position:
                    self._released[name, split] = position
                    self._sources[name].release(split, position)
        for name, source in self._sources.items():
            for split, state in ledger.splits.get(name, {}).items():
                if self._settled.get((name, split)) != state.position:
                    self._settled[name, split] = state.position
                    source.settle(split, state.position)

    def _offer(
        self,
        name: str,
        source: Source,
        known: dict[str, SplitState],
        share: int,
        parts: int,
        wall: int,
    ) -> Offer:
        splits: dict[str, int] = {}
        news: dict[str, int] = {}
        for split in source.splits():
            state = known.get(split)
            if state is not None and state.finished:
                continue
            own = source.low_watermark(split, state.position if state else source.first(split))
            splits[split] = BEGINNING if own is None else own
            seen = self._first_seen.setdefault((name, split), wall)
            news[split] = state.news if state is not None else seen
        for split, state in known.items():
            # One that is expected may come back, and holds the watermark until then.
            lost = split not in splits and split not in source.timing.expected
            if lost and not state.finished:
                raise SourceError(
                    f"stream {name!r}: {split!r} of {source.describe()} is gone, but is not yet "
                    "read to its end: put it back, or start a new checkpoint"
                )
        # Asked before the ranges: what arrives in between is then offered, or the answer is no.
        caught_up = source.caught_up()
        waiting = _too_far_ahead(source.timing, splits, known, news, wall)
        ranges: dict[str, Sequence[Range]] = {}
        each = max(1, share // max(1, len(splits) - len(waiting)))
        for split in splits:
            if split in waiting:
                continue
            state = known.get(split)
            start = state.position if state is not None else source.first(split)
            found = source.plan(split, start, each)
            if found is not None:
                ranges[split] = source.parallel(split, found, parts)
        ended = source.bounded and not splits and not missing(source.timing, splits, known)
        return Offer(splits, ranges, ended, news, caught_up)


def _too_far_ahead(
    timing: Timing,
    splits: Mapping[str, int],
    known: Mapping[str, SplitState],
    news: Mapping[str, int],
    wall: int,
) -> set[str]:
    """Splits that wait because they run ahead of the slowest by more than max_skew (D5).

    A split without news for the idle time holds nobody back; the slowest never waits.
    """
    if timing.max_skew_us is None:
        return set()
    marks = {s: known[s].mark.value if s in known else bound for s, bound in splits.items()}
    awake = [s for s in marks if timing.idle_us is None or wall - news[s] < timing.idle_us]
    slowest = min((marks[s] for s in awake), default=END)
    return {s for s in awake if marks[s] > slowest + timing.max_skew_us}
