"""Failpoints: the list is what the code reaches, and arming one works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import failpoints

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


def test_each_name_is_reached_somewhere_and_no_other_is() -> None:
    text = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    reached = set(re.findall(r"\breach\(\s*\"([^\"]+)\"\s*\)", text))
    assert reached == set(failpoints.NAMES)
    assert len(failpoints.NAMES) == len(set(failpoints.NAMES))


def test_an_armed_name_acts_each_time_until_it_is_disarmed() -> None:
    met = []
    failpoints.arm("before-job", lambda: met.append(1))
    failpoints.reach("before-job")
    failpoints.reach("after-job")
    failpoints.reach("before-job")
    failpoints.disarm("before-job")
    failpoints.reach("before-job")
    assert met == [1, 1]


def test_an_unknown_name_cannot_be_armed() -> None:
    with pytest.raises(ValueError, match="unknown failpoint 'nowhere'"):
        failpoints.arm("nowhere", lambda: None)


def test_the_environment_kills_a_process_at_the_nth_arrival() -> None:
    program = (
        "from headrace import failpoints as f\n"
        "f.arm_from_environment()\n"
        "for n in range(5):\n"
        "    print(n, flush=True)\n"
        "    f.reach('before-job')\n"
    )
    environment = {**os.environ, "HEADRACE_FAILPOINT": "before-job:3", "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 137
    assert done.stdout.split() == ["0", "1", "2"]
