"""The index of a log and its marks, folded from a place and from what was appended since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest

import numpy as np
from msgspec.structs import replace

from headrace.errors import CorruptCheckpoint
from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.indexed_log.index import LogIndex
from headrace.state.backends.indexed_log.places import (
    LogPlace,
    log_name,
    parsed,
    read_index,
    read_place,
    write_index,
    write_place,
)
from headrace.state.backends.indexed_log.records import (
    FLOOR,
    MARK,
    Batch,
    IndexRows,
    batches_in,
    is_torn,
    left_in,
)
from headrace.store import files


class LogFold:
    """All that a process knows of a log. Files are mapped as they are needed."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self.index = LogIndex()
        self.place = LogPlace(0, 0)
        self.applied = self.floor = 0
        self.unflushed = 0
        """How many rows came since the place."""
        self.flushed_files: frozenset[str] = frozenset()
        """The files that the index of the place refers to."""
        self.is_gone = False
        """Whether the place was removed before it could be read."""
        self._number = self._position = 0
        """The file of the generation that goes on, and how far it is folded."""
        self._ends: dict[str, int] = {}
        """File of that generation that was left for the next one -> where its batches end."""
        self._name = ""
        self._maps: dict[str, memoryview] = {}

    def load(self, name: str) -> None:
        """Starts from a place."""
        self.place, self._name = read_place(self._directory, name), name
        if self.place.index:
            self.index = read_index(self._directory, self.place.index)
        self.applied, self.floor = self.place.applied, self.place.floor
        self.flushed_files = self._referred()
        for flushed in self.flushed_files:  # once mapped, it can be read though it is removed
            with suppress(FileNotFoundError):
                self.bytes_of(flushed, 0)
        for (file, start, end), following in zip_longest(self.place.pieces, self.place.pieces[1:]):
            data = self.bytes_of(file, end)[:end]
            batches = list(batches_in(data, start))
            reached = batches[-1].end if batches else start
            # Only a file that was left for the next one, after a write that failed, ends otherwise.
            is_left = following is not None and _generation(following[0]) == _generation(file)
            if reached != end and not (is_left and len(data) == end and is_torn(data, reached)):
                raise self._damaged(file, reached)
            self.take(file, batches)
        self._number, self._position = self.place.number, self.place.start
        self.catch_up()

    def catch_up(self) -> None:
        """Folds what the generation that goes on has appended."""
        if not self.place.generation:
            return
        while True:
            file = log_name(self.place.generation, self._number)
            if batches := list(self._complete(file, self._position)):
                self._position = batches[-1].end
                self.take(file, batches)
            following = log_name(self.place.generation, self._number + 1)
            if not self._directory.system.files.exists(self._directory.at(following)):
                return
            first, size = self._first_after(self._number), self.size_of(file)
            end = None if first is None else left_in(first).get(file)
            if end is None and size > self._position:
                if next(self._complete(file, self._position), None) is not None:
                    continue  # its writer ended it just now
                if first is None:
                    return  # it may be about to say how much of this one counts
                if not is_torn(self.bytes_of(file, size), self._position):
                    raise self._damaged(file, self._position)
            elif self._lacks(file, following) if end is None else self._position < end:
                if not self._directory.system.files.exists(self._directory.at(self._name)):
                    self.is_gone = True  # removed with its place
                    return
                raise self._damaged(file, min(size, self._position))
            self._ends[file] = self._position
            self._number, self._position = self._number + 1, 0

    def _complete(self, file: str, start: int) -> Iterator[Batch]:
        """The complete batches of a file from a position on; none if it is removed."""
        size = self.size_of(file)
        with suppress(FileNotFoundError):
            if size > start:
                yield from batches_in(self.bytes_of(file, size), start)

    def _first_after(self, number: int) -> Batch | None:
        """The first batch of the files after one; files that have none were left, too."""
        while self._directory.system.files.exists(
            self._directory.at(following := log_name(self.place.generation, number + 1))
        ):
            first = next(self._complete(following, 0), None)
            if first is not None:
                return first
            number += 1
        return None

    def _lacks(self, file: str, following: str) -> bool:
        """Whether a file is shorter than it was, or the next one goes on after an epoch that is not
        here. So a file is missing or cut off, if this is not the first mark at all; one to which
        nothing was appended is not there."""
        if self.size_of(file) < self._position:
            return True
        batches = self._complete(following, 0)
        first = next((batch.number for batch in batches if batch.kind == MARK), 0)
        return bool(self.applied) and first > self.applied + 1

    def _damaged(self, file: str, at: int) -> CorruptCheckpoint:
        return CorruptCheckpoint(
            f"{self._directory.at(file)} is damaged at byte {at:,}, and the place {self._name} of "
            "the state log needs what follows: put back a copy of the file"
        )

    def take(self, file: str, batches: Sequence[Batch]) -> None:
        """Takes batches of a file in."""
        parts: list[IndexRows] = []
        number = self.index.number_of(self.index.files, file)
        for batch in batches:
            if batch.kind == MARK:
                self.applied = max(self.applied, batch.number)
            elif batch.kind == FLOOR:
                self.floor = max(self.floor, batch.number)
            elif batch.rows is not None:
                known = [
                    self.index.number_of(self.index.computations, name)
                    for name in batch.computations
                ]
                of = np.array(known, np.uint16)[batch.rows.computation]
                here = np.full(batch.rows.number, number, np.uint32)
                parts.append(batch.rows._replace(computation=of, file=here))
                self.unflushed += batch.rows.number
        self.index.add(parts)

    def close_at(self, generation: int, number: int) -> None:
        """Ends the generation before: what it has appended so far counts, and nothing later."""
        before = self.place
        pieces = list(before.pieces)
        if before.generation:
            start = before.start
            for each in range(before.number, self._number + 1):
                file = log_name(before.generation, each)
                end = self._position if each == self._number else self._ends.get(file, start)
                if end > start:
                    pieces.append((file, start, end))
                start = 0
        self.place = replace(
            before, generation=generation, number=number, start=0, pieces=tuple(pieces)
        )
        self._number, self._position = number, 0

    def flush(self, name: str, generation: int, number: int) -> None:
        """Writes the index, which is one table, and a place from which the log goes on."""
        used = self._referred()
        self._renumber(used)
        index = f"{name}.index"
        write_index(self._directory, index, self.index)
        place = LogPlace(generation, number, 0, index, (), self.applied, self.floor)
        write_place(self._directory, name, place)
        self.place = place  # only now: what the place before needs is kept until then
        self.flushed_files, self.unflushed = used, 0
        self._number, self._position = number, 0

    def _renumber(self, used: frozenset[str]) -> None:
        """Drops the names of files that no row refers to."""
        kept = [name for name in self.index.files if name in used]
        numbers = {name: number for number, name in enumerate(kept)}
        change = np.array([numbers.get(name, 0) for name in self.index.files], np.uint32)
        self.index.files = kept
        if len(change):
            self.index.tables = [t._replace(file=change[t.file]) for t in self.index.tables]

    def _referred(self) -> frozenset[str]:
        found = {int(n) for table in self.index.tables for n in np.unique(table.file)}
        return frozenset(self.index.files[n] for n in found)

    # Bytes ----------------------------------------------------------------

    def bytes_of(self, file: str, upto: int) -> memoryview:
        """The bytes of a file, at least up to a position."""
        known = self._maps.get(file)
        if known is None or len(known) < upto:
            with files.explained("read", self._directory.at(file)):
                data = self._directory.system.files.map(self._directory.at(file))
            known = self._maps[file] = memoryview(data)
        return known

    def size_of(self, file: str) -> int:
        """The size of a file; 0 if there is none."""
        try:
            return self._directory.system.files.status(self._directory.at(file))[0]
        except FileNotFoundError:
            return 0

    def forget(self, file: str) -> None:
        """A file is about to be removed."""
        self._maps.pop(file, None)


def _generation(file: str) -> int:
    """The generation that appends to a file."""
    found = parsed(file)
    return -1 if found is None else found[0]
