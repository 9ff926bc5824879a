"""Servers of tests: installed once, started on a free port of 127.0.0.1, dead with the tests.

What a server needs is installed on its first use, into a directory of the user's cache, so that its
packages never meet those of this project. A machine that cannot have a server skips its tests, with
the server's name and the reason.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-servers"
READY_S = 120.0
SETTLE_S, LOOK_S, IDLE_SHARE = 30.0, 0.5, 0.1
"""A server that uses less than this share of a processor has nothing to do."""
JVM_READY_S = 600.0


class CannotHave(Exception):
    """This machine cannot have that server."""


def installed(name: str, make: Callable[[Path], None]) -> Path:
    """The directory of an installed server; made once, by whichever process comes first."""
    home, done = CACHE / name, CACHE / name / ".done"
    if done.exists():
        return home
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir()
                make(home)
                done.touch()
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotHave(f"{name} cannot be installed: {_reason(error)}") from error
    return home


def _reason(error: Exception) -> str:
    """What a command said of its failure; Maven says it first, on its standard output."""
    said = (getattr(error, "stderr", "") or getattr(error, "stdout", "") or str(error)).strip()
    first, marked, told = said.partition("[ERROR] ")
    return told.splitlines()[0][:500] if marked else first[-300:]


def run(*command: str | Path, cwd: Path | None = None, **more: str) -> None:
    """Runs a command of an installation; its last words are in the error."""
    subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **more},
        check=True,
        capture_output=True,
        text=True,
        timeout=1800,
    )


def needs(program: str) -> str:
    """The path of a program of this machine."""
    found = shutil.which(program)
    if found is None:
        raise CannotHave(f"{program} is not installed")
    return found


def free_port() -> int:
    """A port that nobody uses.

    It lies below those that systems give to connections, so that no connection gets it before the
    server has started. The dice are nobody's: tests seed Python's own, and several run at once.
    """
    dice = SystemRandom()
    while True:
        port = dice.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def scratch_log(name: str) -> Path:
    """The log of a server, in a directory of its own, which goes with this process."""
    kept = os.environ.get("HEADRACE_SERVERS_SCRATCH")
    directory = Path(tempfile.mkdtemp(prefix=f"headrace-{name}-", dir=kept))
    if not kept:
        # Before the server is: what is registered last runs first, so the server has ended.
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory / "log"


class ServerProcess:
    """A server that can be killed, stopped for a while, and started again on the same port."""

    ready_s = READY_S
    """How long a start may take."""

    def __init__(
        self, name: str, command: Sequence[str | Path], port: int, log: Path, **more: str
    ) -> None:
        self.name = name
        self.port = port
        self._command = [str(word) for word in command]
        self._environment = {**os.environ, **more}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
                preexec_fn=_die_with_the_tests if sys.platform == "linux" else None,
            )
        until = time.monotonic() + self.ready_s
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                said = self._log.read_text(errors="replace")[-500:]
                self.kill()
                raise CannotHave(f"{self.name} does not start: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kills it, as a power loss would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def hang(self) -> None:
        """Lets it hang: connections are accepted, and never answered."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def settle(self) -> None:
        """Waits until it has ended what it does in the background, for half a minute at most."""
        import psutil  # only benchmarks have it

        if self._process is None:
            return
        until = time.monotonic() + SETTLE_S
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            while time.monotonic() < until:
                before = sum(process.cpu_times()[:2])
                time.sleep(LOOK_S)
                if sum(process.cpu_times()[:2]) - before <= IDLE_SHARE * LOOK_S:
                    return

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class JvmProcess(ServerProcess):
    """A JVM that has much to do before it listens."""

    ready_s = JVM_READY_S


def _die_with_the_tests() -> None:
    """Asks the kernel to kill the server when the process of the tests ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
