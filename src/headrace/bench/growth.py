"""`headrace bench growth`: does an epoch cost the same after 50,000 files as after 500?

Small files appear in a watched directory, some for every epoch, and stay there. A driver reads
them in this process, without Spark. Measured is what must not grow with the driver's past: the time
of an epoch, the bytes that it writes to the log, and the size of a snapshot. (The record of what
was read, beside the ledger, has to grow.)

The first tenth of the epochs is warm-up. Early is the second tenth, late the last one; the median
of each is reported. The slope is that of a straight line through all epochs after the first tenth.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import HeadraceError
from headrace.limits import LIMITS, Limits
from headrace.log import paths
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.decisions.next_step import Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.sources.files.text_lines import text
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.system import System
from headrace.worker.runtime import Runtime

KEYS = 16
EPOCHS_MIN = 100
TIME_RATIO_MAX = 1.5
BYTES_RATIO_MAX = 1.2
"""Late over early. Bytes are not noisy as times are, but names and numbers do get longer."""
IDLE_S = 0.1
"""The wait between two looks at a directory that found nothing new."""


class Growth(msgspec.Struct, frozen=True):
    """What to measure."""

    files: int = 50_000
    per_epoch: int = 100


class CountLines(Computation):
    """Counts lines per key."""

    lines: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one line."""
        self.lines += 1


def run_growth(
    workload: Growth,
    *,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
    limits: Limits = LIMITS,
) -> dict[str, Any]:
    """Read all files, epoch by epoch, and return the JSON document."""
    if workload.files < EPOCHS_MIN * workload.per_epoch:
        raise HeadraceError(
            f"{workload.files} files are fewer than {EPOCHS_MIN} epochs of {workload.per_epoch}"
        )
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="headrace-growth-", dir=work_dir) as directory:
        measured, start_s, counted = _measure(workload, Path(directory), say, limits)
        record_bytes = _bytes_below(Path(directory, "state", paths.READ))
    polls = [epoch["poll_seconds"] for epoch in measured if epoch["poll_seconds"] is not None]
    times = _summary([epoch["seconds"] * 1e3 for epoch in measured], workload)
    cpu = _summary([epoch["cpu_seconds"] * 1e3 for epoch in measured], workload)
    log = _summary([epoch["log_bytes"] for epoch in measured], workload)
    snapshot = _summary([epoch["snapshot_bytes"] for epoch in measured], workload)
    return {
        "benchmark": "growth",
        "workload": msgspec.structs.asdict(workload),
        "epoch_ms": times,
        "epoch_cpu_ms": cpu,
        "log_bytes": log,
        "snapshot_bytes": snapshot,
        "poll_ms": round(median(polls) * 1e3, 3) if polls else None,
        "record_bytes_per_file": round(record_bytes / workload.files, 1),
        "start_s": round(start_s, 3),
        "results_equal": counted == workload.files,
        "bars": [
            Bar(
                f"{what}, late / early", "at most", most, numbers["late"] / numbers["early"]
            ).as_json(counted == workload.files)
            for what, most, numbers in (
                ("time per epoch", TIME_RATIO_MAX, times),
                ("log bytes per epoch", BYTES_RATIO_MAX, log),
                ("snapshot bytes", BYTES_RATIO_MAX, snapshot),
            )
        ],
        "epochs": measured,
        "machine": machine,
        "versions": describe_versions(),
    }


