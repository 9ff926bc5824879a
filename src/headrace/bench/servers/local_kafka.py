"""A broker for trying out, which goes on when the command that started it has ended.

Its files are in one directory: settings, data, log, and the id of its process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from headrace.bench.servers.kafka_server import broker_command, wait_until_ready
from headrace.bench.servers.processes import CannotHave

_STOP_S = 30.0
_RUNNING = "running.json"


class _Running(msgspec.Struct):
    """A broker that was started."""

    process: int
    port: int


class LocalKafka:
    """The broker of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()

    def running(self) -> _Running | None:
        """The broker, if it runs."""
        try:
            found = msgspec.json.decode((self.directory / _RUNNING).read_bytes(), type=_Running)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return found if self._is_ours(found.process) else None

    def start(self, port: int) -> None:
        """Starts the broker, and waits until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = broker_command(self.directory, port, {"log.retention.check.interval.ms": 300_000})
        with open(self.directory / "kafka.log", "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                start_new_session=True,
            )  # fmt: skip
        written = msgspec.json.encode(_Running(process.pid, port))
        (self.directory / _RUNNING).write_bytes(written)
        try:
            wait_until_ready(f"127.0.0.1:{port}", lambda: process.poll() is None)
        except CannotHave as error:
            process.kill()
            process.wait()
            raise CannotHave(f"{error}; see {self.directory / 'kafka.log'}") from error

    def stop(self) -> bool:
        """Stops the broker, if it runs; what it has is kept."""
        found = self.running()
        if found is None:
            return False
        os.kill(found.process, signal.SIGTERM)
        until = time.monotonic() + _STOP_S
        while self._is_ours(found.process):
            if time.monotonic() > until:
                os.kill(found.process, signal.SIGKILL)
            time.sleep(0.05)
        (self.directory / _RUNNING).unlink(missing_ok=True)
        return True

    def _is_ours(self, process: int) -> bool:
        """Whether a process is the broker of this directory: ids are used again."""
        try:
            said = subprocess.run(
                ["ps", "-o", "stat=,args=", "-p", str(process)],
                capture_output=True, text=True, check=False,
            ).stdout.strip()  # fmt: skip
        except OSError as error:
            raise CannotHave(f"ps, which says what runs, cannot be run: {error}") from error
        is_dead = said.startswith("Z")
        return str(self.directory / "server.properties") in said and not is_dead
