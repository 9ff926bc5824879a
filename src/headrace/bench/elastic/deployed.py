"""A Headrace pipeline whose computation is replaced while it runs, as an operator would do it.

`headrace run` starts the former version, and `headrace deploy` the later one, beside it. Files
appear at a steady pace, whatever happens. The *lateness* of an epoch is the time from when its
file was due until its commit was in the log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import headrace
from headrace.bench.elastic import deploy_job
from headrace.bench.elastic.log_watch import LogWatch
from headrace.bench.elastic.steady import SteadyFeed, visible_files, wait_until
from headrace.bench.frame.system import DEPLOYED, Measurement, Task
from headrace.bench.ours import counts_in
from headrace.bench.workload import CountWorkload
from headrace.errors import HeadraceError
from headrace.log.entry import GENERATION, HANDOVER

BEFORE = 0.25
"""Which part of the measured files appears before the deploy begins."""
AFTER = 10
"""How many files there are at least after the deploy was confirmed."""
COMMAND = (sys.executable, "-m", "headrace.cli.main")
MODULE = deploy_job.__name__
LINES_SHOWN = 20


@dataclass(frozen=True)
class Lateness:
    """What a deploy did to the lateness of epochs."""

    before_ms: tuple[float, ...]
    """Of the epochs before the deploy began, in order."""
    since_ms: tuple[float, ...]
    """Of those since then."""

    @property
    def median_ms(self) -> float:
        """The median of the undisturbed epochs."""
        return median(self.before_ms)

    def numbers(self) -> dict[str, float]:
        """The numbers of one round, by their name in the document."""
        return {
            "lateness_ms_p50": round(self.median_ms, 3),
            "lateness_ms_p50_since": round(median(self.since_ms), 3),
            "lateness_ms_worst": round(max(self.since_ms), 3),
            "lateness_ms_worst_before": round(max(self.before_ms), 3),
            "lateness_ratio": round(max(self.since_ms) / self.median_ms, 3),
        }


def lateness(
    workload: CountWorkload, due: Mapping[int, float], visible: Mapping[int, float], began: int
) -> Lateness:
    """The lateness of every measured epoch; the deploy began before the file of epoch `began`."""
    epochs = range(workload.first_measured_epoch, workload.last_epoch + 1)
    missing = [epoch for epoch in epochs if epoch not in visible]
    if missing:
        raise HeadraceError(f"the files of epochs {missing[:5]} were never committed")
    late = {epoch: (visible[epoch] - due[epoch]) * 1_000 for epoch in epochs}
    return Lateness(
        tuple(ms for epoch, ms in late.items() if epoch < began),
        tuple(ms for epoch, ms in late.items() if epoch >= began),
    )


def deployed_before(workload: CountWorkload) -> int:
    """The measured epoch whose file appears right after the deploy was started."""
    if workload.epochs < 4 * AFTER:
        raise HeadraceError(
            f"{workload.epochs} epochs are too few for a deploy: give at least {4 * AFTER}"
        )
    return workload.first_measured_epoch + int(BEFORE * workload.epochs)


@dataclass(frozen=True)
class Deployed:
    """Headrace; a deploy is one command beside the running pipeline."""

    name: str = DEPLOYED

    def run(self, task: Task) -> Measurement:
        """All files, with the deploy, in two processes one after the other."""
        workload, scratch = task.workload, task.scratch_dir
        checkpoint, began = scratch / "checkpoint", deployed_before(workload)
        feed = SteadyFeed(workload, task.input_dir, scratch / "in")
        until = np.cumsum([workload.records_in(e) for e in range(1, workload.last_epoch + 1)])
        watch = LogWatch(checkpoint)
        with _processes(scratch) as start:
            first = start("run", f"{MODULE}:former", "--checkpoint", "checkpoint",
                          *_session(workload))  # fmt: skip
            watch.start()

            def caught_up(epoch: int) -> None:
                wait_until(
                    lambda: _alive(leaders) and watch.records >= until[epoch - 1],
                    f"the commit of file {epoch}",
                )

            leaders = [first]
            interval_s = feed.warm_up(caught_up)
            due, deploy = _steadily(feed, interval_s, began, lambda: start(
                "deploy", "checkpoint", f"{MODULE}:later", *_session(workload)))  # fmt: skip
            leaders[:] = [deploy.process]
            caught_up(workload.last_epoch)
            deploy.process.stop()
            watch.stop()
        steps = [(e.records, e.when) for e in watch.seen if e.records]
        visible = visible_files(workload, steps)
        found = lateness(workload, due, visible, began)
        confirmed = watch.confirmed(deploy.when)
        if confirmed is None or sum(due[e] > confirmed for e in due) < AFTER:
            raise HeadraceError(
                f"{workload.epochs} epochs at {interval_s:.2f} s ended before the deploy was "
                f"confirmed: give more (--epochs {2 * workload.epochs})"
            )
        moments = {
            "asked": deploy.process.said_at("mode "),
            "handed over": watch.first(HANDOVER, deploy.when),
            "led": watch.first(GENERATION, deploy.when),
            "confirmed": confirmed,
        }
        return Measurement(
            epoch_ms=found.before_ms + found.since_ms,
            records=workload.measured_records,
            counts=counts_in(str(checkpoint)),
            more={**found.numbers(), "deploy_s": round(confirmed - deploy.when, 3)},
            notes={
                "interval_s": f"{interval_s:.3f}",
                "moments_s": ", ".join(
                    f"{what} {when - deploy.when:.2f}" for what, when in moments.items() if when
                ),
                "worst": _worst(due, visible, deploy.when, began),
            },
        )


def _worst(due: Mapping[int, float], visible: Mapping[int, float], when: float, began: int) -> str:
    """The latest epochs since the deploy began: when they were due, and how late they were."""
    late = {epoch: visible[epoch] - due[epoch] for epoch in due if epoch >= began}
    chosen = sorted(sorted(late, key=lambda epoch: -late[epoch])[:8])
    return ", ".join(f"{due[e] - when:.2f} s: {late[e] * 1_000:.0f} ms" for e in chosen)


@dataclass(frozen=True)
class _Begun:
    """A deploy that was started."""

    process: _Process
    when: float
    """In seconds since 1970."""


def _steadily(
    feed: SteadyFeed, interval_s: float, began: int, deploy: Callable[[], _Process]
) -> tuple[dict[int, float], _Begun]:
    """Puts the measured files at a steady pace; says when each was due, and starts the deploy.

    No file waits for anything: an operator's load does not wait for a deploy either.
    """
    workload = feed.workload
    due: dict[int, float] = {}
    begun: list[_Begun] = []
    first, at = workload.first_measured_epoch, time.time()
    for epoch in range(first, workload.last_epoch + 1):
        due[epoch] = at + (epoch - first) * interval_s
        if epoch == began:
            begun.append(_Begun(deploy(), time.time()))
        time.sleep(max(0.0, due[epoch] - time.time()))
        feed.put(epoch)
        for each in begun:
            each.process.check()
    return due, begun[0]


class _Process:
    """A `headrace` command, and the lines that it has written, with their times."""

    def __init__(self, scratch: Path, arguments: Sequence[str]) -> None:
        root = str(Path(headrace.__path__[0]).parent)
        known = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._command = " ".join(arguments)
        self._lines: list[tuple[float, str]] = []
        self._process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, deploy_job.DIRECTORY: str(scratch),
                 "PYTHONPATH": os.pathsep.join(known)},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.append((time.time(), line.rstrip("\n")))

    def check(self) -> None:
        """Raises if it has ended with an error."""
        if self._process.poll():
            self._reader.join(10)
            said = "\n".join(line for _, line in self._lines[-LINES_SHOWN:])
            raise HeadraceError(f"headrace {self._command} has failed; it said:\n{said}")

    def said_at(self, text: str) -> float | None:
        """When it first wrote a line with this text."""
        return next((when for when, line in self._lines if text in line), None)

    def stop(self) -> None:
        """Ends it as a service manager would, and waits for that."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self.check()

    def kill(self) -> None:
        """Ends it at once, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def _alive(processes: Sequence[_Process]) -> bool:
    for process in processes:
        process.check()
    return True


class _Start:
    """Starts `headrace` commands in a directory, and ends them all at last."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.started: list[_Process] = []

    def __call__(self, *arguments: str) -> _Process:
        self.started.append(_Process(self._scratch, arguments))
        return self.started[-1]


@contextmanager
def _processes(scratch: Path) -> Iterator[_Start]:
    start = _Start(scratch)
    try:
        yield start
    finally:
        for process in start.started:
            process.kill()


def _session(workload: CountWorkload) -> tuple[str, ...]:
    return "--slots", str(workload.slots), "--master", f"local[{workload.slots}]"


DEPLOYED_COUNT = Deployed()
