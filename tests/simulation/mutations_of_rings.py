"""Deliberate bugs in rings that change while a pipeline runs: clauses of section J taken out.

Most replace a piece of one function's source, as the schedules of `tests/property/rings` do; here
drivers, tasks, caches and merges run around them as they do in a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from tests.property.rings.mutations import MUTATIONS as RULES
from tests.property.rings.mutations import Mutation, applied

from headrace.engine.driver.driver import Driver
from headrace.engine.history import rings as driver_rings
from headrace.engine.upkeep import compactor
from headrace.engine.upkeep.compactor import Compactor
from headrace.plan.decisions import next_step
from headrace.plan.rings import changes
from headrace.plan.rings.chains import last_chain, next_chain, only_chain
from headrace.plan.rings.changes import RingChange, change_ring
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.rings.refs import RingRef, RingStep
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.towards import moves_towards, net_moves
from headrace.plan.rings.wanted import Move

__all__ = [
    "caches_keep_cells_that_have_left",
    "caches_overlook_lost_deletions",
    "chains_of_all_slots_begin_again",
    "classes_are_joined_too_early",
    "classes_move_as_one",
    "feedback_goes_to_former_owners_only",
    "feedback_is_taken_by_all_who_read_it",
    "merges_are_adopted_blindly",
    "merges_read_what_does_not_count",
    "merges_serve_own_classes_only",
    "moves_are_not_net",
    "moves_carry_no_shards",
    "numbers_that_are_free_begin_as_before",
    "own_segments_count_in_what_came_later",
    "pieces_of_any_ownership_serve",
    "plans_come_before_their_ring_objects",
    "voided_rings_stay",
]

MOVING = "moving"
"""The workload whose rings move all the time."""


def own_segments_count_in_what_came_later() -> AbstractContextManager[Any]:
    """J2: a slot's own segment counts in intervals that came to the slot later."""
    return applied(RULES["no since"])


def classes_move_as_one() -> AbstractContextManager[Any]:
    """J3: two classes of a slot become one when they move."""
    return applied(RULES["classes move as one"])


def classes_are_joined_too_early() -> AbstractContextManager[Any]:
    """J4: classes are joined though entries make a difference between them."""
    return applied(RULES["join any"])


def merges_read_what_does_not_count() -> AbstractContextManager[Any]:
    """J5: a merge reads segments in classes where they do not count."""
    return applied(RULES["no clip"])


@contextmanager
def merges_that_wait() -> Iterator[None]:
    """No bug: every second merge waits for two epochs, in which its slot may begin another."""
    begin, turns = Compactor.begin, count()
    waiting: list[tuple[Compactor, Any, Any, int]] = []

    def later(self: Compactor, plan: Any, slots: Any) -> None:
        known = [merge for _, _, merge, _ in waiting]
        for place, merge in list(self._merges.items()):
            if not merge.target and next(turns) % 2:
                waiting.append((self, place, self._merges.pop(place), plan.epoch + 2))
        for each in [each for each in waiting if each[0] is self and each[2] in known]:
            _, place, merge, until = each
            if until <= plan.epoch and place not in self._merges:
                self._merges[place] = merge
                waiting.remove(each)
        begin(self, plan, slots)

    with patch.object(Compactor, "begin", later):
        yield


@contextmanager
def merges_are_adopted_blindly() -> Iterator[None]:
    """J5: a merge that has waited is adopted, though another has replaced its segments since."""
    with merges_that_wait(), patch.object(compactor, "adopts", lambda run, slot: True):
        yield


def merges_serve_own_classes_only() -> AbstractContextManager[Any]:
    """J5: a result does not count in the classes that had inherited what it has."""
    return applied(RULES["result own only"])


def caches_keep_cells_that_have_left() -> AbstractContextManager[Any]:
    """J6: cells of keys that have left stay in the cache."""
    return applied(RULES["cache keeps all"])


def caches_overlook_lost_deletions() -> AbstractContextManager[Any]:
    """J6, C4: a cache catches up from segments whose deletions were dropped."""
    return applied(RULES["lost deletions"])


def pieces_of_any_ownership_serve() -> AbstractContextManager[Any]:
    """J7: a piece of an older ownership is used, or one that has missed deletions."""
    return applied(RULES["any piece"])


def feedback_goes_to_former_owners_only() -> AbstractContextManager[Any]:
    """J9: a file is not given to the slots that its keys have moved to."""
    return applied(RULES["outbox to old slots"])


def feedback_is_taken_by_all_who_read_it() -> AbstractContextManager[Any]:
    """J9: a slot takes rows of a file that it does not own."""
    return applied(RULES["outbox unfiltered"])


def moves_carry_no_shards() -> AbstractContextManager[Any]:
    """J12: a commit that changes a ring does not carry the shards that it touches."""
    return applied(RULES["moves without shards"])


def numbers_that_are_free_begin_as_before() -> AbstractContextManager[Any]:
    """J10: a slot that takes a free number has the first chain of the slot that had it before."""
    old = "chains = with_chain(state.chains, epoch - 1, digest.hexdigest(), chains_kept)"
    new = f"{old}\n    chains = chains if before else only_chain(epoch - 1, f'slot-{{slot}}')"
    return applied(Mutation("", changes, "_changed", old, new))


def chains_of_all_slots_begin_again() -> AbstractContextManager[Any]:
    """J6: a ring change ends the chains of all slots, so that no cache stays warm."""

    def begun(state: SlotLedger, version: int, epoch: int) -> SlotLedger:
        chain = next_chain(last_chain(state.chains), f"ring {version}")
        return msgspec.structs.replace(state, chains=only_chain(epoch - 1, chain))

    def changed(
        ref: RingRef, ring: Ring, slots: Mapping[int, SlotLedger], moves: Any, epoch: int, kept: int
    ) -> RingChange:
        found = change_ring(ref, ring, slots, moves, epoch, kept)
        after = {**slots, **found.slots}
        version = ref.version + 1
        every = {s: t and begun(t, version, epoch) for s, t in after.items()}
        return found._replace(slots=every)

    return patch.object(driver_rings, "change_ring", changed)


@contextmanager
def moves_are_not_net() -> Iterator[None]:
    """J1: moves of a plan are carried out one after another: what moves twice comes from a slot
    that never ran it."""
    wanted_as: dict[Any, Sequence[Move]] = {}

    def towards(ring: Ring, wanted: Any, *given: Any) -> Any:
        net = moves_towards(ring, wanted, *given)
        if wanted.moves:
            wanted_as[net] = wanted.moves
        return net

    def one_by_one(
        ref: RingRef, ring: Ring, slots: Mapping[int, SlotLedger], moves: Any, epoch: int, kept: int
    ) -> RingChange:
        now, at, known = ring, ref, dict(slots)
        touched: dict[int, SlotLedger | None] = {}
        came: dict[int, tuple[Any, ...]] = {}
        for each in wanted_as.get(moves, moves):
            net = net_moves(now, [each])
            if net:
                last = change_ring(at, now, known, net, epoch, kept)
                touched.update(last.slots)
                known = {s: t for s, t in {**known, **last.slots}.items() if t is not None}
                for slot, classes in last.came.items():
                    came[slot] = (*came.get(slot, ()), *classes)
                at, now = at.then(last.step), last.ring
        whole, goes = ring.cut(moves)
        classes = now.classes[np.searchsorted(now.lows, whole.lows, side="right") - 1]
        rows = zip(goes, whole.owners, whole.classes, classes, strict=True)
        pairs = {(int(to), int(old), int(new)) for to, own, old, new in rows if to != own}
        if len({(to, old) for to, old, _ in pairs}) < len(pairs):
            return change_ring(ref, ring, slots, moves, epoch, kept)  # a step cannot say it
        step = RingStep(tuple(moves), tuple(sorted(pairs)))
        return RingChange(step, step.apply(ring), touched, came)

    with (
        patch.object(next_step, "moves_towards", towards),
        patch.object(driver_rings, "change_ring", one_by_one),
    ):
        yield


def voided_rings_stay() -> AbstractContextManager[Any]:
    """J1: the ring of a plan that was voided is the ring of the next one."""
    void = Driver._void

    def keeping(self: Driver, plan: Any, *given: Any) -> None:
        turned = dict(self._rings.changes(plan))
        void(self, plan, *given)
        for name, change in turned.items():
            base = plan.ring_bases.get(name)
            self.ledger.rings[name] = self.ledger.rings[name].then(change.step, base)
            for slot, state in change.slots.items():
                self.ledger.manifests._set(name, slot, state)

    return patch.object(Driver, "_void", keeping)


def plans_come_before_their_ring_objects() -> AbstractContextManager[Any]:
    """J1: a ring object is written after the plan that names it."""
    write, waiting = driver_rings.write_named, list[tuple[Any, str, bytes]]()

    def later(store: Any, name: str, data: bytes) -> None:
        waiting.append((store, name, data))

    order = Driver.work_order

    def written(self: Driver, plan: Any) -> Any:
        for store, name, data in [each for each in waiting if each[0] is self.store]:
            waiting.remove((store, name, data))
            write(store, name, data)
        return order(self, plan)

    stack = ExitStack()
    stack.enter_context(patch.object(driver_rings, "write_named", later))
    stack.enter_context(patch.object(Driver, "work_order", written))
    return stack
