"""The set-ups of rows: what they run, where that decides what they can show."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from headrace.bench.papers.floe import failures
from headrace.bench.papers.s4 import stores
from headrace.bench.papers.s4.disk import FILE_BYTES, S4_T51, write_pages
from headrace.bench.papers.seep import intervals, shedding
from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.rings.ring import Ring


def test_the_file_for_small_writes_is_written_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "data"
    write_pages(path, 3 * 4096)
    assert path.read_bytes() == bytes(3 * 4096)
    assert FILE_BYTES % 4096 == 0
    assert "page by page" in S4_T51.ours and "pieces of megabytes" in S4_T51.note


def test_recoveries_by_interval_are_medians_of_three_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took = iter([9.0, 1.0, 5.0] * len(intervals.EVERY))

    def lap(every: int, records: int, *, slots: int, cost_us: int) -> dict[str, Any]:
        names = ("lost_process_ms", "lost_written_ms", "epoch_ms_p95", "synced_bytes")
        return dict.fromkeys(names, next(took)) | {"lost_epochs": every - 1, "right": True}

    monkeypatch.setattr(intervals, "_lap", lap)
    found = intervals.measure_recovery(lambda line: None)
    assert [each["lost_process_ms"] for each in found["every"].values()] == [5.0] * 4


class Sleepers:
    """Processes in the place of executors; those that died are started again."""

    def __init__(self, count: int) -> None:
        self.running = [self._one() for _ in range(count)]

    def _one(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "60"])

    def pids(self) -> list[int]:
        return [process.pid for process in self.running]

    def dead(self) -> list[int]:
        return [at for at, process in enumerate(self.running) if process.poll() == -9]

    def ready(self) -> list[int]:
        for at in self.dead():
            self.running[at] = self._one()
        return self.pids()


@contextmanager
def epochs(seen: list[tuple[float, float]], *seconds: float) -> Iterator[None]:
    """Epochs after a moment, of so many seconds, the last one again and again."""
    over = threading.Event()

    def run() -> None:
        longer = iter(seconds)
        last, pause = seconds[-1], 0.05
        while not over.wait(pause):
            seen.append((time.monotonic(), next(longer, last)))
            pause = 0.01

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_executors_that_are_no_neighbours_are_killed_at_once() -> None:
    made: Any = Sleepers(failures.EXECUTORS)
    seen = [(0.0, 0.1)] * 3
    try:
        for count in failures.KILLED:
            at = time.monotonic()
            with epochs(seen, 0.9):
                took = failures._kill(made, count, seen)
            assert 0 < took <= (time.monotonic() - at) * 1e3
            for process in made.running[: 2 * count : 2]:
                process.wait(10)
            assert made.dead() == list(range(0, 2 * count, 2))
            with epochs(seen, 0.3, 0.1):
                failures._calm(made, 0.1, seen)
            assert not made.dead() and [s for _, s in seen[-3:]] == [0.1] * 3
    finally:
        for process in made.running:
            process.kill()
            process.wait()


def test_twelve_executors_are_killed_and_not_their_python_workers() -> None:
    assert failures.EXECUTORS == 12 and failures.KILLED == (1, 3, 4, 5, 6)
    assert "12 executors of 512 MB" in failures.FLOE_8A.ours


def test_every_store_has_up_to_a_million_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, tuple[str, ...]]] = []

    def measured(shape: Any, names: tuple[str, ...], say: Any) -> dict[str, Any]:
        asked.append((shape.keys, names))
        return {}

    monkeypatch.setattr(stores, "_stores", measured)
    stores.measure_keys(lambda line: None)
    assert asked == [(10**n, ("files", "log", "segments")) for n in (3, 4, 5, 6)]


def test_one_slot_of_four_is_hot_when_the_load_of_seep_8_rises() -> None:
    page_of = shedding.pages()
    quiet = int(shedding.QUIET_S * shedding.QUIET_RATE)
    ring = Ring.even(shedding.SLOTS)

    def share_of_first(numbers: range) -> float:
        hashes = [hash_key(encode_key(page_of(n, Random(0)))) for n in numbers]
        return float((ring.place(np.array(hashes, np.uint64)) == 0).mean())

    assert 0.2 <= share_of_first(range(quiet)) <= 0.3
    hot = share_of_first(range(quiet, quiet + 2_000))
    assert 0.55 <= hot <= 0.65
    busy = shedding.RATE * shedding.PARSE_US / 1e6
    assert hot * busy > 1.2, "the hot slot cannot serve what comes"
    assert (1 - hot) * busy / (shedding.SLOTS - 1) < 0.6, "the others can"
    assert len({page_of(n, Random(0)) for n in range(quiet, quiet + 2_000)}) > 100, "by many keys"
