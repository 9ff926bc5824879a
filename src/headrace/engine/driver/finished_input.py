"""The driver's side of the record of splits that were read to their end (`state/record.py`).

1. Before a commit, if enough splits have finished in earlier epochs, they are written durably
   into a new file. Existing files that are not larger than the rows gathered so far are merged in.
2. The commit names the new file and the files that it replaces. A crash between 1 and 2 leaves an
   orphan file, and the splits are still in the ledger: the next driver repeats both steps.
3. Collection deletes the replaced files when no commit of the retention window names them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of, write_named
from headrace.model.source import Seen
from headrace.plan.epoch import RecordFile, Sealing
from headrace.plan.ledger import FinishedInput, Ledger
from headrace.state.record import FinishedFile, Part, encode_record, table_of
from headrace.store.store import Store

MERGE_ROWS_MAX = 1 << 18
"""A file with at least this many rows is not merged any more, as that would delay an epoch."""


class FinishedSplits:
    """Searches the record of finished splits, and adds to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, FinishedFile] = {}
        self._turns: dict[str, int] = {}
        """Stream -> the hash up to which its parts have been checked in this round."""

    def find(self, ledger: Ledger, stream: str, parts: Iterable[Part]) -> dict[Part, Seen | None]:
        """The parts among these that were read to their end, with what was read of each."""
        found: dict[Part, Seen | None] = {}
        left = list(parts)
        for file in ledger.finished.get(stream, FinishedInput()).files:
            if left:
                found |= self._record(file).find(left)
                left = [part for part in left if part not in found]
        return found

    def in_turn(self, ledger: Ledger, stream: str, rows: int) -> dict[Part, Seen | None]:
        """The next parts, about `rows` of them: all get their turn, however files are merged."""
        known = ledger.finished.get(stream, FinishedInput()).files
        records = [self._record(file) for file in known]
        if not records:
            return {}
        low = self._turns.get(stream, 0)
        high = min(record.after(low, rows) for record in records)
        self._turns[stream] = high % 2**64
        found: dict[Part, Seen | None] = {}
        for record in records:
            found = {**record.between(low, high), **found}
        return found

    def seal(self, epoch: int, ledger: Ledger) -> dict[str, Sealing]:
        """Writes the splits that may leave the ledger with the commit of this epoch."""
        sealed: dict[str, Sealing] = {}
        named = ledger.records()
        self._open = {name: record for name, record in self._open.items() if name in named}
        for stream in ledger.splits:
            rows = ledger.leaving(stream)
            if len(rows) < self._store.system.limits.sealed_rows_min:
                continue
            known = ledger.finished.get(stream, FinishedInput()).files
            merged = to_merge(len(rows), known)
            tables = [table_of(rows), *(self._record(file).table for file in merged)]
            data, count = encode_record(tables)
            directory = paths.read_directory(stream)
            self._store.make_directory(directory)
            name = f"{directory}/{paths.content_name(epoch, 'read', digest_of(data), '.arrow')}"
            write_named(self._store, name, data)
            reach("after-record-write")
            replaced = tuple(file.name for file in merged)
            sealed[stream] = Sealing(RecordFile(name, count), replaced)
            # Read back now, while no driver can have collected it: a driver that is overtaken in
            # the meantime must fail as fenced, not with a damaged checkpoint.
            self._record(sealed[stream].file)
        return sealed

    def _record(self, file: RecordFile) -> FinishedFile:
        if file.name not in self._open:
            self._open[file.name] = FinishedFile.open(self._store, file.name)
        return self._open[file.name]


def to_merge(rows: int, files: tuple[RecordFile, ...]) -> tuple[RecordFile, ...]:
    """The files, newest first, to merge into a new one: each no larger than the rows before it."""
    merged = []
    for file in files:
        if file.rows > rows or rows + file.rows > MERGE_ROWS_MAX:
            break
        merged.append(file)
        rows += file.rows
    return tuple(merged)
