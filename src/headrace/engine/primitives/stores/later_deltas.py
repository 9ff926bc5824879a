"""Follows the log while a state store is copied, and keeps the deltas that come meanwhile.

A copy of a store that goes on has cells of several epochs. Under the deltas of all epochs since it
began, it is the state of the last of them: a cell that none of them has written is as it was, and
of the others the newest version lies on top.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.engine.history.recovery import History
from headrace.engine.history.shards import decode_body
from headrace.errors import CorruptCheckpoint
from headrace.log.content import map_named, verify
from headrace.log.entry import ACCEPT, COMMIT, CONTROL, PLAN, VOID
from headrace.log.epochlog import EpochLog
from headrace.plan.entries import CommitBody
from headrace.plan.epoch import Commit
from headrace.plan.rings.classes import SegmentSlice
from headrace.store.store import Store

_FOLLOWED = (PLAN, COMMIT, VOID, CONTROL, ACCEPT)
"""Entries that change state by deltas alone."""


class LaterDeltas:
    """The deltas of some computations after an epoch, copied before they can be collected."""

    def __init__(
        self, store: Store, log: EpochLog, history: History, to: Store, names: Collection[str]
    ) -> None:
        """`history` is of the epoch with which the copy begins; it goes on with the log."""
        self._store, self._log, self._history, self._to = store, log, history, to
        self._names = names
        self._rings = {name: history.ledger.rings[name].digest for name in names}
        self._is_cut = False
        self._found: dict[tuple[str, int], list[SegmentSlice]] = {}

    @property
    def fit(self) -> bool:
        """Whether the deltas can lie over a copy: nothing else has changed the state."""
        rings = self._history.ledger.rings
        same = all(rings[n].digest == digest for n, digest in self._rings.items() if n in rings)
        return same and not self._is_cut and self._rings.keys() <= rings.keys()

    def follow(self) -> bool:
        """Reads on to the end of the log; returns whether anything happened to it."""
        if self._is_cut:
            return True
        first = self._log.position + 1
        entries = list(self._log.follow())
        if self._log.is_trimmed(first):
            # There may be a gap, and an entry of a driver that slept, before what was read.
            self._is_cut = True
            return True
        for position, entry in entries:
            self._is_cut = self._is_cut or entry.kind not in _FOLLOWED
            if entry.kind == COMMIT and self.fit:
                self._keep_if_there(position, decode_body(position, entry, CommitBody).commit)
            self._history.fold(position, entry)
        return bool(entries)

    def of(self, computation: str, slot: int) -> list[SegmentSlice]:
        """The deltas of a slot, newest first."""
        return self._found.get((computation, slot), [])[::-1]

    def _keep_if_there(self, position: int, commit: Commit) -> None:
        try:
            self._keep(position, commit)
        except CorruptCheckpoint:
            # It may have been collected, but only if the log has gone on.
            self._is_cut = self._log.read(position + 1) is not None
            if not self._is_cut:
                raise

    def _keep(self, position: int, commit: Commit) -> None:
        self._is_cut = self._is_cut or bool(commit.renamed)
        for name in self._names:
            for slot, delta in commit.deltas.get(name, {}).items():
                if delta.segment is None:
                    continue
                data = map_named(self._store, delta.segment, position if delta.rides else 0)
                verify(delta.segment, data)
                self._to.write(delta.segment, bytes(data))
                found = SegmentSlice(delta.segment, commit.epoch, delta.rows, len(data))
                self._found.setdefault((name, slot), []).append(found)
