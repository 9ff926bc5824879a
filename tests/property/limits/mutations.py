"""Deliberate bugs around limits, each a clause of section P taken out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec

from headrace.engine.driver import driver as driver_module
from headrace.model.values.time import END
from headrace.worker import level
from headrace.worker.overload import limit
from headrace.worker.records.arrivals import Grouped

Mutation = Callable[[], AbstractContextManager[Any]]


def no_hold() -> AbstractContextManager[Any]:
    """P3: records that wait do not hold the output watermark."""
    return patch.object(limit, "output_hold", lambda run, rest: END)


def no_cap() -> AbstractContextManager[Any]:
    """P3: a key with carried records sees the watermark of all."""
    return patch.object(limit, "watermarks", lambda run, waiting, watermark: {})


class _Everybody(dict[bytes, int]):
    """One watermark for all keys."""

    def get(self, key: bytes, default: Any = None) -> Any:
        return min(self.values(), default=default)


def cap_per_slot() -> AbstractContextManager[Any]:
    """P3: all keys of a slot wait for its oldest carried record."""
    watermarks = limit.watermarks

    def of_slot(run: Any, waiting: Any, watermark: int) -> dict[bytes, int]:
        return _Everybody(watermarks(run, waiting, watermark))

    return patch.object(limit, "watermarks", of_slot)


def new_first() -> AbstractContextManager[Any]:
    """P2: what has just arrived goes before carried records."""
    cut = limit.cut

    def newest_first(arrivals: Any, records: int) -> Any:
        return cut(sorted(arrivals, key=lambda a: -a.arrived.epoch), records)

    return patch.object(limit, "cut", newest_first)


def late_at_processing() -> AbstractContextManager[Any]:
    """P2: whether a record is late is decided when it runs."""
    part = Grouped.part

    def judged_now(self: Any, key: bytes, shown: Any, before: int) -> Any:
        found = part(self, key, shown, before)
        found._late = None
        return found

    return patch.object(Grouped, "part", judged_now)


def carried_rows_stay_with_their_slot() -> AbstractContextManager[Any]:
    """P2: a slot reads what itself has carried, also after the ring has moved."""
    waiting_of = level.waiting_of

    def own(runtime: Any, order: Any, node: Any, slot: int) -> Any:
        mine = [f for f in order.outbox.get(node.name, ()) if f.label == f"{node.name}/{slot}"]
        order = msgspec.structs.replace(order, outbox={**order.outbox, node.name: mine})
        return waiting_of(runtime, order, node, slot)

    return patch.object(level, "waiting_of", own)


def the_end_waits_for_nothing() -> AbstractContextManager[Any]:
    """P8: the final watermark, and the end of the run, do not wait for carried records."""
    decide = driver_module.decide

    def hasty(topology: Any, ledger: Any, *given: Any, **more: Any) -> Any:
        ledger = msgspec.structs.replace(ledger, outbox={})
        return decide(topology, ledger, *given, **more)

    return patch.object(driver_module, "decide", hasty)


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        no_hold,
        no_cap,
        cap_per_slot,
        new_first,
        late_at_processing,
        carried_rows_stay_with_their_slot,
        the_end_waits_for_nothing,
    )
}
