"""How many bytes of state an epoch writes, and how many are kept, with state in segments.

A real driver runs in this process, without Spark. All keys are written once: what that leaves is
the live state. Then one key in a hundred changes in every epoch, and compaction works beside it.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.log import paths
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.map import Map
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.plan.rings.classes import SegmentSlice
from headrace.sources.files.text_lines import text
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.worker.runtime import Runtime

EPOCHS = 40
CHANGED_SHARE = 0.01
MAP_ENTRIES = 100_000
FILL_LINES = 100_000


class KeepText(Computation):
    """Keeps a text that looks like noise, and a count, per key."""

    text: str = state("")
    changes: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Changes the key's state."""
        self.changes += 1
        said = f"{self.changes} {record.value}".encode()
        self.text = hashlib.blake2b(said).hexdigest() + hashlib.blake2b(said[::-1]).hexdigest()


class KeepEntries(Computation):
    """Keeps one map, with one entry per line."""

    entries: Map[str, int] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts a line in its entry."""
        self.entries[record.value] = self.entries.get(record.value, 0) + 1


def measure_bytes(
    keys: int,
    *,
    entries: int = MAP_ENTRIES,
    epochs: int = EPOCHS,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, float]:
    """`delta` and `total` as shares of the live state, and the bytes for one entry of a map."""
    say(f"bytes of an epoch: {keys:,} keys, one in a hundred changes")
    changing = _measure_keys(keys, epochs, work_dir)
    say(f"bytes of an epoch: one entry of a map of {entries:,}")
    with tempfile.TemporaryDirectory(prefix="headrace-bytes-", dir=work_dir) as directory:
        feed = _Feed(Path(directory), KeepEntries, _one_key)
        feed.read(range(entries))
        feed.read([entries // 2])
        entry = feed.delta_bytes()
        feed.driver.close()
    return {**changing, "entry_bytes": float(entry)}


def _measure_keys(keys: int, epochs: int, work_dir: Path | None) -> dict[str, float]:
    dice = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="headrace-bytes-", dir=work_dir) as directory:
        feed = _Feed(Path(directory), KeepText, _itself)
        for first in range(0, keys, FILL_LINES):
            feed.read(range(first, min(first + FILL_LINES, keys)))
        live = sum(each.bytes for each in feed.segments())
        deltas, totals = [], []
        for _ in range(epochs):
            feed.read(dice.sample(range(keys), int(keys * CHANGED_SHARE)))
            deltas.append(feed.delta_bytes())
            totals.append(sum(each.bytes for each in feed.segments()))
        feed.driver.close()
    return {
        "live_bytes": float(live),
        "delta": max(deltas) / live,
        "total": max(totals) / live,
    }


class _Feed:
    """A driver over a watched directory, whose files are its epochs."""

    def __init__(self, directory: Path, computation: type[Computation], key: Any) -> None:
        self._data = directory / "in"
        self._data.mkdir()
        pipeline = PipelineBuilder("bytes")
        pipeline.read("lines", text(self._data, watch=True))
        pipeline.compute(computation, inputs={"lines": key}, outputs="none", name="keep")
        topology = pipeline.freeze()
        self._store = store = DiskStore(directory / "state")
        substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
        options = Options(until=None, slots=2, epoch_records=1_000_000, background=False)
        setup = Setup(topology, fingerprint(topology.graph), store, substrate, options)
        self.driver: Driver = Follower(setup).take_over()
        self._files = self._lines = 0

    def read(self, numbers: Sequence[int]) -> None:
        """One more file, and epochs until it is read."""
        self._files += 1
        self._lines += len(numbers)
        aside = self._data / ".next"
        aside.write_text("".join(f"{number}\n" for number in numbers))
        aside.rename(self._data / f"{self._files:06d}.txt")
        while self.driver.ledger.counters.records < self._lines:
            before = self.driver.ledger.epoch
            self.driver.step()
            if self.driver.ledger.epoch == before:
                time.sleep(0.02)

    def segments(self) -> list[SegmentSlice]:
        """All segments that count."""
        slots = self.driver.ledger.slots["keep"].values()
        return [entry for slot in slots for entry in slot.entries]

    def delta_bytes(self) -> int:
        """What the last epoch wrote: files, and what rides in the log, as it lies there."""
        last = self.driver.ledger.epoch
        made = [e for e in self.segments() if e.last_epoch == last and not e.bottom]
        entries = {paths.log_entry(e.at) for e in made if e.at}
        tails = [self._store.read(name).split(b"\n", 2)[2] for name in entries]
        return sum(e.bytes for e in made if not e.at) + sum(map(len, tails))


def _itself(line: str) -> str:
    return line


def _one_key(line: str) -> str:
    return "all"
