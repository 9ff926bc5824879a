"""Appends batches to the files of one generation. Nobody else appends to these.

A write that failed may have left a part of a batch, and after a sync that failed the disk may have
dropped what it had accepted. In both cases the file is left as it is: what was not synced is
written again, to the next one. That one begins with a batch that says how much of the file before
counts, so that nobody takes what the disk has made of the rest for damage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.indexed_log.places import log_name
from headrace.state.backends.indexed_log.records import (
    LEFT,
    Batch,
    IndexRows,
    batches_in,
    encode_batch,
    encode_left,
)
from headrace.store import files


class Appender:
    """The end of the log, for the driver that leads."""

    def __init__(
        self,
        directory: StateDirectory,
        generation: int,
        number: int,
        file_bytes: int,
        moved: Callable[[str, Sequence[Batch]], None],
    ) -> None:
        """`number`: that of the next file. `moved` is told of a file and what was written again
        there: where it lay before, it may be lost."""
        self.generation = generation
        self._moved = moved
        self._directory, self._file_bytes = directory, file_bytes
        self._number = number
        self._descriptor: int | None = None
        self._size = 0
        self._is_new = False
        self._unsynced: list[bytes] = []
        self._synced = 0
        """How many bytes of the file that is open are synced."""
        self._left: dict[str, int] = {}
        """File that was left since the last sync -> how much of it was synced."""

    def append(
        self, kind: int, number: int, rows: IndexRows | None, names: Sequence[str], data: bytes
    ) -> tuple[str, Batch]:
        """Appends a batch, unsynced; returns the file and the batch as it lies there."""
        if self._descriptor is not None and self._size >= self._file_bytes:
            self.next_file()
        batch, _ = encode_batch(kind, number, rows, names, data)
        self._open()
        start, name = self._size, log_name(self.generation, self._number)
        self._write(batch)
        self._unsynced.append(batch)
        return name, _found_at(batch, start)

    def sync(self) -> None:
        """Makes durable what was appended."""
        if not self._unsynced:
            return
        descriptor = self._open()
        try:
            with files.explained("sync", self._path()):
                self._directory.system.files.fsync(descriptor)
                if self._is_new:
                    files.sync_directory(self._directory.path, self._directory.system)
                    self._is_new = False
        except BaseException:
            self._fail()
            raise
        self._unsynced, self._synced, self._left = [], self._size, {}

    def next_file(self) -> int:
        """Ends the file that is open, durably; returns the number of the next one.

        If none is open, there is an empty one: whoever reads goes from each file to the next.
        """
        self.sync()
        self._open()
        self._leave()
        return self._number

    def _open(self) -> int:
        """The descriptor of the file to append to; a new one begins with what was not synced."""
        if self._descriptor is None:
            with files.explained("create", self._path()):
                self._descriptor = self._directory.system.files.create(self._path())
            self._size, self._synced, self._is_new = 0, 0, True
            if self._left:
                self._write(encode_batch(LEFT, 0, None, encode_left(self._left), b"")[0])
            again = []
            for batch in self._unsynced:
                again.append(_found_at(batch, self._size))
                self._write(batch)
            self._moved(log_name(self.generation, self._number), again)
        return self._descriptor

    def _write(self, batch: bytes) -> None:
        if self._descriptor is None:
            raise RuntimeError("a batch is written before its file is open")
        try:
            with files.explained("write", self._path()):
                view = memoryview(batch)
                while view:
                    view = view[self._directory.system.files.write(self._descriptor, view) :]
        except BaseException:
            self._fail()
            raise
        self._size += len(batch)

    def _fail(self) -> None:
        """Leaves the file that is open as it is; of it counts what was synced."""
        self._left[log_name(self.generation, self._number)] = self._synced
        self._leave()

    def _leave(self) -> None:
        """Appends no more to the file that is open."""
        self.close()
        self._number += 1

    def _path(self) -> str:
        return self._directory.at(log_name(self.generation, self._number))

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            self._directory.system.files.close(self._descriptor)
            self._descriptor = None


def _found_at(data: bytes, start: int) -> Batch:
    """A batch as it lies at a position of a file."""
    (found,) = batches_in(memoryview(data), 0)
    rows = found.rows
    if rows is not None:
        rows = rows._replace(offset=rows.offset + rows.offset.dtype.type(start))
    return found._replace(rows=rows, end=start + found.end)
