"""The seeds of the suite run once, over all cores; several tests look at what came of them."""

import os

import pytest

from headrace.testing.simulator.runner import Verdict, run_seeds

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "1000"))
MORE_SEEDS = (
    1022,
    1156,
    2116,
    1950001603,
    1950001906,
    1950003420,
    2100011005,
    2100018116,
    2200001101,
    2400000237,
    2406,
    3271,
    2600003783,
    2600006604,
    2700000873,
    2800006671,
    3000013589,
    3000001861,
    3000016751,
    3100000916,
    3100004611,
    3200000805,
    3200006535,
    3300017549,
    3300017679,
    3400001595,
    3400002091,
    4200001448,
)
"""Seeds with rare schedules that the first ones happen not to have: among them drivers that die
after they wrote a ring, or before they mark a directory of the log as trimmed, a sink's store that
is unavailable after the checkpoint was, and an epoch that is planned again with other moves while
the clock stands, readers of epochs whose base was torn by a power loss, a state store that is put
back to an older copy right after it was brought up to date, or after all drivers have ended, a
rescale in the first epoch after a deploy was taken back, and a backup that begins before the first
epoch with a state store, verifications during which an epoch is committed, or the checkpoint is
away for a moment, a driver that sleeps before it marks calls as closed, one that dies after it
purged a state store, and a leader whose loop gets no turn for so long that it seems to be stuck."""


@pytest.fixture(scope="session")
def verdicts() -> list[Verdict]:
    return list(run_seeds([*range(SEEDS), *MORE_SEEDS], processes=os.cpu_count() or 1))
