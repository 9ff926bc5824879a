"""Rings that change at random: every key keeps its state, wherever it goes (J1 to J9, J12)."""

from __future__ import annotations

import pytest
from tests.property.rings.mutations import MUTATIONS, applied
from tests.property.rings.schedules import Schedule, complaint

SEEDS = 25
MUTATION_SEEDS = 150


def test_ring_changes_at_random_break_no_promise() -> None:
    turned = adopted = opened = built = 0
    for seed in range(SEEDS):
        schedule = Schedule(seed)
        schedule.run()
        turned += schedule.turned
        adopted += schedule.adopted
        opened += sum(worker.slots_opened for worker in schedule.workers)
        built += sum(worker.slots_built for worker in schedule.workers)
    assert turned > 5 * SEEDS and adopted > 3 * SEEDS
    assert built < opened / 4, "slots whose records do not change open warm (J6)"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_left_out_is_missed(name: str) -> None:
    for seed in range(MUTATION_SEEDS):
        with applied(MUTATIONS[name]):
            found = complaint(seed)
        if found is not None:
            return
    pytest.fail(f"{MUTATIONS[name].why} No seed found it.")


def test_moves_that_are_not_net_are_missed() -> None:
    """J1: [A to B to C in one plan: C's class came from B, which never ran it.]"""
    for seed in range(MUTATION_SEEDS):
        if complaint(seed, net=False) is not None:
            return
    pytest.fail("no seed found it")
