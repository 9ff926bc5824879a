"""Times the operations of one state store, round by round.

A store is open before the operations of a round are timed: how long opening takes has a figure of
its own. Each epoch's reads are timed apart from its writes, and every value that is read is
compared with what was written last. Between two rounds a store puts itself in order, as it does in
the background of a pipeline.

All stores are read from the system's page cache. Some machines take pages out of it though memory
is free, those of the store that waited longest first: then a round measured the disk for one store,
and memory for another. So the keys of a round are read once before the store is opened for it.

After its turn a store has time to end what it does in the background: a server uses no processor
any more, and what was written without a sync goes to the disk. It took both from the next store.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from headrace.bench.backends.stores import opened_store
from headrace.bench.backends.workload import FILLED, KeySet, epochs_of


class TimedStore:
    """A store that was filled, and the figures of its rounds."""

    def __init__(self, name: str, keys: KeySet, stack: ExitStack, work_dir: Path | None) -> None:
        """Opens and fills it; it goes with the stack."""
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(
                prefix=f"headrace-{name}-", dir=work_dir, ignore_cleanup_errors=True
            )
        )
        self._keys, self._store = keys, opened_store(name, Path(directory), stack)
        stack.callback(self._store.close)
        started = time.perf_counter()
        self._store.fill(keys)
        self._fill_s = time.perf_counter() - started
        self._store.settle()
        self._epoch_of = np.full(keys.shape.keys, FILLED, np.int64)
        """The epoch that last wrote each key."""
        self._reads: list[float] = []
        self._writes: list[float] = []
        self._operations: list[float] = []
        self._opens_s: list[float] = []
        self._wrong = 0

    def run_round(self, number: int) -> None:
        """Opens the store as after a crash, and times the operations of a round."""
        self._run(number)
        self._store.settle()
        os.sync()

    def _run(self, number: int) -> None:
        keys, store = self._keys, self._store
        epochs = list(epochs_of(keys.shape, number))
        if number:
            store.tidy()
        for epoch in epochs:
            store.read([keys.names[index] for index in epoch.reads], keys.hashes[epoch.reads])
        one = len(keys.names) // 2
        self._opens_s.append(store.open_again(keys.names[one], int(keys.hashes[one])))
        self._compare([one], store.read([keys.names[one]], keys.hashes[[one]]))
        reads = writes = 0
        read_s = write_s = 0.0
        for epoch in epochs:
            asked = [keys.names[index] for index in epoch.reads]
            started = time.perf_counter()
            found = store.read(asked, keys.hashes[epoch.reads])
            read_s += time.perf_counter() - started
            self._compare(epoch.reads, found)
            cells = [keys.cell(index, epoch.number) for index in epoch.writes]
            started = time.perf_counter()
            store.write(epoch.number, cells)
            write_s += time.perf_counter() - started
            self._epoch_of[epoch.writes] = epoch.number
            reads, writes = reads + len(asked), writes + len(cells)
        self._reads.append(reads / read_s)
        self._writes.append(writes / write_s)
        self._operations.append((reads + writes) / (read_s + write_s))

    def _compare(self, asked: Sequence[int], found: Sequence[bytes | None]) -> None:
        """Counts the answers that are not what the last write left."""
        for index, value in zip(asked, found, strict=True):
            self._wrong += value != self._keys.value(index, int(self._epoch_of[index]))

    def figures(self) -> dict[str, Any]:
        """Medians of all rounds, and the rates of each."""
        return {
            "writes_per_s": round(median(self._writes), 1),
            "reads_per_s": round(median(self._reads), 1),
            "operations_per_s": round(median(self._operations), 1),
            "open_ms": round(median(self._opens_s) * 1e3, 2),
            "fill_s": round(self._fill_s, 2),
            "rounds": {
                "writes_per_s": [round(rate, 1) for rate in self._writes],
                "reads_per_s": [round(rate, 1) for rate in self._reads],
            },
            "wrong_answers": self._wrong,
            "promise": self._store.promise,
        }


def measure_store(name: str, keys: KeySet, work_dir: Path | None = None) -> dict[str, Any]:
    """The figures of one round of one store."""
    with ExitStack() as stack:
        store = TimedStore(name, keys, stack, work_dir)
        store.run_round(0)
        return store.figures()
