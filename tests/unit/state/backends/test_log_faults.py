"""The indexed log on a disk that fails and loses power at any time: what was synced stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest
from tests.unit.state.backends.log_support import KEYS, Disk, opened, put, state

from headrace.errors import StoreError
from headrace.state.backends.indexed_log.backend import LogBackend
from headrace.system import AnyPath

OPTIONS = {"flush_rows": 15, "file_bytes": 1500, "slack_bytes": 300}


class FailingDisk(Disk):
    """What was not synced may become anything: some time after a sync that failed, as memory that
    was said to be written is given away, or when power fails."""

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self.dice, self.share = dice, 0.0
        self.synced: dict[str, int] = {}
        self.failed: set[str] = set()
        self.paths: dict[int, str] = {}
        self.has_lost = False

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self.dice.random() < self.share:
            os.write(descriptor, bytes(data)[: self.dice.randrange(len(data))])
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(descriptor, data)

    def create(self, path: AnyPath) -> int:
        descriptor = super().create(path)
        self.paths[descriptor] = os.fspath(path)
        return descriptor

    def open_directory(self, path: AnyPath) -> int:
        descriptor = super().open_directory(path)
        self.paths[descriptor] = os.fspath(path)
        return descriptor

    def fsync(self, descriptor: int) -> None:
        path = self.paths[descriptor]
        if self.dice.random() < self.share:
            if path.endswith(".log") and self.dice.random() < 0.5:
                self.failed.add(path)
            raise OSError(errno.EIO, "input/output error")
        os.fsync(descriptor)
        if os.path.isfile(path):
            self.synced[path] = max(self.synced.get(path, 0), os.path.getsize(path))
        if path.endswith(".log"):
            self.give_away(path)

    def give_away(self, but: str = "") -> None:
        """Memory goes that was said to be written, though its sync had failed."""
        for path in sorted(self.failed - {but}):
            if os.path.exists(path):
                self.lose(path)
        self.failed.clear()

    def lose(self, path: str) -> None:
        """The disk makes anything of the bytes of a file that are not synced."""
        self.has_lost = True
        size, kept = os.path.getsize(path), self.synced.get(path, 0)
        with open(path, "r+b") as file:
            for at in range(kept, size, 16):
                if self.dice.random() < 0.5:
                    file.seek(at)
                    file.write(bytes(min(16, size - at)))

    def lose_power(self, directory: Path) -> None:
        for name in sorted(os.listdir(directory)):
            path = str(directory / name)
            if name.endswith(".log"):
                self.lose(path)
                if self.dice.random() < 0.5:
                    kept, size = self.synced.get(path, 0), os.path.getsize(path)
                    os.truncate(path, self.dice.randint(min(kept, size), size))


@pytest.mark.parametrize("seed", range(8))
def test_what_was_synced_outlives_failing_syncs_and_losses_of_power(
    tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    disk = FailingDisk(dice)
    generation, named, marked = 1, "", 0
    states: dict[int, dict[bytes, bytes]] = {0: {}}

    def begun() -> LogBackend:
        disk.share = 0.0
        found = opened(tmp_path, disk, **OPTIONS)
        found.lead(generation, named)
        disk.share = 0.1
        assert marked <= found.marks().applied <= len(states) - 1
        look(found)
        return found

    def look(found: LogBackend) -> None:
        before, last = found.marks().applied, len(states) - 1
        unmarked = states[min(before + 1, last)]  # cells come before the mark
        for key, value in {**dict.fromkeys(KEYS), **state(found)}.items():
            assert value in (states[before].get(key), unmarked.get(key))

    log, reader = begun(), opened(tmp_path)
    named = log.place()
    for epoch in range(1, 80):
        values = {key: b"%d" % epoch if dice.random() < 0.7 else None
                  for key in dice.sample(KEYS, dice.randint(1, 6))}  # fmt: skip
        now = {**states[epoch - 1], **{k: v for k, v in values.items() if v is not None}}
        states[epoch] = {k: v for k, v in now.items() if values.get(k, b"") is not None}
        while log.marks().applied < epoch:
            after = log.marks().applied + 1  # a driver applies again what the store lacks
            changes = {k: states[after].get(k) for k in KEYS
                       if states[after].get(k) != states[after - 1].get(k)}  # fmt: skip
            try:
                put(log, after, changes)
            except StoreError:
                continue
        assert state(log) == states[epoch]
        try:
            log.sync()
            if dice.random() < 0.2:
                log.purge(epoch)
                log.sync()
        except StoreError:
            pass
        else:
            if dice.random() < 0.6:  # a commit names the place, and how much of the log counts
                named, marked = log.place(), epoch
                if dice.random() < 0.5:
                    log.tidy(named)
        assert state(log) == states[epoch]
        if dice.random() < 0.7:
            if disk.has_lost:  # others that had read it would read it again, and stop
                reader, disk.has_lost = opened(tmp_path), False
            reader.follow(named)
            assert reader.marks().applied >= marked
            look(reader)
        if dice.random() < 0.15:
            log.close()
            disk.give_away()
            if dice.random() < 0.6:
                disk.lose_power(tmp_path)
            generation += 1
            log = begun()
            if dice.random() < 0.7:
                named = log.place()
