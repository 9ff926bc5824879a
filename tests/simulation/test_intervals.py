"""Schedules with checkpoint intervals: what was only written vanishes, and every promise holds (M).

The schedules of the suite have this kind of fault now and then; these have it always.
"""

import pytest

from headrace import failpoints
from headrace.testing.simulator.runner import Verdict, run_seed

pytestmark = pytest.mark.timeout(1200)

LOST = "written state lost"
KEEPING = (
    "after-fragment-write",
    "before-checkpoint-write",
    "after-checkpoint-write",
    "before-repair",
)


@pytest.fixture(scope="module")
def schedules() -> list[Verdict]:
    return [run_seed(seed, outer=(LOST,), face="disk") for seed in range(60)]


def told(schedules: list[Verdict], what: str) -> int:
    """In how many schedules this happened."""
    return sum(any(what in line for line in verdict.trace) for verdict in schedules)


def test_every_promise_is_kept(schedules: list[Verdict]) -> None:
    broken = [str(verdict) for verdict in schedules if verdict.complaint is not None]
    assert not broken, "\n\n".join(broken[:3])


def test_state_is_lost_torn_and_made_again(schedules: list[Verdict]) -> None:
    assert told(schedules, "executors are lost with their disks") > 40
    assert told(schedules, "the power fails") > 5
    assert told(schedules, "the checkpoint of epoch") > 30


def test_drivers_die_in_checkpoints_and_repairs(schedules: list[Verdict]) -> None:
    assert set(KEEPING) <= set(failpoints.NAMES)
    assert [name for name in KEEPING if not told(schedules, f"dies at {name}")] == []


def test_unlogged_dice_stop_the_run() -> None:
    found = [run_seed(seed, "dice", (LOST,), "disk") for seed in range(12)]
    assert [str(verdict) for verdict in found if verdict.complaint is not None] == []
    assert told(found, "stops: NondeterministicCode") > 2
