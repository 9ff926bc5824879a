"""Deliberate bugs in what is known of load, and in what is decided from it (K)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.driver import elastic as elastic_module
from headrace.engine.history import recovery
from headrace.plan.elastic.figures import LoadState
from headrace.plan.elastic.meter import LoadMeter
from headrace.testing.simulator.faults.kinds import DRIVER_DIES, LOAD_MOVES
from headrace.worker.exchange.emitter import Emitter

__all__ = [
    "averages_live_in_the_leader",
    "cascades_end_with_their_leader",
    "decisions_follow_the_clock",
    "followers_do_not_fold_load",
    "slots_without_a_figure_count_as_idle",
    "times_are_part_of_the_output",
    "wanted_rings_are_decided_again",
]

NEEDS: dict[str, tuple[str, ...]] = {
    "averages_live_in_the_leader": (LOAD_MOVES.name, DRIVER_DIES.name),
    "cascades_end_with_their_leader": (LOAD_MOVES.name, DRIVER_DIES.name),
    "decisions_follow_the_clock": (LOAD_MOVES.name,),
    "followers_do_not_fold_load": (LOAD_MOVES.name, DRIVER_DIES.name),
    "slots_without_a_figure_count_as_idle": (LOAD_MOVES.name,),
    "wanted_rings_are_decided_again": (LOAD_MOVES.name,),
}
"""The faults without which a bug does no harm."""


def averages_live_in_the_leader() -> AbstractContextManager[Any]:
    """K4: what a leader decides follows from the reports of its own life."""
    report_of, rings_wanted = elastic_module.report_of, elastic_module.rings_wanted
    seen: dict[int, LoadState] = {}

    def remembers(meter: Any, ledger: Any, *rest: Any) -> Any:
        load = report_of(meter, ledger, *rest)
        own = seen.get(id(meter), LoadState())
        for name in ledger.rings:
            if not ledger.load.of.get(name) or not ledger.load.of[name].reports:
                own = own.without(name)
        seen[id(meter)] = seen[id(ledger)] = own.reported(load, ledger.rings)
        return load

    def decides(ledger: Any, *rest: Any) -> Any:
        return rings_wanted(msgspec.structs.replace(ledger, load=seen[id(ledger)]), *rest)

    return _both(
        patch.object(elastic_module, "report_of", remembers),
        patch.object(elastic_module, "rings_wanted", decides),
    )


def followers_do_not_fold_load() -> AbstractContextManager[Any]:
    """K3: only the leader that wrote a report keeps it."""
    return patch.object(recovery, "fold_report", lambda ledger, load, decided: None)


def cascades_end_with_their_leader() -> AbstractContextManager[Any]:
    """K4: how far a cascade has come is known to the leader alone."""
    fold_report = recovery.fold_report

    def forgetful(ledger: Any, load: Any, decided: Any) -> None:
        if decided is not None:
            decided = msgspec.structs.replace(decided, asked={})
        fold_report(ledger, load, decided)

    return patch.object(recovery, "fold_report", forgetful)


def decisions_follow_the_clock() -> AbstractContextManager[Any]:
    """K4: periods are those of the leader's own clock, and not of the plans in the log."""
    rings_wanted, turns = elastic_module.rings_wanted, count(1)

    def by_clock(ledger: Any, *rest: Any) -> Any:
        return rings_wanted(msgspec.structs.replace(ledger, wall=ledger.wall + next(turns)), *rest)

    return patch.object(elastic_module, "rings_wanted", by_clock)


def wanted_rings_are_decided_again() -> AbstractContextManager[Any]:
    """K5: a decision is taken again though its ring is wanted and not yet there."""
    rings_wanted = elastic_module.rings_wanted

    def again(ledger: Any, *rest: Any) -> Any:
        return rings_wanted(msgspec.structs.replace(ledger, wanted={}), *rest)

    return patch.object(elastic_module, "rings_wanted", again)


def slots_without_a_figure_count_as_idle() -> AbstractContextManager[Any]:
    """K5: a slot of which no note has come counts as one without load."""
    measured = LoadMeter._measured

    def idle(self: LoadMeter, name: str, slots: Any, epoch: int) -> dict[int, int]:
        return {**dict.fromkeys(slots, 0), **measured(self, name, slots, epoch)}

    return patch.object(LoadMeter, "_measured", idle)


def times_are_part_of_the_output() -> AbstractContextManager[Any]:
    """K2: what a task measures is in its digest, so that two correct attempts differ."""
    close, turns = Emitter.close, count(1)

    def timed(self: Emitter, *given: Any, **more: Any) -> Any:
        self._made.update(b"%d us" % next(turns))
        return close(self, *given, **more)

    return patch.object(Emitter, "close", timed)


@contextmanager
def _both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield
