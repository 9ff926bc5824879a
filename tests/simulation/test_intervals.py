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


EXECUTORS = "executors lost"


@pytest.fixture(scope="module")
def on_executors() -> list[Verdict]:
    """Schedules over an object store, where deltas lie on executors' own disks."""
    return [run_seed(seed, outer=(EXECUTORS,), face="objects") for seed in range(120)]


def test_every_promise_is_kept_where_deltas_lie_on_disks_of_executors(
    on_executors: list[Verdict],
) -> None:
    broken = [str(verdict) for verdict in on_executors if verdict.complaint is not None]
    assert not broken, "\n\n".join(broken[:3])


def test_executors_are_lost_swapped_and_full(on_executors: list[Verdict]) -> None:
    assert told(on_executors, "is lost with its disk") > 60
    assert told(on_executors, "run again") > 30
    assert told(on_executors, "the checkpoint of epoch") > 60
    for what in (
        "runs elsewhere",
        "gone to other executors without a warning",
        "gone to other executors, while nothing lies there",
        "is full",
        "the task that makes a fragment is lost",
        "nobody says which deltas are lost",
    ):
        assert told(on_executors, what) > 5, what
    assert [name for name in KEEPING if not told(on_executors, f"dies at {name}")] == []


def test_readers_see_one_committed_epoch_where_the_newest_is_on_disks_of_executors() -> None:
    around = (EXECUTORS, "reader from outside", "state copied", "requester")
    found = [run_seed(seed, outer=around, face="objects") for seed in range(60)]
    assert [str(verdict) for verdict in found if verdict.complaint is not None] == []
    assert told(found, "has a backup of epoch") > 5
    assert told(found, "has read the state of") > 3


def test_unlogged_dice_stop_the_run_there_too() -> None:
    found = [run_seed(seed, "dice", (EXECUTORS,), "objects") for seed in range(30)]
    assert [str(verdict) for verdict in found if verdict.complaint is not None] == []
    assert told(found, "stops: NondeterministicCode") > 2
