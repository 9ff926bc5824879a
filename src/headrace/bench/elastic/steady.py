"""A steady load for a system that is resized while it runs, and what a resize costs.

Files appear in a directory one by one. First come those that fill the state and warm the system up:
each as soon as the results of the one before are visible. They show how long a file takes, and so
how many the system could take in a second. From then on files appear at a quarter of that rate, and
the system is resized now and then.

The latency of a file is the time from its appearance until its results are visible. The *pause* of
a resize is how much longer the slowest of the next files took than the slowest of the last files
before it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError

SIZES = (2, 8, 3, 5)
"""How many slots (the peer: partitions) there are, one number after the other."""
LOAD = 0.25
"""The share of its capacity with which a system is loaded."""
INTERVAL_S_MIN = 0.2
AROUND = 6
"""How many files before a resize are compared with those after it."""
PATIENCE_S = 300.0


class SteadyFeed:
    """Lets files of the input appear in `directory`, and notes when each did."""

    def __init__(self, workload: CountWorkload, input_dir: Path, directory: Path) -> None:
        self.workload = workload
        self.written: dict[int, float] = {}
        """Epoch (of the workload) -> when its file appeared, in seconds since 1970."""
        self._input, self._directory = input_dir, directory
        directory.mkdir(parents=True, exist_ok=True)

    def put(self, epoch: int) -> None:
        """The file of an epoch appears, complete."""
        name = f"epoch-{epoch:06d}.parquet"
        os.link(self._input / name, self._directory / name)
        self.written[epoch] = time.time()

    def warm_up(self, caught_up: Callable[[int], None]) -> float:
        """Puts the files before the measured ones; returns the interval of the steady load.

        `caught_up` waits until the results of an epoch are visible.
        """
        took = []
        for epoch in range(1, self.workload.first_measured_epoch):
            began = time.perf_counter()
            self.put(epoch)
            caught_up(epoch)
            if epoch > self.workload.preload_epochs:
                took.append(time.perf_counter() - began)
        # The first ones are slower: Spark compiles, workers start.
        return max(INTERVAL_S_MIN, median(took[len(took) // 2 :]) / LOAD)

    def steadily(
        self,
        interval_s: float,
        resize: Callable[[int], None],
        caught_up: Callable[[int], None],
    ) -> None:
        """Puts the measured files at a steady pace and resizes in between.

        `resize` runs beside it, as an operator's command would. A system that needs longer for it
        is waited for, so that the files before the next resize are undisturbed.
        """
        sizes = resized_before(self.workload)
        failed: list[BaseException] = []
        running: list[threading.Thread] = []

        def settle(epoch: int) -> None:
            for thread in running:
                thread.join()
            running.clear()
            if failed:
                raise failed[0]
            caught_up(epoch)

        due = time.monotonic()
        for epoch in range(self.workload.first_measured_epoch, self.workload.last_epoch + 1):
            if epoch + AROUND in sizes:
                settle(epoch - 1)
                due = max(due, time.monotonic())
            if epoch in sizes:
                running.append(threading.Thread(target=_run, args=(resize, sizes[epoch], failed)))
                running[-1].start()
            time.sleep(max(0.0, due - time.monotonic()))
            self.put(epoch)
            due += interval_s
        settle(self.workload.last_epoch)


def _run(resize: Callable[[int], None], size: int, failed: list[BaseException]) -> None:
    try:
        resize(size)
    except BaseException as error:
        failed.append(error)


def resized_before(workload: CountWorkload) -> dict[int, int]:
    """Measured epoch -> the size that is asked for right before its file appears."""
    stage = workload.epochs // len(SIZES)
    if stage < 2 * AROUND:
        raise HeadraceError(
            f"{workload.epochs} epochs are too few for {len(SIZES) - 1} resizes: "
            f"give at least {2 * AROUND * len(SIZES)}"
        )
    first = workload.first_measured_epoch
    return {first + at * stage: size for at, size in enumerate(SIZES) if at}


@dataclass(frozen=True)
class Pauses:
    """What resizes did to the latency of files."""

    latency_ms: tuple[float, ...]
    """Of every measured file, in order."""
    pause_ms: tuple[float, ...]
    """Of every resize."""

    def numbers(self) -> dict[str, float]:
        """The numbers of one round, by their name in the document."""
        return {
            "pause_ms": round(median(self.pause_ms), 3),
            "pause_ms_worst": round(max(self.pause_ms), 3),
            "file_latency_ms_p50": round(median(self.latency_ms), 3),
            "file_latency_ms_worst": round(max(self.latency_ms), 3),
        }


def pauses(
    workload: CountWorkload, written: Mapping[int, float], visible: Mapping[int, float]
) -> Pauses:
    """The latency of every measured file, and the pause of every resize."""
    epochs = range(workload.first_measured_epoch, workload.last_epoch + 1)
    missing = [epoch for epoch in epochs if epoch not in visible]
    if missing:
        raise HeadraceError(f"the results of the files of epochs {missing[:5]} never appeared")
    stage = workload.epochs // len(SIZES)
    latency = {epoch: (visible[epoch] - written[epoch]) * 1_000 for epoch in epochs}
    found = []
    for first in resized_before(workload):
        before = max(latency[epoch] for epoch in range(first - AROUND, first))
        after = max(latency[epoch] for epoch in range(first, first + stage - AROUND))
        found.append(max(0.0, after - before))
    return Pauses(tuple(latency.values()), tuple(found))


def visible_files(workload: CountWorkload, steps: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Epoch -> when its file's results were visible.

    `steps` are (records processed, when they were visible), in order. A file is visible when
    all its records are, and those of the files before it.
    """
    found: dict[int, float] = {}
    epoch, missing = 1, workload.records_in(1)
    for records, when in steps:
        missing -= records
        while missing <= 0 and epoch <= workload.last_epoch:
            found[epoch] = when
            epoch += 1
            if epoch <= workload.last_epoch:
                missing += workload.records_in(epoch)
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Waits until `condition` holds."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise HeadraceError(f"waited {PATIENCE_S:g} s in vain: {what}")
        time.sleep(0.002)
