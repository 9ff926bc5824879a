"""Verifies the log of a checkpoint: every entry, its body, and what rides in it.

It also remembers what says how files are to be judged: names that ride and so are no files, and
segments that were written without a sync. The log goes on meanwhile (`follow`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa

from headrace.engine.history.shards import decode_body
from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.entry import (
    ACCEPT,
    CHECKPOINT,
    COMMIT,
    CONFIRM,
    CONTROL,
    DROP,
    GENERATION,
    HANDOVER,
    LAPSE,
    PLAN,
    RESTORE,
    VOID,
    EntryTail,
    LogEntry,
)
from headrace.log.epochlog import EpochLog
from headrace.log.identity import require_present
from headrace.plan import entries as bodies
from headrace.plan.deploy.code import ConfirmBody, GenerationBody, Handover, LapseBody
from headrace.plan.epoch import Drop, Plan
from headrace.store.store import Store

_BODIES: dict[str, Any] = {
    GENERATION: GenerationBody, PLAN: Plan, COMMIT: bodies.CommitBody, VOID: bodies.VoidBody,
    ACCEPT: bodies.AcceptBody, DROP: Drop, HANDOVER: Handover, CONFIRM: ConfirmBody,
    LAPSE: LapseBody, CONTROL: bodies.ControlBody, RESTORE: bodies.RestoreBody,
    CHECKPOINT: bodies.CheckpointBody,
}  # fmt: skip


class LogCheck:
    """The log, as one verification sees it."""

    def __init__(
        self, store: Store, problem: Callable[[str, object], None], count: Callable[[int], None]
    ) -> None:
        """`problem` is told of damage: file, what; `count` of the size of each entry."""
        self._store, self._problem, self._count = store, problem, count
        self._log = EpochLog(store)
        self._read_to = 0
        """The last position that was looked at."""
        self.riding: set[str] = set()
        """Names of all that rides in the log: these are no files."""
        self.written: set[str] = set()
        """Segments that were written without a sync. Where a checkpoint has replaced them, only a
        replay of past epochs needs them, and a power loss may have taken them."""

    def run(self) -> list[tuple[int, LogEntry]]:
        """Every entry that can be decoded; checks its checksum, its body and its riders."""
        found: list[tuple[int, LogEntry]] = []
        limits = self._store.system.limits
        positions = self._positions()
        for position in positions:
            self._read_to = position
            name = paths.log_entry(position, limits)
            try:
                read = self._entry(position)
                if read is None:
                    continue  # trimmed meanwhile
                entry, data = read
                self._count(len(data))
                if entry.kind not in _BODIES:
                    self._problem(name, f"an entry of the unknown kind {entry.kind!r}")
                self._note(position, entry)
                self._riders(name, entry, EntryTail(data, name))
                found.append((position, entry))
            except (CorruptCheckpoint, IncompatibleState) as error:
                self._problem(name, error)
        for before, after in pairwise(positions):
            if after != before + 1 and not self._log.is_trimmed(before):
                missing = paths.log_entry(before + 1, limits)
                self._problem(
                    missing, f"entries {before + 1} to {after - 1} of the log are missing"
                )
        return found

    def follow(self) -> None:
        """Looks at the entries that have come since."""
        for position in self._positions():
            if position > self._read_to:
                self._read_to = position
                if (read := self._entry(position)) is not None:
                    self._note(position, read[0])

    def _positions(self) -> list[int]:
        found: list[int] = []
        for directory in self._store.list(paths.LOG):
            if directory.isdigit():
                names = self._store.list(f"{paths.LOG}/{directory}")
                found += [int(name) for name in names if name.isdigit()]
        return sorted(found)

    def _entry(self, position: int) -> tuple[LogEntry, pa.Buffer] | None:
        """An entry and its bytes; None if it was trimmed meanwhile."""
        for _ in range(2):
            with suppress(FileNotFoundError):
                entry = self._log.read(position)
                if entry is not None:
                    name = paths.log_entry(position, self._store.system.limits)
                    return entry, self._store.map(name)
            require_present(self._store)  # the whole checkpoint may have been away for a moment
        return None

    def _note(self, position: int, entry: LogEntry) -> None:
        self.riding.update(entry.riders)
        if entry.kind not in _BODIES:
            return
        body = decode_body(position, entry, _BODIES[entry.kind])
        if isinstance(body, bodies.CommitBody):
            deltas = (d for slots in body.commit.deltas.values() for d in slots.values())
            self.written |= {d.segment for d in deltas if d.written and d.segment is not None}

    def _riders(self, where: str, entry: LogEntry, tail: EntryTail) -> None:
        for name in entry.riders:
            data = tail.get(name)
            if data is None or digest_of(data) != paths.digest_in(name):
                self._problem(where, f"{name}, which rides in it, does not have its digest")
