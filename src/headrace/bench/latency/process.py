"""A member's process, seen from outside: started once, and stopped (SIGSTOP) between its turns.

So two systems can take turns stage by stage, each warm and neither in the other's way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from headrace.bench.frame.rounds import child_environment, failure
from headrace.bench.frame.system import BYTEWAX
from headrace.bench.latency.arithmetic import VisibleEpoch
from headrace.bench.latency.members import ANSWER, Config
from headrace.bench.peers.foreign import bytewax_open
from headrace.bench.peers.foreign.environments import python_of
from headrace.bench.peers.foreign.system import foreign_environment
from headrace.errors import HeadraceError


def command_of(system: str) -> list[str]:
    """The program of a member; it gets the name of its settings' file."""
    if system == BYTEWAX:
        return [str(python_of(BYTEWAX)), str(bytewax_open.__file__)]
    return [sys.executable, "-m", "headrace.bench.latency.members"]


def environment_of(system: str) -> dict[str, str]:
    """What a member sees: a foreign peer nothing of this project."""
    return foreign_environment() if system == BYTEWAX else child_environment()


class MemberProcess:
    """A system that runs, or rests."""

    def __init__(self, config: Config) -> None:
        self.home = Path(config.home)
        (self.home / "in").mkdir(parents=True)
        (self.home / "out").mkdir()
        settings = self.home / "config.json"
        settings.write_bytes(msgspec.json.encode(config))
        self._name, self._log = config.system, self.home / "member.log"
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*command_of(config.system), str(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment_of(config.system),
                start_new_session=True,
                text=True,
            )
        if process.stdin is None or process.stdout is None:
            raise HeadraceError(f"{config.system} was started without pipes")
        self._process, self._in, self._out = process, process.stdin, process.stdout
        try:
            self._answer()
        except BaseException:
            self.kill()
            raise

    def rest(self) -> None:
        """Its JVM and its driver stand still until `wake`."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """It goes on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def settle(self, records: int) -> list[VisibleEpoch]:
        """Waits until so many records, in all, have visible results; the new epochs."""
        print(records, file=self._in, flush=True)
        return [VisibleEpoch(*step) for step in self._answer()]

    def end(self) -> None:
        """Lets it end by itself."""
        self.wake()
        self._in.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it at once, with its JVM."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _answer(self) -> list[tuple[int, int, float]]:
        for line in self._out:
            if line.startswith(ANSWER):
                found: list[tuple[int, int, float]] = json.loads(line[len(ANSWER) :])
                return found
        raise failure(f"{self._name} ended before its turn", self._log)
