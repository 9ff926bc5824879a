"""The filter between a JVM's standard error and people."""

import subprocess
import sys

import pytest

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
