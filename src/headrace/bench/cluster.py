"""A Spark standalone cluster on this machine: one master, one worker, several executors.

Recovery can only be measured, and tested, where executors are separate processes that can be
killed. Everything listens on 127.0.0.1, on free ports.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from headrace.bench.servers.processes import free_port
from headrace.bench.servers.standalone import SHORT_LIVED, daemon_command, daemon_environment
from headrace.errors import HeadraceError

START_S = 300.0
_EXECUTOR = "CoarseGrainedExecutorBackend"


def wait_for(condition: Callable[[], Any], what: str, timeout: float = START_S) -> Any:
    """Waits until `condition` returns something true, and returns it."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise HeadraceError(f"waited {timeout:g} s in vain: {what}")


@dataclass
class Cluster:
    """A running cluster. `directory` holds its logs and its executors' local files."""

    directory: Path
    executors: int
    memory: str
    url: str = ""
    room: int = 1
    """How many drivers can run at once, each with all its executors."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Starts master and worker, and waits for the worker to have registered."""
        self.directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._launch("master", "--port", str(port))
        wait_for(lambda: "New state: ALIVE" in self.log("master"), "a Spark master")
        self.add_worker()

    def add_worker(self) -> None:
        """One worker process with room for all executors."""
        cores = self.executors * self.room
        memory = str(cores * (_megabytes(self.memory) + 64)) + "m"
        name = f"worker-{len(self._started)}"
        work = str(self.directory / name)
        self._launch(name, "--cores", str(cores), "--memory", memory, "--work-dir", work, self.url)
        wait_for(lambda: "Successfully registered" in self.log(name), "a Spark worker")

    def settings(self, **more: str) -> dict[str, str]:
        """Settings for a session: executors of one core, whose shuffle files are lost with them."""
        return {
            "spark.executor.cores": "1",
            "spark.cores.max": str(self.executors),
            "spark.executor.memory": self.memory,
            "spark.driver.memory": "768m",
            "spark.shuffle.readHostLocalDisk": "false",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(self.executors),
            **more,
        }

    def pids(self) -> list[int]:
        """The executors that run now."""
        found = []
        for process in self._processes():
            try:
                if any(_EXECUTOR in part for part in process.cmdline()):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return sorted(found)

    def python_workers(self) -> list[int]:
        """The Python workers of all executors: processes that their daemons forked."""
        found = []
        for pid in self.pids():
            try:
                for daemon in psutil.Process(pid).children():
                    found += [child.pid for child in daemon.children()]
            except psutil.Error:
                continue
        return sorted(found)

    def ready(self, count: int | None = None) -> list[int]:
        """Waits until that many executors run."""
        wanted = self.executors if count is None else count
        return wait_for(
            lambda: pids if len(pids := self.pids()) >= wanted else None, f"{wanted} executors"
        )

    def log(self, name: str) -> str:
        """The log output of a process of the cluster."""
        path = self.directory / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """Ends everything that `start` began, executors and their Python workers too."""
        ours = [process for process in self._processes() if process.is_running()]
        for started in reversed(self._started):
            started.kill()
            started.wait()
        for process in ours:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        psutil.wait_procs(ours, timeout=10)
        for leftover in self.directory.glob("worker-*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for started in self._started:
            try:
                found += psutil.Process(started.pid).children(recursive=True)
            except psutil.Error:
                continue
        return found

    def _launch(self, name: str, *arguments: str) -> None:
        command = daemon_command(name.partition("-")[0], *arguments)
        command, environment = self.command_of(name, command), self.environment_of(name)
        with open(self.directory / f"{name}.log", "wb") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def command_of(self, name: str, command: list[str]) -> list[str]:
        """The command that starts a process of the cluster."""
        return command

    def environment_of(self, name: str) -> dict[str, str]:
        """The environment of a process of the cluster."""
        return daemon_environment(self.directory, "-Dspark.deploy.maxExecutorRetries=-1")


@contextmanager
def cluster(
    directory: Path, executors: int = 3, memory: str = "512m", room: int = 1
) -> Iterator[Cluster]:
    """A cluster for as long as the block runs."""
    made = Cluster(directory, executors, memory, room=room)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def executor_of(pid: int) -> int:
    """The executor in whose Python worker `pid` runs: its daemon's parent."""
    return int(psutil.Process(pid).parents()[1].pid)


def _megabytes(text: str) -> int:
    return int(text[:-1]) * (1024 if text.endswith("g") else 1)
