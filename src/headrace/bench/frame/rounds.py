"""Runs every entry of a benchmark in turn, round after round.

A shared machine is never equally fast for long. So the systems take turns: each
round runs every entry once, in an order that is rotated from round to round, and
the median over rounds is what counts. Two systems are never at work at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import headrace
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.system import Task, check_names
from headrace.bench.workload import KeyedCount, write_input
from headrace.errors import HeadraceError

# A limit, not an expectation: the slowest peer with millions of keys needs minutes.
SYSTEM_TIMEOUT_S = 3_600
LOG_LINES_SHOWN = 30

Launch = Callable[[str, Task], SystemOutcome]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Contender:
    """One line of a benchmark: a system on a workload, under a label of its own."""

    label: str
    system: str
    workload: KeyedCount


def run_rounds(
    entries: Sequence[Contender],
    rounds: int,
    work_dir: Path,
    *,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, list[SystemOutcome]]:
    """Measure every entry `rounds` times; the outcomes are listed by label, in entry order."""
    if rounds < 1:
        raise HeadraceError(f"a benchmark needs at least 1 round, not {rounds}")
    check_names([entry.system for entry in entries])
    start = launch or launch_process
    inputs = _write_inputs(entries, work_dir, say)
    outcomes: dict[str, list[SystemOutcome]] = {entry.label: [] for entry in entries}
    for number in range(rounds):
        shift = number % len(entries)
        for entry in [*entries[shift:], *entries[:shift]]:
            say(f"round {number + 1} of {rounds}: {entry.label}")
            scratch = work_dir / f"{entry.label}-{number + 1}"
            scratch.mkdir()
            task = Task(entry.workload, inputs[entry.workload], scratch)
            outcomes[entry.label].append(start(entry.system, task))
            # At once, so that twenty checkpoints do not fill the disk of the twenty-first.
            shutil.rmtree(scratch, ignore_errors=True)
    return outcomes


def launch_process(system: str, task: Task) -> SystemOutcome:
    """Run one system in a process of its own and read back its outcome."""
    workload_file = task.scratch_dir / "workload.json"
    outcome_file = task.scratch_dir / "outcome.json"
    log_file = task.scratch_dir / "output.log"
    workload_file.write_bytes(msgspec.json.encode(task.workload))
    command = [sys.executable, "-m", "headrace.bench.frame.runner", system]
    command += [str(workload_file), str(task.input_dir), str(task.scratch_dir), str(outcome_file)]
    with log_file.open("wb") as log:
        # A session of its own, so that a timeout ends its JVM and workers with it.
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=SYSTEM_TIMEOUT_S)
        except BaseException as reason:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(reason, subprocess.TimeoutExpired):
                raise _failure(f"{system} ran longer than {SYSTEM_TIMEOUT_S} s", log_file) from None
            raise
    if code != 0 or not outcome_file.exists():
        raise _failure(f"{system} failed with exit code {code}", log_file)
    return msgspec.json.decode(outcome_file.read_bytes(), type=SystemOutcome)


def _failure(what: str, log_file: Path) -> HeadraceError:
    """The error carries the end of the log, which is deleted with the work directory."""
    last_lines = log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return HeadraceError(f"{what}; the end of what it said:\n" + "\n".join(last_lines))


def _write_inputs(entries: Sequence[Contender], work_dir: Path, say: Say) -> dict[KeyedCount, Path]:
    """Write each workload's input once, before the first system starts."""
    inputs: dict[KeyedCount, Path] = {}
    for entry in entries:
        if entry.workload not in inputs:
            directory = work_dir / f"input-{len(inputs) + 1}"
            say(f"writing the input of {entry.label}: {entry.workload.last_epoch} epochs")
            write_input(entry.workload, directory)
            inputs[entry.workload] = directory
    return inputs


def _environment() -> dict[str, str]:
    """Let the child and its Spark workers import this very Headrace."""
    root = str(Path(headrace.__path__[0]).parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
