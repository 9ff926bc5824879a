"""The checkers can fail: each deliberate bug is found.

`FOUND_BY` remembers which seed found each; that seed is tried first, with the bug and without it.
Where it no longer finds it, as the workloads have changed, the first 500 are searched. With
HEADRACE_ALL_MUTATIONS=1 the search always begins at seed 0.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from tests.simulation import (
    mutations_of_control,
    mutations_of_intervals,
    mutations_of_load,
    mutations_of_objects,
    mutations_of_rings,
    mutations_of_runs,
)
from tests.simulation.mutations import MUTATIONS, ONLY

from headrace.testing.simulator.faults.kinds import DISK, OBJECTS
from headrace.testing.simulator.runner import run_seed

NEEDS = {
    **mutations_of_runs.NEEDS,
    **mutations_of_control.NEEDS,
    **mutations_of_load.NEEDS,
    **mutations_of_intervals.NEEDS,
}
SEEDS_MAX = 500
FOUND_BY: dict[str, int] = {
    "a_guard_does_not_look_again": 111,
    "a_second_probation_begins": 43,
    "a_standby_of_any_code_takes_over": 16,
    "answers_are_used_before_they_are_logged": 388,
    "answers_come_before_their_entry": 9,
    "averages_live_in_the_leader": 122,
    "caches_do_not_catch_up": 3,
    "caches_overlook_lost_deletions": 5,
    "calls_are_named_by_the_plan": 6,
    "calls_have_no_intents": 26,
    "cap_per_slot": 1,
    "cascades_end_with_their_leader": 46,
    "cells_are_compared_and_then_written": 56,
    "cells_are_deleted_without_a_trace": 74,
    "cells_are_written_without_a_look": 11,
    "cells_that_the_old_code_cannot_read_count_as_forward": 10,
    "chains_of_all_slots_begin_again": 1,
    "checkpoints_are_made_anew": 24,
    "claims_and_marks_name_no_commit": 11,
    "claims_overwrite": 29,
    "classes_are_joined_too_early": 18,
    "clocks_in_tasks_decide": 29,
    "closed_calls_are_looked_for_before_the_intent": 11,
    "closed_calls_are_not_looked_for": 4,
    "collection_forgets_pins": 184,
    "collection_trims_what_is_pinned": 299,
    "commands_have_no_ids": 9,
    "confirmations_stay_in_memory": 17,
    "copies_are_told_apart_by_numbers": 1,
    "copies_of_stores_lack_later_deltas": 9,
    "copies_show_rows_in_epochs_without_rows": 121,
    "damage_blocks_the_queue": 4,
    "delivery_is_not_repeated": 6,
    "deltas_are_found_by_slot_and_epoch": 971,
    "digests_are_ignored": 450,
    "doubts_are_failures": 10,
    "dropped_attempts_stay_cached": 1,
    "entries_are_not_cut": 12,
    "epoch_numbers_are_used_again": 10,
    "epochs_appear_file_by_file": 66,
    "equal_outputs_are_not_one": 1,
    "every_attempt_decides_what_rides": 1,
    "existing_answers_count_as_durable": 179,
    "expiry_is_judged_by_each_leader": 8,
    "failures_are_never_kept": 37,
    "failures_are_replayed_for_ever": 55,
    "feedback_goes_to_former_owners_only": 1,
    "fencing_is_ignored": 17,
    "files_are_not_synced": 4,
    "floors_follow_the_log": 392,
    "foreign_answers_are_believed": 9,
    "foreign_names_are_a_reason_to_move_on": 711,
    "fragments_lack_what_their_executor_has_not": 40,
    "held_deltas_go_before_their_checkpoint": 0,
    "held_rows_are_delivered": 16,
    "high_water_comes_first": 25,
    "high_water_is_overwritten": 31,
    "intents_are_everybodys": 424,
    "late_is_judged_too_late": 3,
    "leaders_renew_once": 3,
    "limits_are_not_in_the_plan": 114,
    "logged_calls_go_before_they_are_closed": 60,
    "manifests_are_made_by_listing": 501,
    "manifests_come_before_their_commit": 11,
    "marks_come_before_cells": 9,
    "marks_come_before_syncs": 0,
    "merged_records_forget": 16,
    "merges_are_adopted_blindly": 2,
    "merges_read_what_does_not_count": 7,
    "missing_blobs_are_overlooked": 96,
    "moves_are_not_net": 3,
    "moves_carry_no_shards": 8,
    "names_are_freed_before_they_are_written": 42,
    "names_are_not_synced": 4,
    "new_first": 3,
    "new_leaders_answer_only_what_they_decide": 1,
    "no_hold": 1,
    "numbers_that_are_free_begin_as_before": 4,
    "old_leases_count": 411,
    "open_epochs_are_swept": 5,
    "outages_are_not_told": 11,
    "outages_void_plans": 22,
    "own_segments_count_in_what_came_later": 45,
    "patience_does_not_grow": 11,
    "pauses_end_with_their_leader": 19,
    "pieces_of_any_ownership_serve": 50,
    "plans_come_before_their_ring_objects": 41,
    "readers_of_stores_ignore_floors": 1077,
    "readers_of_stores_ignore_stamps": 3,
    "refused_rows_are_handed_over_again": 11,
    "requests_are_a_heap": 4,
    "restarts_of_stores_are_overlooked": 32,
    "resting_leaders_count_as_stuck": 3,
    "retries_have_fresh_nonces": 71,
    "savepoints_keep_no_files": 26,
    "silence_means_expired": 13,
    "sinks_that_went_ahead_are_not_noticed": 53,
    "skipped_records_are_not_counted": 5,
    "sources_are_told_in_a_probation": 6,
    "staging_is_swept_at_once": 61,
    "standbys_are_impatient": 5,
    "standbys_go_on_from_a_stop": 11,
    "standbys_spin_where_they_cannot_begin": 3,
    "standbys_take_over_from_anybody": 20,
    "starts_go_on_from_a_stop_that_is_not_complete": 13,
    "stops_are_in_memory": 4,
    "stores_are_read_without_deltas": 5,
    "the_end_waits_for_nothing": 93,
    "the_log_is_trimmed_under_old_epochs": 24,
    "the_log_is_trimmed_under_segments": 22,
    "the_savepoint_is_not_kept": 30,
    "ties_fall_as_they_come": 2,
    "timers_hold_nothing": 3,
    "timers_stay_after_firing": 5,
    "tombstones_always_go": 131,
    "tombstones_go_without_a_floor": 79,
    "torn_leases_end_standbys": 4,
    "trimmed_entries_go_before_their_marker": 1,
    "trimmed_positions_look_free": 120,
    "unapplied_commits_leave_the_window": 9,
    "undelivered_rows_are_not_told": 11,
    "unsettled_puts_are_left": 35,
    "unsettled_requests_move_on": 20,
    "voided_rings_stay": 19,
    "voids_close_epochs": 3,
    "wanted_rings_are_decided_again": 3,
    "weak_rows_that_were_refused_are_let_go": 4,
    "weak_rows_that_were_refused_run_their_job_again": 4,
    "what_the_log_says_of_a_store_counts": 0,
    "zombies_make_their_own_directory": 108,
}
"""Those that the first few seeds do not find."""
MISFITS = ("AttributeError", "NameError", "TypeError")
"""Errors of a mutation that was written for other code than there is now."""
CRASHES = ("stopped: KeyError", "stopped: IndexError")
"""Ends of drivers that show a bug, and no promise that it breaks: another seed must show that."""
SEARCH_ALL = bool(os.environ.get("HEADRACE_ALL_MUTATIONS"))

pytestmark = pytest.mark.timeout(2400)


def workload_for(mutation: str) -> str | None:
    """Where only hooks that call can find it, other workloads would only take time."""
    is_of_calls = (MUTATIONS[mutation].__doc__ or "").startswith("E")
    return ONLY.get(mutation, "calls" if is_of_calls else None)


def face_for(mutation: str) -> str:
    """What the checkpoint lies on in the schedules that look for it."""
    on_objects = (*mutations_of_objects.__all__, *mutations_of_intervals.ON_EXECUTORS)
    return OBJECTS if mutation in on_objects else DISK


def first_failing_seed(mutation: str) -> int | None:
    """The first seed that finds a mutation; it runs in a process of its own."""
    workload, known = workload_for(mutation), FOUND_BY.get(mutation)
    needs, face = NEEDS.get(mutation, ()), face_for(mutation)
    remembered = [] if known is None or SEARCH_ALL else [known]
    for seed in (*remembered, *range(SEEDS_MAX)):
        with MUTATIONS[mutation]():
            complaint = run_seed(seed, workload, needs, face).complaint
        if complaint is not None and any(error in complaint for error in MISFITS):
            return None  # it no longer fits the engine, and is not the bug that it says
        if complaint is not None and any(crash in complaint for crash in CRASHES):
            continue
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


def test_merges_that_wait_are_refused_where_others_have_replaced_their_segments() -> None:
    """The schedule of `merges_are_adopted_blindly` breaks nothing where the rule is kept."""
    seed = FOUND_BY["merges_are_adopted_blindly"]
    for each in range(seed, seed + 3):
        with mutations_of_rings.merges_that_wait():
            assert run_seed(each, "moving", face=DISK).complaint is None


def test_every_mutation_says_which_rule_it_breaks() -> None:
    assert all(mutation.__doc__ for mutation in MUTATIONS.values())
    assert len(MUTATIONS) >= 10
