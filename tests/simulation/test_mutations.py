"""The checkers can fail: each deliberate bug is found within 500 seeds."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from tests.simulation.mutations import MUTATIONS

from headrace.testing.simulator.runner import run_seed

SEEDS_MAX = 500

pytestmark = pytest.mark.timeout(1200)


def first_failing_seed(mutation: str) -> int | None:
    """The first seed that finds a mutation; it runs in a process of its own."""
    # Where only hooks that call can find it, other workloads would only take time.
    workload = "calls" if (MUTATIONS[mutation].__doc__ or "").startswith("E") else None
    with MUTATIONS[mutation]():
        seeds = range(SEEDS_MAX)
        return next((s for s in seeds if run_seed(s, workload).complaint is not None), None)


@pytest.fixture(scope="module")
def found() -> dict[str, int | None]:
    """Mutation -> the first seed that finds it."""
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        return dict(zip(MUTATIONS, pool.map(first_failing_seed, MUTATIONS), strict=True))


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_deliberate_bug_is_found(mutation: str, found: dict[str, int | None]) -> None:
    assert found[mutation] is not None, f"{MUTATIONS[mutation].__doc__} No seed found it"


def test_every_mutation_says_which_rule_it_breaks() -> None:
    assert all(mutation.__doc__ for mutation in MUTATIONS.values())
    assert len(MUTATIONS) >= 10
