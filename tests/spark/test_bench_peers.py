"""Peers of the benchmarks give the right results: both forms of `transformWithState`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.support import environment

from headrace.bench.frame.system import (
    NEXMARK_TWS,
    NEXMARK_TWS_PANDAS,
    WINDOWS_TWS,
    WINDOWS_TWS_ROW,
)

pytestmark = pytest.mark.spark

WINDOWS = (WINDOWS_TWS, WINDOWS_TWS_ROW)
NEXMARK = (NEXMARK_TWS, NEXMARK_TWS_PANDAS)


@pytest.mark.parametrize(
    ("query", "systems"),
    [("windowed-count", WINDOWS), ("q3", NEXMARK), ("q8", NEXMARK), ("q11", NEXMARK)],
)
def test_user_code_in_structured_streaming_is_right(
    tmp_path: Path, query: str, systems: tuple[str, ...]
):
    program = [sys.executable, "-m", "tests.spark.programs.bench_peers", str(tmp_path)]
    done = subprocess.run(
        [*program, query, *systems],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("rows") > 100
    assert found == {system: [2, []] for system in systems}
