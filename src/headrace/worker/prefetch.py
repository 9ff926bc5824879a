"""Prefetch: the task of a slot that will get intervals builds what it can of them beforehand (J7).

What is built stays in the cache of this process, as pieces. They bind nobody: at the ring change
the cache uses a piece only if it is of the ownership that the intervals come from, and catches it
up.
"""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.log.rings import ring_of
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import WorkOrder
from headrace.plan.rings.announced import leaving
from headrace.plan.units import slot_label
from headrace.worker.runtime import Runtime


def prefetch_pieces(runtime: Runtime, order: WorkOrder, level: int, number: int) -> None:
    """Builds pieces for the slots that will be dealt to task `number`, and notes which are ready.

    One task builds a bounded number of bytes per epoch, so that no epoch becomes long; the rest
    follows in the next epochs.
    """
    plan, left = order.plan, runtime.store.system.limits.prefetch_bytes_max
    if not plan.announced and not plan.moves:
        runtime.cache.drop_pieces()
    for name in runtime.topology.levels[level]:
        if name not in plan.announced:
            continue
        waiting: set[int] = set()
        ready: set[int] = set()
        for to, slot, records in leaving(ring_of(runtime.store, order, name), plan.announced[name]):
            if to % plan.tasks != number:
                continue
            base = order.base(name, slot)
            place = (runtime.store, order.checkpoint, name, slot, base, records)
            if not runtime.cache.has_piece(*place):
                if left <= 0:
                    waiting.add(to)
                    continue
                left -= sum(entry.bytes for entry in base.entries)
                try:
                    runtime.cache.prefetch(*place)
                except (OSError, HeadraceError):
                    waiting.add(to)  # at the change the slot reads the store, and reports the error
                    continue
            ready.add(to)
        for to in sorted(ready - waiting):
            runtime.note(SlotNote(plan.epoch, slot_label(name, to), 0, pieces=True))
