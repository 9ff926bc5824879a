"""Deliberate bugs in what surrounds a driver: leases, standbys, patience, pins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.driver import driver as driver_module
from headrace.engine.driver import follower as follower_module
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.jobs import attempts
from headrace.engine.leading import lease, retry, standby
from headrace.engine.leading.lease import LeaseKeeper, LeaseObserver, Pulse
from headrace.engine.leading.retry import Retry
from headrace.engine.upkeep import collection
from headrace.engine.upkeep.pins import Pinned, pins_of
from headrace.errors import StoreError

__all__ = [
    "checkpoints_are_made_anew",
    "collection_forgets_pins",
    "collection_trims_what_is_pinned",
    "leaders_renew_once",
    "old_leases_count",
    "outages_are_not_told",
    "outages_void_plans",
    "patience_does_not_grow",
    "resting_leaders_count_as_stuck",
    "standbys_are_impatient",
    "standbys_collect_while_they_watch",
    "standbys_spin_where_they_cannot_begin",
    "standbys_take_over_from_anybody",
    "torn_leases_end_standbys",
]

STANDBY, LEASE, READER = "standby driver", "lease fails", "reader from outside"
NEEDS: dict[str, tuple[str, ...]] = {
    "existing_answers_count_as_durable": ("driver pauses", "power fails"),
    "collection_forgets_pins": (READER,),
    "collection_trims_what_is_pinned": (READER,),
    "high_water_is_overwritten": ("driver pauses", "rival driver"),
    "leaders_renew_once": (STANDBY,),
    "logged_calls_go_before_they_are_closed": ("driver dies", "driver pauses", "rival driver"),
    "old_leases_count": (STANDBY, LEASE),
    "outages_void_plans": ("store away",),
    "resting_leaders_count_as_stuck": (STANDBY, "sink away"),
    "standbys_are_impatient": (STANDBY,),
    "standbys_spin_where_they_cannot_begin": (STANDBY, "sink away"),
    "standbys_take_over_from_anybody": (STANDBY,),
    "torn_leases_end_standbys": (STANDBY, LEASE),
    "weak_rows_that_were_refused_run_their_job_again": ("sink away",),
}
"""Mutation -> kinds without which no schedule can find it; others would only take time."""


def standbys_are_impatient() -> AbstractContextManager[Any]:
    """Leases: a standby waits for half of what the lease says."""
    look = LeaseObserver.look

    def hasty(self: LeaseObserver, generation: int, found: Any, now: float) -> Any:
        if found is not None:
            found = msgspec.structs.replace(found, length_s=found.length_s / 2)
        return look(self, generation, found, now)

    return patch.object(LeaseObserver, "look", hasty)


def old_leases_count() -> AbstractContextManager[Any]:
    """Leases: what the lease of an older generation says is believed."""
    look = LeaseObserver.look

    def gullible(self: LeaseObserver, generation: int, found: Any, now: float) -> Any:
        return look(self, found.generation if found else generation, found, now)

    return patch.object(LeaseObserver, "look", gullible)


def torn_leases_end_standbys() -> AbstractContextManager[Any]:
    """Leases: a file that cannot be read counts as the last word of a leader that is done."""
    read = lease.read_lease

    def hopeful(store: Any) -> Any:
        found = read(store)
        return found or lease.Lease(2**40, 0, 1.0, state=lease.DONE, reason="end")

    return patch.object(standby, "read_lease", hopeful)


def standbys_take_over_from_anybody() -> AbstractContextManager[Any]:
    """Leases: of two standbys the second takes over from the first, which has just begun."""
    take_over = Follower.take_over

    def careless(self: Follower, lapsed: int | None = None, **rest: Any) -> Driver:
        return take_over(self, None if lapsed is None else 2**40, **rest)

    return patch.object(Follower, "take_over", careless)


def standbys_collect_while_they_watch() -> AbstractContextManager[Any]:
    """A4: a standby tidies up before its generation is in the log."""
    follow = Follower.follow

    def tidy(self: Follower) -> int:
        generation = follow(self)
        if self.driver is None:
            for name in self.store.list("work"):
                self.store.delete(f"work/{name}")
            self.store.write("work/left", b"")
            self.store.delete("work/left")
        return generation

    return patch.object(Follower, "follow", tidy)


def leaders_renew_once() -> AbstractContextManager[Any]:
    """Leases: a leader that is well lets its lease lapse."""
    renew = LeaseKeeper._renew

    def lazy(self: LeaseKeeper, state: str, reason: str) -> bool:
        return renew(self, state, reason) if self._lease.count < 2 or reason else True

    return patch.object(LeaseKeeper, "_renew", lazy)


def resting_leaders_count_as_stuck() -> AbstractContextManager[Any]:
    """Leases: a leader that waits for a sink is taken for one that hangs."""
    return patch.object(Pulse, "rest", lambda self, waits: self.beat())


def standbys_spin_where_they_cannot_begin() -> AbstractContextManager[Any]:
    """Leases: a standby whose sink is away takes over again and again."""
    wait = Retry.wait

    def restless(self: Retry, error: Exception) -> None:
        if self._check.__self__._leads:  # type: ignore[attr-defined]
            wait(self, error)

    return patch.object(Retry, "wait", restless)


def outages_are_not_told() -> AbstractContextManager[Any]:
    """Patience: a run waits and says nothing."""
    return patch.object(Retry, "_announce", lambda self, error: None)


def patience_does_not_grow() -> AbstractContextManager[Any]:
    """Patience: what is away is tried ten times a second, for as long as it takes."""
    return patch.object(retry, "delay_s", lambda tries, chance, limits: 0.1)


def outages_void_plans() -> AbstractContextManager[Any]:
    """Patience: an outage that a job met gives up its plan."""

    def harsh(self: Driver, plan: Any, error: Any) -> None:
        self._void(plan, str(error))

    return patch.object(Driver, "_give_up", harsh)


@contextmanager
def checkpoints_are_made_anew() -> Iterator[None]:
    """Patience: where the checkpoint was mounted a new one is begun."""
    require = driver_module.require_present

    def helpful(store: Any, checkpoint: str) -> None:
        try:
            require(store, checkpoint)
        except StoreError:
            store._was_present = False
            store.make_directory("log")
            raise

    with (
        patch.object(attempts, "require_present", helpful),
        patch.object(driver_module, "require_present", helpful),
        patch.object(follower_module, "require_present", helpful),
    ):
        yield


def collection_forgets_pins() -> AbstractContextManager[Any]:
    """C8: what a reader has pinned is collected."""
    return patch.object(collection, "pins_of", lambda store: Pinned())


def collection_trims_what_is_pinned() -> AbstractContextManager[Any]:
    """C8: entries of the log are trimmed though a reader has pinned them."""

    def half(store: Any) -> Pinned:
        return msgspec.structs.replace(pins_of(store), log_from=None)

    return patch.object(collection, "pins_of", half)
