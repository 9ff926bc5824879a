"""Runs the last epochs again with new code, before it takes over (L2).

They run in this process, over an overlay: nothing is written, and outside systems are not called.
Their results may differ from what was committed; that is what new code is for. What counts is that
no hook fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.causal.journal import is_closed
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import run_epoch
from headrace.engine.history.epoch_at import Past, kept_epochs, past_epoch
from headrace.engine.replay.replay import one_at_a_time, readable_sources, work_order
from headrace.errors import IncompatibleState, UserCodeError, by_name
from headrace.log import paths
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import InjectorPlan
from headrace.plan.rings.refs import EVEN
from headrace.plan.state.choice import refuse_without_history
from headrace.state.cache import WorkerCache
from headrace.store.overlay import Overlay
from headrace.worker.runtime import Runtime

_OF_USERS = ("UserCodeError", "InvalidRecord", "IncompatibleState")
"""Errors of a unit of work that the new code is to blame for."""


def try_epochs(follower: Follower, former: Mapping[str, str], count: int) -> Iterator[str]:
    """Runs up to `count` epochs; says what was tried. Raises the first error of the new code.

    `former` maps a computation's name to the one under which its state lies.
    """
    topology, store = one_at_a_time(follower.topology), follower.store
    tried = []
    why = "none is kept"
    for epoch in kept_epochs(store)[-count:] if count else []:
        try:
            past = past_epoch(store, epoch)
            refuse_without_history(past.ledger, "a trial of past epochs")
            past = _adapted(past, topology, former)
            overlay = Overlay(store)
            missing = overlay.keep_open(sorted(_files(past, follower)))
        except IncompatibleState as error:
            why = str(error)
            continue
        if missing or _answers_are_closed(past, follower):
            why = "their files are not kept any more"
            continue
        with readable_sources(topology, store, prepared=False):
            order = work_order(overlay, follower.checkpoint, past)
            reports = run_epoch(Runtime(topology, overlay, WorkerCache()), order)
        failed = next((report for report in reports if report.error is not None), None)
        if failed is None:
            tried.append(epoch)
        elif failed.error in _OF_USERS:
            raise UserCodeError(
                f"the new code fails in epoch {epoch}, which has run before, {failed.label}: "
                f"{failed.message}"
            )
        else:  # what the epoch read is not there any more, or a call has no logged answer
            why = str(by_name(failed.error or "")(failed.message))
    if tried:
        yield f"the new code has run epochs {', '.join(map(str, tried))} again"
    else:
        yield f"no epoch could be run again: {why}"


def _files(past: Past, follower: Follower) -> set[str]:
    limits = follower.store.system.limits
    return past.files() | {paths.log_entry(position, limits) for position in past.positions()}


def _answers_are_closed(past: Past, follower: Follower) -> bool:
    named = past.plan.determinants
    return bool(named) and is_closed(follower.store, paths.determinants_directory(named))


def _adapted(past: Past, topology: Topology, former: Mapping[str, str]) -> Past:
    """The epoch as a plan for the new code; a computation that took no part in it has no state."""
    ledger, plan = past.ledger, past.plan
    rings, moves, bases = dict(plan.rings), dict(plan.moves), dict(plan.ring_bases)
    for name, old in former.items():
        ledger.rename(old, name)
        mappings: list[dict[str, Any]] = [rings, moves, bases]
        for mapping in mappings:
            if old in mapping:
                mapping[name] = mapping.pop(old)
    for name in topology.keyed.keys() - rings.keys():
        rings[name], bases[name] = 0, f"{EVEN}1"
    streams = topology.graph.injectors
    reads = [[read for read in task if read.stream in streams] for task in plan.reads]
    injectors = {
        name: plan.injectors.get(name, InjectorPlan({}, ledger.newest_of(name))) for name in streams
    }
    outbox = {name: files for name, files in ledger.outbox.items() if name in topology.keyed}
    ledger.outbox = outbox
    adapted = msgspec.structs.replace(
        plan, rings=rings, moves=moves, ring_bases=bases, reads=reads, injectors=injectors
    )
    return msgspec.structs.replace(past, plan=adapted)
