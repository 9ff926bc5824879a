"""A state log in a directory, for tests: on a disk that fails, written and read by key."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np

from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.state.backends.directory import StateDirectory
from headrace.state.backends.indexed_log.backend import LogBackend
from headrace.state.segment import FIELD, Cell
from headrace.system import Filesystem, System

KEYS = [encode_key(f"k{i}") for i in range(40)]
HASHES = np.array([hash_key(key) for key in KEYS], np.uint64)


class Disk(Filesystem):
    """A disk whose next writes or syncs fail."""

    def __init__(self) -> None:
        super().__init__()
        self.torn_writes = self.failing_syncs = self.writes_before = 0

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self.writes_before -= 1
        if self.torn_writes and self.writes_before < 0:
            self.torn_writes -= 1
            os.write(descriptor, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        if self.failing_syncs:
            self.failing_syncs -= 1
            raise OSError(errno.EIO, "input/output error")
        super().fsync(descriptor)


def opened(path: Path, disk: Disk | None = None, **options: int) -> LogBackend:
    limits = {"flush_rows": 10**9, "file_bytes": 10**9, "slack_bytes": 10**9, **options}
    return LogBackend(StateDirectory(str(path), System(disk or Disk())), **limits)


def of(key: bytes, value: bytes | None) -> tuple[str, Cell]:
    gone = value is None
    cell = Cell(hash_key(key), key, FIELD, "n", b"", value or b"", 0, END, 1, gone)
    return "C", cell


def put(log: LogBackend, epoch: int, values: dict[bytes, bytes | None]) -> None:
    log.write(epoch, [of(key, value) for key, value in values.items()])
    assert log.raise_applied(epoch, log.marks().run)


def state(log: LogBackend) -> dict[bytes, bytes]:
    found = log.read_fields("C", KEYS, HASHES)
    cells = {key: each["n"].value for key, each in zip(KEYS, found, strict=True) if each}
    return {key: value for key, value in cells.items() if value is not None}


def files_of(path: Path, kind: str) -> list[str]:
    return sorted(name for name in os.listdir(path) if name.endswith(kind))


def three_drivers(path: Path, **options: int) -> str:
    """What three drivers have appended, one after another; returns the place."""
    place = ""
    for generation in (1, 2, 3):
        log = opened(path, **options)
        log.lead(generation, place)
        for epoch in range(3 * generation - 2, 3 * generation + 1):
            put(log, epoch, {KEYS[epoch]: b"%d" % epoch, KEYS[0]: b"%d" % epoch})
            log.sync()
        place = log.place()
        log.close()
    return place
