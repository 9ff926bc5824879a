"""Prefetch: a task loads what it will need, before it is needed. Nothing depends on it.

Under `recovery="eager"` a slot that comes to a process cold loads objects of keys: first of those
whose timers come next, then of those that changed last.

The task of a slot that will get intervals builds what it can of them beforehand (J7).
What is built stays in the cache of this process, as pieces. They bind nobody: at the ring change
the cache uses a piece only if it is of the ownership that the intervals come from, and catches it
up.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from headrace.errors import HeadraceError
from headrace.log.rings import ring_of
from headrace.model.values.keys import hash_key
from headrace.pipeline.graph.graph import To
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import WorkOrder
from headrace.plan.rings.announced import leaving
from headrace.plan.units import slot_label
from headrace.worker import key_state
from headrace.worker.runtime import Runtime
from headrace.worker.slot_run import SlotRun
from headrace.worker.timers import CLOCKS

_KEYS_AT_ONCE = 1_000


def load_ahead(run: SlotRun) -> None:
    """Loads objects of keys that the slot will soon need, up to a number of bytes.

    Tables have no objects, and a computation with `errors=to(...)` uses none from the cache. For
    them the segments are mapped, and have been read once, when their digests were checked.
    """
    shape = run.live.shape
    if shape.takes_table or isinstance(run.node.errors, To):
        return
    slot, limits = run.slot, run.emitter.runtime.store.system.limits
    most = min(limits.eager_bytes_max, slot.objects.bytes_max // 2)
    due = (key for clock in CLOCKS for key in slot.indexes[clock].next_keys(limits.window_cells))
    seen: set[bytes] = set()
    for source in (due, slot.view.newest_keys()):
        while some := list(islice(source, _KEYS_AT_ONCE)):
            fresh = [key for key in dict.fromkeys(some) if key not in seen]
            seen.update(fresh)
            hashes = np.fromiter(map(hash_key, fresh), np.uint64, len(fresh))
            stored = run.state.fetch(fresh, hashes, maps=shape.reads_maps)
            for key, cells in zip(fresh, stored, strict=True):
                if cells.version == shape.options.version:  # others are migrated, or have no state
                    slot.objects.prefetch(key, key_state.load(run.live, key, cells))
                if slot.objects.weight >= most:
                    return


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
