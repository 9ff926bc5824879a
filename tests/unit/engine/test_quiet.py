"""The filter between a JVM's standard error and people."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.spark.jvm_noise import NoFarewell

NOISE = "WARNING: Using incubator modules: jdk.incubator.vector"

# In a process of its own, because it moves file descriptor 2.
PROGRAM = """
import subprocess, sys, time
from headrace.engine.spark.jvm_noise import filtered_stderr

child = "import sys; print({noise!r}, file=sys.stderr); print('early', file=sys.stderr, flush=True)"
later = "; sys.stdin.read(); print({noise!r} + ' later', file=sys.stderr)"
try:
    with filtered_stderr() as start_up:
        process = subprocess.Popen([sys.executable, "-c", child + later], stdin=subprocess.PIPE)
        while not start_up.lines:
            time.sleep(0.01)
        if {fails}:
            process.communicate()
            raise ValueError
except ValueError:
    print("said", start_up.lines)
else:
    process.communicate()
    time.sleep(0.5)
    print("own words", file=sys.stderr)
"""


def run(fails: bool) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(noise=NOISE, fails=fails)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )


@pytest.mark.slow
def test_noise_of_the_start_is_dropped_and_everything_later_comes_through() -> None:
    answer = run(fails=False)
    assert answer.stderr.splitlines() == ["early", f"{NOISE} later", "own words"]


@pytest.mark.slow
def test_a_start_that_fails_leaves_its_words_to_the_caller() -> None:
    answer = run(fails=True)
    assert answer.stdout == "said ['early']\n"
    assert answer.stderr == ""


class Server:
    """Tells of every error, as the one to which the JVM sends its counters does."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def handle_error(self, request: Any, address: Any) -> None:
        self.told.append(type(sys.exception()).__name__)

    def fail(self, error: Exception) -> None:
        try:
            raise error
        except Exception:
            self.handle_error(None, None)


@pytest.mark.parametrize("status", [None, -9])
def test_a_connection_that_a_dying_jvm_ends_or_breaks_is_not_told_at_length(
    status: int | None,
) -> None:
    """Nor after the run, if the JVM is dead: the thread that reads may be behind."""
    server, jvm = Server(), SimpleNamespace(poll=lambda: status)
    context = SimpleNamespace(_accumulatorServer=server, _gateway=SimpleNamespace(proc=jvm))
    quiet = NoFarewell(context)
    for error in (EOFError(), ConnectionResetError(), ValueError()):
        server.fail(error)
    assert server.told == ["ValueError"]
    quiet.end()
    server.fail(EOFError())
    assert server.told == ["ValueError"] + ["EOFError"] * (status is None)
