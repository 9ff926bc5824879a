"""The seeds of the suite run once, over all cores; several tests look at what came of them."""

import os

import pytest

from headrace.testing.simulator.runner import Verdict, run_seeds

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "2000"))
MORE_SEEDS = (2116, 1950001603, 1950001906, 1950003420)
"""Seeds with rare schedules that the first ones happen not to have: among them a sink's store that
is unavailable after the checkpoint was, and an epoch that is planned again with other moves while
the clock stands."""


@pytest.fixture(scope="session")
def verdicts() -> list[Verdict]:
    return list(run_seeds([*range(SEEDS), *MORE_SEEDS], processes=os.cpu_count() or 1))
