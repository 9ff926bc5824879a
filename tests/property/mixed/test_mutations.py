"""The comparison can fail: each deliberate bug is found within the cases that every run takes.

`FOUND_BY` remembers which seed found each; that one is tried first, with the bug and without it.
Where it no longer finds it, as the cases have changed, all are searched.
"""

import pytest
from tests.property.mixed.cases import check, draw, run
from tests.property.mixed.mutations import MUTATIONS, wide_integers_are_rounded
from tests.property.mixed.test_reference import drawn, rows_of, wanted

SEEDS_MAX = 300
FOUND_BY = {
    "old_values_are_cast": 45,
    "results_share_a_type": 45,
    "keys_share_a_type": 7,
    "truth_is_a_number": 115,
    "zeros_lose_their_sign": 112,
    "all_are_refused_with_one": 9,
    "forms_are_shared": 46,
    "rows_get_the_columns_of_others": 8,
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_deliberate_bug_is_found(mutation: str) -> None:
    for seed in (FOUND_BY[mutation], *range(SEEDS_MAX)):
        case = draw(seed)
        with MUTATIONS[mutation]():
            failure = check(case)
        # The bug is what made it fail only if it does not otherwise.
        if failure is not None and check(case) is None:
            return
    pytest.fail(f"{MUTATIONS[mutation].__doc__} No seed found it")


def test_a_bug_that_all_runs_share_is_found_by_the_reference() -> None:
    for seed in range(60):
        case = drawn(seed)
        with wide_integers_are_rounded():
            found = rows_of(run(case, list(case.items), calm=False))
        if found != wanted(case):
            return
    pytest.fail("integers of more than 64 bits were rounded, and nobody saw it")
