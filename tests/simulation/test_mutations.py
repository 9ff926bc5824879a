"""The checkers can fail: each deliberate bug is found within 500 seeds.

`FOUND_BY` remembers which seed found each; that seed is tried first, with the bug and without it.
Where it no longer finds it, as the workloads have changed, all are searched. With
HEADRACE_ALL_MUTATIONS=1 the search always begins at seed 0.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from tests.simulation import mutations_of_objects
from tests.simulation.mutations import MUTATIONS, ONLY
from tests.simulation.mutations_of_runs import NEEDS

from headrace.testing.simulator.faults.kinds import DISK, OBJECTS
from headrace.testing.simulator.runner import run_seed

SEEDS_MAX = 500
FOUND_BY: dict[str, int] = {
    "answers_are_used_before_they_are_logged": 63,
    "calls_are_named_by_the_plan": 10,
    "checkpoints_are_made_anew": 24,
    "claims_overwrite": 80,
    "closed_calls_are_looked_for_before_the_intent": 38,
    "closed_calls_are_not_looked_for": 3,
    "collection_forgets_pins": 87,
    "collection_trims_what_is_pinned": 87,
    "copies_show_rows_in_epochs_without_rows": 121,
    "delivery_is_not_repeated": 6,
    "digests_are_ignored": 307,
    "doubts_are_failures": 10,
    "dropped_attempts_stay_cached": 16,
    "entries_are_not_cut": 12,
    "epochs_appear_file_by_file": 4,
    "existing_answers_count_as_durable": 866,
    "failures_are_never_kept": 5,
    "failures_are_replayed_for_ever": 55,
    "fencing_is_ignored": 17,
    "files_are_not_synced": 4,
    "high_water_comes_first": 22,
    "high_water_is_overwritten": 12,
    "intents_are_everybodys": 285,
    "leaders_renew_once": 3,
    "logged_calls_go_before_they_are_closed": 49,
    "manifests_are_made_by_listing": 20,
    "manifests_come_before_their_commit": 6,
    "merged_records_forget": 3,
    "missing_blobs_are_overlooked": 70,
    "names_are_freed_before_they_are_written": 13,
    "old_leases_count": 51,
    "open_epochs_are_swept": 5,
    "outages_are_not_told": 11,
    "outages_void_plans": 26,
    "patience_does_not_grow": 11,
    "refused_rows_are_handed_over_again": 6,
    "resting_leaders_count_as_stuck": 3,
    "retries_have_fresh_nonces": 134,
    "sinks_that_went_ahead_are_not_noticed": 53,
    "skipped_records_are_not_counted": 33,
    "staging_is_swept_at_once": 61,
    "standbys_are_impatient": 5,
    "standbys_take_over_from_anybody": 20,
    "timers_hold_nothing": 3,
    "timers_stay_after_firing": 3,
    "the_log_is_trimmed_under_old_epochs": 12,
    "the_log_is_trimmed_under_segments": 12,
    "tombstones_always_go": 92,
    "torn_leases_end_standbys": 4,
    "trimmed_positions_look_free": 13,
    "uncertain_calls_are_repeated": 5,
    "undelivered_rows_are_not_told": 29,
    "unsettled_puts_are_left": 35,
    "voids_close_epochs": 80,
    "weak_rows_that_were_refused_are_let_go": 4,
    "weak_rows_that_were_refused_run_their_job_again": 4,
    "zombies_make_their_own_directory": 37,
}
"""Those that the first few seeds do not find."""
SEARCH_ALL = bool(os.environ.get("HEADRACE_ALL_MUTATIONS"))

pytestmark = pytest.mark.timeout(1200)


def workload_for(mutation: str) -> str | None:
    """Where only hooks that call can find it, other workloads would only take time."""
    is_of_calls = (MUTATIONS[mutation].__doc__ or "").startswith("E")
    return ONLY.get(mutation, "calls" if is_of_calls else None)


def face_for(mutation: str) -> str:
    """What the checkpoint lies on in the schedules that look for it."""
    return OBJECTS if mutation in mutations_of_objects.__all__ else DISK


def first_failing_seed(mutation: str) -> int | None:
    """The first seed that finds a mutation; it runs in a process of its own."""
    workload, known = workload_for(mutation), FOUND_BY.get(mutation)
    needs, face = NEEDS.get(mutation, ()), face_for(mutation)
    remembered = [] if known is None or SEARCH_ALL else [known]
    for seed in (*remembered, *range(SEEDS_MAX)):
        with MUTATIONS[mutation]():
            complaint = run_seed(seed, workload, needs, face).complaint
        if complaint is not None and "TypeError" in complaint:
            return None  # it no longer fits the engine, and is not the bug that it says
        # The bug is what broke the promise only if the seed keeps it otherwise.
        if complaint is not None and run_seed(seed, workload, needs, face).complaint is None:
            return seed
    return None


@pytest.fixture(scope="module")
def found() -> dict[str, int | None]:
    """Mutation -> the first seed that finds it."""
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        return dict(zip(MUTATIONS, pool.map(first_failing_seed, MUTATIONS), strict=True))


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_deliberate_bug_is_found(mutation: str, found: dict[str, int | None]) -> None:
    why = "No seed found it, or it no longer fits the engine"
    assert found[mutation] is not None, f"{MUTATIONS[mutation].__doc__} {why}"


def test_every_mutation_says_which_rule_it_breaks() -> None:
    assert all(mutation.__doc__ for mutation in MUTATIONS.values())
    assert len(MUTATIONS) >= 10
