"""Deliberate bugs in what is known of load, and in what is decided from it (K)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.driver import elastic as elastic_module
from headrace.engine.history import recovery
from headrace.plan.elastic.figures import LoadState
from headrace.testing.simulator.faults.kinds import DRIVER_DIES, LOAD_MOVES

__all__ = [
    "averages_live_in_the_leader",
    "followers_do_not_fold_load",
]

NEEDS: dict[str, tuple[str, ...]] = {
    "averages_live_in_the_leader": (LOAD_MOVES.name, DRIVER_DIES.name),
    "followers_do_not_fold_load": (LOAD_MOVES.name, DRIVER_DIES.name),
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


@contextmanager
def _both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield
