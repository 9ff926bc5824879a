"""A slot may carry over what it does not manage: keys keep their order, nothing becomes late."""

import pytest
from tests.property.limits.mutations import MUTATIONS
from tests.property.limits.schedules import KINDS, Schedule, complaint

SEEDS = 30
MUTATION_SEEDS = 200


@pytest.mark.parametrize("kind", KINDS)
def test_limits_at_random_break_no_promise(kind: str) -> None:
    carried = 0
    for seed in range(SEEDS):
        schedule = Schedule(seed, kind)
        schedule.run()
        schedule.driver.close()
        carried += schedule.carried
    assert carried > 10 * SEEDS


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_deliberate_bug_is_found(mutation: str) -> None:
    for seed in range(MUTATION_SEEDS):
        with MUTATIONS[mutation]():
            found = complaint(seed, "records")
        if found is not None:
            assert "TypeError" not in found and complaint(seed, "records") is None
            return
    pytest.fail(f"{MUTATIONS[mutation].__doc__} No seed found it.")


@pytest.mark.parametrize("mutation", ["no_hold", "no_cap"])
def test_tables_need_the_same_rules(mutation: str) -> None:
    for seed in range(MUTATION_SEEDS):
        with MUTATIONS[mutation]():
            if complaint(seed, "tables") is not None:
                return
    pytest.fail(f"{MUTATIONS[mutation].__doc__} No seed found it.")
