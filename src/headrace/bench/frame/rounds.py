"""Runs every contender of a benchmark in turn, round after round.

The speed of a shared machine changes over time. So the systems take turns: each round runs every
contender once, the order rotates from round to round, and the median over rounds is published.
Two systems never run at the same time.
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
from headrace.bench.workload import CountWorkload, write_input
from headrace.errors import HeadraceError

# An upper bound, not an estimate: the slowest peer with millions of keys needs minutes.
SYSTEM_TIMEOUT_S = 3_600
LOG_LINES_SHOWN = 30

Launch = Callable[[str, Task], SystemOutcome]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Contender:
    """One line of a benchmark: a system on a workload, under a label of its own."""

    label: str
    system: str
    workload: CountWorkload


def run_rounds(
    contenders: Sequence[Contender],
    rounds: int,
    work_dir: Path,
    *,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, list[SystemOutcome]]:
    """Measure every contender `rounds` times; outcomes are listed by label, in their order."""
    if rounds < 1:
        raise HeadraceError(f"a benchmark needs at least 1 round, not {rounds}")
    check_names([contender.system for contender in contenders])
    start = launch or launch_process
    inputs = _write_inputs(contenders, work_dir, say)
    outcomes: dict[str, list[SystemOutcome]] = {contender.label: [] for contender in contenders}
    for number in range(rounds):
        shift = number % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            say(f"round {number + 1} of {rounds}: {contender.label}")
            scratch = work_dir / f"{contender.label}-{number + 1}"
            scratch.mkdir()
            task = Task(contender.workload, inputs[contender.workload], scratch)
            outcomes[contender.label].append(start(contender.system, task))
            # Delete at once, so that the checkpoints of many runs do not fill the disk.
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
            env=child_environment(),
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=SYSTEM_TIMEOUT_S)
        except BaseException as reason:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(reason, subprocess.TimeoutExpired):
                raise failure(f"{system} ran longer than {SYSTEM_TIMEOUT_S} s", log_file) from None
            raise
    if code != 0 or not outcome_file.exists():
        raise failure(f"{system} failed with exit code {code}", log_file)
    return msgspec.json.decode(outcome_file.read_bytes(), type=SystemOutcome)


def failure(what: str, log_file: Path) -> HeadraceError:
    """The error carries the end of the log, which is deleted with the work directory."""
    last_lines = log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return HeadraceError(f"{what}; the end of what it said:\n" + "\n".join(last_lines))


def _write_inputs(
    contenders: Sequence[Contender], work_dir: Path, say: Say
) -> dict[CountWorkload, Path]:
    """Write each workload's input once, before the first system starts."""
    inputs: dict[CountWorkload, Path] = {}
    for contender in contenders:
        if contender.workload not in inputs:
            directory = work_dir / f"input-{len(inputs) + 1}"
            say(f"writing the input of {contender.label}: {contender.workload.last_epoch} epochs")
            write_input(contender.workload, directory)
            inputs[contender.workload] = directory
    return inputs


def child_environment() -> dict[str, str]:
    """Let the child and its Spark workers import the same Headrace as this process."""
    root = str(Path(headrace.__path__[0]).parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