def format_growth(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    workload = document["workload"]
    lines = [
        f"{workload['files']:,} files, {workload['per_epoch']:,} in an epoch",
        f"{'':<16}{'early':>12}{'late':>12}{'per 10,000 files':>20}",
    ]
    for name in ("epoch_ms", "epoch_cpu_ms", "log_bytes", "snapshot_bytes"):
        numbers = document[name]
        early, late = numbers["early"], numbers["late"]
        slope = numbers["slope_per_10k_files"]
        lines.append(f"{name:<16}{early:>12,.1f}{late:>12,.1f}{slope:>+20,.2f}")
    lines += [
        f"record of what was read: {document['record_bytes_per_file']} bytes a file",
        f"a look into the directory that finds nothing new: {document['poll_ms'] or 0:.1f} ms",
        f"start over all of them: {document['start_s']:.2f} s",
        f"results equal: {'yes' if document['results_equal'] else 'NO'}",
    ]
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        lines.append(f"{verdict}  {bar['name']}: {bar['measured']:.3f} ({bar['bar']})")
    return "\n".join(lines)


def _measure(
    workload: Growth, directory: Path, say: Say, limits: Limits
) -> tuple[list[dict[str, Any]], float, int]:
    """Every epoch's cost, how long a start takes at the end, and how many lines were counted."""
    data = directory / "in"
    data.mkdir()
    driver = _driver(data, directory / "state", limits)
    measured: list[dict[str, Any]] = []
    for first in range(0, workload.files, workload.per_epoch):
        last = min(first + workload.per_epoch, workload.files)
        _put(data, range(first, last))
        position, epoch = driver.log.position, driver.ledger.epoch
        seconds, cpu, polls = _until_read(driver, last)
        written = range(position + 1, driver.log.position + 1)
        sizes = [(directory / "state" / paths.log_entry(p)).stat().st_size for p in written]
        done = driver.ledger.epoch - epoch
        measured.append(
            {
                "files": last,
                "seconds": round(seconds / done, 6),
                "cpu_seconds": round(cpu / done, 6),
                "poll_seconds": round(sum(polls) / len(polls), 6) if polls else None,
                "log_bytes": sum(sizes) // done,
                "snapshot_bytes": len(msgspec.json.encode(driver.ledger)),
            }
        )
        if last % (workload.files // 10) < workload.per_epoch:
            say(f"{last:,} files: {seconds / done * 1e3:.1f} ms an epoch")
    driver.close()
    began = time.perf_counter()
    again = _driver(data, directory / "state", limits)
    start_s = time.perf_counter() - began
    again.close()
    kept = Checkpoint(str(directory / "state")).scan("count")
    return measured, start_s, sum(fields["lines"] for _, fields in kept)


def _until_read(driver: Driver, files: int) -> tuple[float, float, list[float]]:
    """Steps until `files` are read: the time of epochs, and of looks that found nothing.

    A look may find nothing because a large directory is listed in small steps.
    """
    seconds, cpu, polls = 0.0, 0.0, []
    while driver.ledger.counters.records < files:
        began, cpu_began = time.perf_counter(), time.process_time()
        step = driver.step()
        took = time.perf_counter() - began
        if isinstance(step, Run):
            seconds += took
            cpu += time.process_time() - cpu_began
        else:
            polls.append(took)
            time.sleep(IDLE_S)
    return seconds, cpu, polls


def _driver(data: Path, checkpoint: Path, limits: Limits) -> Driver:
    pipeline = PipelineBuilder("growth")
    pipeline.read("lines", text(data, watch=True))
    pipeline.compute(CountLines, inputs={"lines": _key}, outputs="counts", name="count")
    topology = pipeline.freeze()
    store = DiskStore(checkpoint, System(limits=limits))
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    options = Options(until=None, slots=2, epoch_records=1_000_000, background=False)
    setup = Setup(topology, fingerprint(topology.graph), store, substrate, options)
    return Follower(setup).take_over()


def _key(line: str) -> int:
    return int(line) % KEYS


def _put(directory: Path, numbers: range) -> None:
    """Writes new files, each complete when it appears."""
    for number in numbers:
        aside = directory / f".{number:08d}"
        aside.write_text(f"{number}\n")
        os.rename(aside, directory / f"{number:08d}.txt")


def _summary(values: Sequence[float], workload: Growth) -> dict[str, float]:
    """Early, late, and the slope over the files that were read meanwhile."""
    tenth = max(1, len(values) // 10)
    after = list(values[tenth:])
    slope = np.polyfit(np.arange(len(after)) * workload.per_epoch, after, 1)[0]
    return {
        "early": round(median(after[:tenth]), 3),
        "late": round(median(after[-tenth:]), 3),
        "slope_per_10k_files": round(float(slope) * 10_000, 4),
    }


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
