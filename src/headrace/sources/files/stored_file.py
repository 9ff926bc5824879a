"""`StoredFile`: an object of a store as a file that a source reads.

An object is identified by its size and its version. A listing says both, so planning needs no
request of its own for them. A reader asks again before and after it reads (`fresh`): a version that
is not the planned one, or that changed in between, is a changed file.

A store that cannot be reached is an outage (StoreError), never a missing file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import xxhash

from headrace.model.source import Seen
from headrace.sources.files.input_file import InputFile, OpenFile, Stamp, unreadable_error
from headrace.store.store import ObjectInfo, Store

STREAM_BYTES = 1024 * 1024
GAP_BYTES = 256 * 1024
"""Spans with less between them are fetched together: a request costs more than these bytes."""


class StoredFile(InputFile):
    """An object by its name in a store, perhaps with what a listing said of it."""

    __slots__ = ("_info", "_name", "_shown", "_store")

    def __init__(
        self, store: Store, name: str, info: ObjectInfo | None = None, shown: str = ""
    ) -> None:
        self._store = store
        self._name = name
        self._info = info
        self._shown = shown or store.where(name)

    def __str__(self) -> str:
        return self._shown

    @property
    def suffix(self) -> str:
        return os.path.splitext(self._name)[1]

    @contextmanager
    def open(self) -> Iterator[OpenFile]:
        try:
            yield OpenStoredFile(self._store, self._known())
        except (FileNotFoundError, PermissionError) as error:
            raise unreadable_error(self, error) from error

    def has_bytes(self) -> bool:
        try:
            return self._known().size > 0
        except FileNotFoundError:
            return False

    def looks_like(self, seen: Seen) -> bool:
        now = self._known()
        return (now.size, number_of(now.version)) == (seen.size, seen.time_ns)

    def identity(self) -> Hashable:
        now = self._known()
        return now.size, now.version

    def fresh(self) -> InputFile:
        return StoredFile(self._store, self._name, None, self._shown)

    def _known(self) -> ObjectInfo:
        if self._info is None:
            self._info = self._store.stat(self._name)
        return self._info


class OpenStoredFile(OpenFile):
    """Reads ranges of an object."""

    def __init__(self, store: Store, info: ObjectInfo) -> None:
        self._store = store
        self._info = info
        self.size = info.size
        self._fetched: list[tuple[int, bytes]] = []

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if start >= end:
            return b""
        for first, data in self._fetched:
            if first <= start and end <= first + len(data):
                if start == first and len(data) == end - start:
                    return data
                return data[start - first : end - first]
        return self._store.read_range(self._info.name, start, end)

    def fetch(self, *spans: tuple[int, int]) -> None:
        wanted: list[tuple[int, int]] = []
        for start, end in sorted((a, min(b, self.size)) for a, b in spans):
            if wanted and start - wanted[-1][1] <= GAP_BYTES:
                wanted[-1] = (wanted[-1][0], max(wanted[-1][1], end))
            elif start < end:
                wanted.append((start, end))
        read, name = self._store.read_range, self._info.name
        self._fetched = [(start, read(name, start, end)) for start, end in wanted]

    def stamp(self) -> Stamp:
        return Stamp(self.size, number_of(self._info.version), "")

    def fingerprint(self, start: int | None = None, end: int | None = None) -> str:
        return f"{self.size}-{self._info.version}"

    def stream(self) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Ranges(self), STREAM_BYTES))

    def for_arrow(self) -> Any:
        return _Ranges(self)


class _Ranges(io.RawIOBase):
    """An open object as a file object of Python."""

    def __init__(self, opened: OpenStoredFile) -> None:
        super().__init__()
        self._opened = opened
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._opened.size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._opened.read(self._place, self._place + len(view))
        view[: len(data)] = data
        self._place += len(data)
        return len(data)


def number_of(version: str) -> int:
    """A version as a number, for `Seen.time_ns`: the ledger has no other place for it."""
    return xxhash.xxh3_64_intdigest(version.encode()) >> 1
