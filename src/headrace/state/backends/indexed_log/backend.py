"""`LogBackend`: the indexed append-only log, as a state store.

A write appends records to the last file of the driver's own generation and puts them into the
index in memory; `sync` syncs that file. Now and then the index is flushed: a table of all cells is
written, and a *place* that names it. Whoever opens the log maps that table, and reads what was
appended since.

Only versions that may be written are appended (O2), so of two records of one cell the later one
counts. Only the leader appends to what a commit names: a driver that was fenced appends to files of
its own generation, from which the next leader takes what is complete, once. So no late write can
bring anything back (O3).

A file goes when its generation is closed, or it lies before the place that a commit has named, and
no row of the index refers to it. Where files hold too little that counts, it is copied to the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.model.values.keys import hash_key
from headrace.plan.state.choice import StateChoice
from headrace.state.backend import AppliedCell, Hashes, PlaceGone, StateBackend, StoreMarks
from headrace.state.backends.directory import GONE, StateDirectory
from headrace.state.backends.indexed_log import places
from headrace.state.backends.indexed_log.appending import Appender
from headrace.state.backends.indexed_log.folding import LogFold
from headrace.state.backends.indexed_log.index import in_order, parts_of
from headrace.state.backends.indexed_log.records import (
    CELLS,
    FLOOR,
    MARK,
    CellRecord,
    IndexRows,
    decode_record,
    encode_cells,
    place_of,
)
from headrace.state.segment import ENTRY, FIELD, Cell
from headrace.store import files
from headrace.store.store import Store

FLUSH_ROWS = 50_000
"""The index is flushed when so many rows, and a quarter of all, are newer than the last flush."""
FILE_BYTES = 256 << 20
"""A file of records is followed by another when it has this size."""
COPY_BYTES = 16 << 20
"""About so many bytes of records are copied at once."""
SLACK_BYTES = 64 << 20
"""So many bytes of records that count no more are kept without a thought."""


class LogBackend(StateBackend):
    """The cells of one checkpoint in an indexed log."""

    name = "log"

    def __init__(
        self,
        directory: StateDirectory,
        *,
        flush_rows: int = FLUSH_ROWS,
        file_bytes: int = FILE_BYTES,
        slack_bytes: int = SLACK_BYTES,
    ) -> None:
        self._directory = directory
        self._flush_rows, self._file_bytes, self._slack = flush_rows, file_bytes, slack_bytes
        self._fold: LogFold | None = None
        self._appender: Appender | None = None
        self._flushed = ""
        self._lock = threading.RLock()
        """The index changes in several steps."""

    @staticmethod
    def open(choice: StateChoice, store: Store, checkpoint: str) -> LogBackend:
        """The log of a checkpoint."""
        return LogBackend(StateDirectory.of(choice, store, checkpoint))

    # Places ---------------------------------------------------------------

    def lead(self, generation: int, place: str) -> None:
        with self._lock:
            self._directory.begin_run()
            fold = LogFold(self._directory)
            names = self._directory.list()
            known = {name: found for name in names if (found := places.parsed(name)) is not None}
            if place and place not in known:
                place = max((name for name in known if "." not in name), default="")
            if place:
                try:
                    fold.load(place)
                except FileNotFoundError as error:
                    raise self._incomplete(str(error.filename)) from None
            number = 1 + max((n for g, n in known.values() if g == generation), default=-1)
            fold.close_at(generation, number)
            for file in {file for file, _, _ in fold.place.pieces}:
                # One who died may have appended and not synced: from now on it counts (O4).
                files.sync_file(self._directory.at(file), self._directory.system)
            name = places.place_name(generation, number)
            places.write_place(self._directory, name, fold.place)
            self._fold, self._flushed = fold, name
            self._appender = Appender(
                self._directory, generation, number, self._file_bytes, fold.take
            )

    def place(self) -> str:
        return self._flushed

    def follow(self, place: str) -> None:
        with self._lock:
            if self._fold is None or self._flushed != place:
                self._fold, self._flushed = LogFold(self._directory), place
                try:
                    if place:
                        self._fold.load(place)
                except FileNotFoundError:
                    self._fold.is_gone = True
            elif self._appender is None:
                self._fold.catch_up()

    def tidy(self, place: str) -> None:
        """Removes files that nothing needs which the place, or what was appended since, names."""
        with self._lock:
            fold, appender = self._state(), self._appender
            if appender is None or place != self._flushed:
                return
            now = fold.place
            first = (now.generation, now.number)
            needed = {place, now.index, *(piece[0] for piece in now.pieces), *fold.flushed_files}
            # Places first: who misses a file finds then that its place is gone, too.
            for name in sorted(self._directory.list(), key=lambda each: "." in each):
                found = places.parsed(name)
                if found is None or name in needed or found[0] > now.generation:
                    continue
                if name.endswith(".log") and found >= first:
                    continue
                fold.forget(name)
                self._directory.remove(name)

    # Marks ----------------------------------------------------------------

    def marks(self) -> StoreMarks:
        with self._lock:
            fold = self._state()
            if fold.is_gone:
                return StoreMarks(0, 0, GONE)
            if self._appender is None:
                fold.catch_up()
            return StoreMarks(fold.applied, fold.floor, self._directory.run())

    def raise_applied(self, epoch: int, run: str) -> bool:
        with self._lock:
            marks = self.marks()
            if marks.run != run:
                return False
            if epoch > marks.applied:
                self._append(MARK, epoch, None, [], b"")
            return True

    def sync(self) -> None:
        with self._lock:
            self._writer().sync()
            fold = self._state()
            if fold.unflushed >= max(self._flush_rows, fold.index.rows // 4):
                self._flush()

    def purge(self, upto: int) -> None:
        with self._lock:
            fold = self._state()
            floor = min(upto, fold.applied)
            if floor > fold.floor:
                self._append(FLOOR, floor, None, [], b"")
            fold.index.compact(fold.floor)
            self._copy_from_sparse_files()
            if fold.unflushed:
                self._writer().sync()
                self._flush()

    def lost(self) -> str | None:
        return ""  # cells and marks are records of one log, which is read as a whole

    # Cells ----------------------------------------------------------------

    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        with self._lock:
            self._write(list(cells), epoch)

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        with self._lock:
            names = [key for _, key in self.scan(computation)] if keys is None else keys
            hashes = np.array([hash_key(key) for key in names], np.uint64)
            gone: list[tuple[str, Cell]] = []
            for key, found in zip(names, self._cells_of(computation, names, hashes), strict=True):
                for each in found:
                    if each.cell.stamp <= epoch:
                        cell = Cell(hash_key(key), key, each.kind, each.field, each.entry, b"", 0,
                                    each.cell.expires, each.cell.version, True)  # fmt: skip
                        gone.append((computation, cell))
            self._write(gone, epoch, or_equal=True)

    def _write(
        self, cells: Sequence[tuple[str, Cell]], epoch: int, *, or_equal: bool = False
    ) -> None:
        """Appends those that may be written (O2)."""
        fold = self._state()
        if not cells:
            return
        rows, names, records = encode_cells(epoch, cells)
        there, stamps = fold.index.stamps(rows.hash, rows.place)
        limit = np.uint64(epoch + or_equal)
        may = np.where(there, stamps < limit, np.uint64(epoch) > np.uint64(fold.floor))
        if not may.any():
            return
        if not may.all():
            kept = np.flatnonzero(may)
            records = [records[i] for i in kept.tolist()]
            rows = rows.take(kept)
            ends = np.cumsum(rows.size, dtype=np.uint64)
            rows = rows._replace(offset=ends - rows.size.astype(np.uint64))
        self._append(CELLS, epoch, in_order(rows), names, b"".join(records))

    def _append(
        self, kind: int, number: int, rows: IndexRows | None, names: Sequence[str], data: bytes
    ) -> None:
        file, batch = self._writer().append(kind, number, rows, names, data)
        self._state().take(file, [batch])

    # Reading --------------------------------------------------------------

    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        found = self._cells_of(computation, keys, hashes, FIELD)
        return [{each.field: each.cell for each in of_key} for of_key in found]

    def read_entries(
        self, computation: str, name: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[bytes, AppliedCell]]:
        found = self._cells_of(computation, keys, hashes, ENTRY)
        return [{e.entry: e.cell for e in of_key if e.field == name} for of_key in found]

    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        with self._lock:
            place = place_of(computation, key, ENTRY, name, entry)
            found = self._state().index.cell(hash_key(key), place)
            if found is None:
                return None
            table, row = found
            where = int(table.file[row]), int(table.offset[row]), int(table.size[row])
            record = self._record(*where)
            same = (record.key, record.field, record.entry) == (key, name, entry)
            return record.cell if same else None

    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        hashes = np.array([hash_key(key)], np.uint64)
        (found,) = self.read_entries(computation, name, [key], hashes)
        return [
            (entry, cell)
            for entry, cell in found.items()
            if (low is None or entry >= low) and (high is None or entry < high)
        ]

    def map_names(self, computation: str, key: bytes) -> Sequence[str]:
        hashes = np.array([hash_key(key)], np.uint64)
        (found,) = self._cells_of(computation, [key], hashes, ENTRY)
        return list(dict.fromkeys(each.field for each in found))

    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        with self._lock:
            index = self._state().index
            if computation not in index.computations:
                return iter(())
            number = index.computations.index(computation)
            found: dict[tuple[int, bytes], None] = {}
            for table in index.tables:
                mine = table.take(table.computation == number)
                for file, offset, size in zip(
                    mine.file.tolist(), mine.offset.tolist(), mine.size.tolist(), strict=True
                ):
                    key = self._record(file, offset, size).key
                    found[hash_key(key), key] = None
        return iter(found)

    def computations(self) -> Sequence[str]:
        with self._lock:
            index = self._state().index
            used = {int(n) for table in index.tables for n in np.unique(table.computation)}
            return [name for number, name in enumerate(index.computations) if number in used]

    def close(self) -> None:
        with self._lock:
            if self._appender is not None:
                self._appender.close()
            self._appender, self._fold = None, None

    def _cells_of(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes, kind: int | None = None
    ) -> list[list[CellRecord]]:
        """The newest version of all cells of some keys."""
        found: list[list[CellRecord]] = [[] for _ in keys]
        with self._lock:
            index = self._state().index
            if computation not in index.computations or not len(keys):
                return found
            number = index.computations.index(computation)
            seen: set[tuple[int, int]] = set()
            several = len(index.tables) > 1
            for owners, rows in index.of_keys(hashes, number, kind):
                for owner, place, file, offset, size in zip(
                    owners.tolist(), rows.place.tolist(), rows.file.tolist(),
                    rows.offset.tolist(), rows.size.tolist(), strict=True,
                ):  # fmt: skip
                    if several:
                        if (owner, place) in seen:
                            continue
                        seen.add((owner, place))
                    record = self._record(file, offset, size)
                    if record.key == keys[owner]:  # the hash alone does not say so
                        found[owner].append(record)
        return found

    def _record(self, file: int, offset: int, size: int) -> CellRecord:
        fold = self._state()
        name = fold.index.files[file]
        try:
            data = fold.bytes_of(name, offset + size)
        except FileNotFoundError:
            if self._flushed in self._directory.list():
                raise self._incomplete(self._directory.at(name)) from None
            raise PlaceGone(
                f"{self._directory.at(name)} was removed, because a commit has named a newer place "
                "of the state log: read again from there"
            ) from None
        return decode_record(data[offset : offset + size], self._directory.at(name))

    # Upkeep ---------------------------------------------------------------

    def _flush(self) -> None:
        """Writes the whole index, and a place that names it; the next commit names that place."""
        fold, appender = self._state(), self._writer()
        number = appender.next_file()
        fold.index.compact(fold.floor)
        name = places.place_name(appender.generation, number)
        fold.flush(name, appender.generation, number)
        self._flushed = name

    def _copy_from_sparse_files(self) -> None:
        """Appends what still counts in files that hold little of it; later those files go."""
        fold = self._state()
        if not fold.index.tables:
            return
        table = fold.index.tables[0]
        live = np.bincount(table.file, table.size, len(fold.index.files))
        sizes = np.array([fold.size_of(name) for name in fold.index.files])
        if sizes.sum() <= 2 * live.sum() + self._slack:
            return
        sparse = (live < sizes / 2) & (live > 0)
        rows = table.take(sparse[table.file])
        for part in parts_of(rows, COPY_BYTES):
            self._copy(part)
        fold.index.compact(fold.floor)

    def _copy(self, rows: IndexRows) -> None:
        """Appends the records of some rows again, and syncs them, so that none is kept here."""
        fold = self._state()
        records = [
            bytes(fold.bytes_of(fold.index.files[file], offset + size)[offset : offset + size])
            for file, offset, size in zip(
                rows.file.tolist(), rows.offset.tolist(), rows.size.tolist(), strict=True
            )
        ]
        ends = np.cumsum(rows.size, dtype=np.uint64)
        rows = rows._replace(offset=ends - rows.size.astype(np.uint64))
        self._append(CELLS, 0, rows, fold.index.computations, b"".join(records))
        self._writer().sync()

    def _incomplete(self, path: str) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"{path} is missing, and the place {self._flushed} of the state log needs it: put back "
            f"a copy of all of {self._directory.path}"
        )

    def _state(self) -> LogFold:
        if self._fold is None:
            self._fold = LogFold(self._directory)
        return self._fold

    def _writer(self) -> Appender:
        if self._appender is None:
            raise StoreError("this process does not lead, and so does not write to the state log")
        return self._appender
