"""A record means the same whoever stands beside it, however the input is cut.

Random fluent pipelines over records of mixed kinds. Each case runs in one epoch and one slot; cut
at random, in other slots, with crashes; and with some key's records alone. The rows and the dead
letters must be the same, and nothing may raise. A case that fails is made smaller and printed.

HEADRACE_MIXED_CASES says how many cases (`make chaos` runs 5,000), HEADRACE_MIXED_FIRST the seed of
the first.
"""

import os

import pytest
from tests.property.mixed.cases import check, draw
from tests.property.mixed.shrink import shrunk, told

CASES = int(os.environ.get("HEADRACE_MIXED_CASES", "300"))
FIRST = int(os.environ.get("HEADRACE_MIXED_FIRST", "0"))
CASES_PER_TEST = 20
SHOWN_MAX = 3
"""How many failures of one test are made smaller, which takes its time."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, CASES_PER_TEST))
def test_a_record_means_the_same_whoever_stands_beside_it(first: int) -> None:
    failed = []
    for seed in range(first, min(first + CASES_PER_TEST, FIRST + CASES)):
        case = draw(seed)
        print(f"seed {seed}")  # a test that hangs shows where
        failure = check(case)
        if failure is not None:
            failed.append((case, failure))
    told_of = [told(*shrunk(*one)) for one in failed[:SHOWN_MAX]]
    told_of += [f"seed {case.seed}: {failure.phase}" for case, failure in failed[SHOWN_MAX:]]
    if failed:
        pytest.fail("\n\n".join(told_of), pytrace=False)
