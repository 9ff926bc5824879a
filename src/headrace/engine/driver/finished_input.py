"""The driver's side of the record of what was read to its end (`state/record.py`).

1. Before a commit, where enough splits have finished in earlier epochs, they are written into
   a file, durably, together with files not larger than what has come together so far.
2. The commit names the file and those it replaces. A crash in between leaves an orphan, and the
   splits in the ledger: the next driver does the same again.
3. Collection lets the replaced files go when no commit of the window names them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import StoreError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.source import Seen
from headrace.plan.epoch import RecordFile, Sealing
from headrace.plan.ledger import FinishedInput, Ledger
from headrace.state.record import FinishedFile, Part, encode_record, table_of
from headrace.store.store import Store

MERGE_ROWS_MAX = 1 << 18
"""A file of so many rows is not merged any more: that would hold up an epoch."""


class FinishedSplits:
    """Looks into the record, and adds to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, FinishedFile] = {}
        self._turns: dict[str, int] = {}
        """Stream -> the hash up to which its parts have had their turn."""

    def find(self, ledger: Ledger, stream: str, parts: Iterable[Part]) -> dict[Part, Seen | None]:
        """Those of these parts that were read to their end, with what was read."""
        found: dict[Part, Seen | None] = {}
        left = list(parts)
        for file in ledger.finished.get(stream, FinishedInput()).files:
            if left:
                found |= self._record(file).find(left)
                left = [part for part in left if part not in found]
        return found

    def in_turn(self, ledger: Ledger, stream: str, rows: int) -> dict[Part, Seen | None]:
        """About so many parts more, so that each has its turn however files are merged."""
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
        """Writes down what may leave the ledger with the commit of this epoch."""
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
            self._write(name, data)
            reach("after-record-write")
            replaced = tuple(file.name for file in merged)
            sealed[stream] = Sealing(RecordFile(name, count), replaced)
            # Now, as long as nobody can have collected it: a driver that is overtaken meanwhile
            # shall be told so, and not that its checkpoint is damaged.
            self._record(sealed[stream].file)
        return sealed

    def _write(self, name: str, data: bytes) -> None:
        try:
            self._store.write(name, data)
        except FileNotFoundError as error:
            # A rename that was sent twice, or a checkpoint that is away: to be tried again.
            raise StoreError(f"cannot write {self._store.where(name)}: {error}") from error

    def _record(self, file: RecordFile) -> FinishedFile:
        if file.name not in self._open:
            self._open[file.name] = FinishedFile.open(self._store, file.name)
        return self._open[file.name]


def to_merge(rows: int, files: tuple[RecordFile, ...]) -> tuple[RecordFile, ...]:
    """The files, newest first, that go into a new one: each no larger than what it joins."""
    merged = []
    for file in files:
        if file.rows > rows or rows + file.rows > MERGE_ROWS_MAX:
            break
        merged.append(file)
        rows += file.rows
    return tuple(merged)
