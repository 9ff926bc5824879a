"""Background compaction: merges runs of segments while epochs go on.

A result is written under a temporary name and gets the number of the epoch that
is open when it is adopted (protocol C2): if its run has changed meanwhile, it is
thrown away. It never blocks an epoch: where the disk refuses a result, the run
stays as it is and is tried again later.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from headrace.engine.recovery import History
from headrace.errors import CorruptCheckpoint, StoreError
from headrace.log import paths
from headrace.log.store import Store
from headrace.pipeline.topology import Topology
from headrace.plan.epoch import Adoption, Entry, Plan
from headrace.plan.ledger import Ledger
from headrace.state import compaction
from headrace.state.segment import Segment, digest_of, encode_batch

RETRY_AFTER = 32
"""How many epochs a slot is left alone after the store refused its merge."""


class Result(msgspec.Struct, frozen=True):
    """A merged run that waits to be adopted."""

    computation: str
    slot: int
    run: tuple[Entry, ...]
    temporary: str
    digest: str
    rows: int
    bytes: int
    bottom: bool


class Compactor:
    """Finds, merges, offers. With `background=False` it merges at once, for tests."""

    def __init__(self, store: Store, topology: Topology, *, background: bool) -> None:
        self._store = store
        self._topology = topology
        self._pool = ThreadPoolExecutor(1, "headrace-compaction") if background else None
        self._running: dict[tuple[str, int], Future[Result]] = {}
        self._not_before: dict[tuple[str, int], int] = {}
        self._doubted: set[tuple[str, int]] = set()
        """Slots whose last merge found a segment missing."""
        self.adopted = 0

    def consider(self, history: History) -> None:
        """Starts merging where a slot has gathered enough segments."""
        for name, slots in history.ledger.slots.items():
            for slot, state in slots.items():
                place = (name, slot)
                if place in self._running:
                    continue
                if history.ledger.epoch < self._not_before.get(place, 0):
                    continue
                run = compaction.choose(state.entries)
                if run:
                    self._start(name, slot, run, state.entries, self._expired(history, name))

    def adoptions(self, plan: Plan, ledger: Ledger) -> list[Adoption]:
        """Finished merges whose runs are still there unchanged, named for the open epoch."""
        found: list[Adoption] = []
        for place, future in list(self._running.items()):
            if not future.done():
                continue
            del self._running[place]
            try:
                result = future.result()
                if _still_there(result, plan, ledger):
                    found.append(self._adopt(plan.epoch, result))
                else:
                    self._store.delete(result.temporary)
            except (StoreError, FileNotFoundError):
                self._not_before[place] = plan.epoch + RETRY_AFTER
            except CorruptCheckpoint as error:
                # A file that was missing may have been away with the whole checkpoint.
                missing = isinstance(error.__context__, FileNotFoundError)
                if place in self._doubted or not missing:
                    raise
                self._doubted.add(place)
            else:
                self._doubted.discard(place)
        self.adopted += len(found)
        return found

    def close(self) -> None:
        """Waits for what is running; temporary results are swept later."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _adopt(self, epoch: int, result: Result) -> Adoption:
        label = f"{result.computation}/{result.slot}~"
        directory = paths.state_directory(result.computation)
        name = f"{directory}/{paths.content_name(epoch, label, result.digest, '.arrow')}"
        self._store.rename(result.temporary, name)
        last = max(entry.last_epoch for entry in result.run)
        hull = compaction.hull_of(result.run)
        entry = Entry(name, hull, last, result.rows, result.bytes, result.bottom)
        replaces = tuple(entry.segment for entry in result.run)
        return Adoption(result.computation, result.slot, replaces, entry)

    def _start(
        self, name: str, slot: int, run: Sequence[Entry], entries: Sequence[Entry], expired: int
    ) -> None:
        bottom = compaction.is_bottom(run, entries)
        if self._pool is not None:
            future = self._pool.submit(self._merge, name, slot, tuple(run), bottom, expired)
        else:
            future = Future()
            try:
                future.set_result(self._merge(name, slot, tuple(run), bottom, expired))
            except Exception as error:
                future.set_exception(error)  # met when it is asked for, as from the background
        self._running[name, slot] = future

    def _merge(
        self, name: str, slot: int, run: tuple[Entry, ...], bottom: bool, expired: int
    ) -> Result:
        parts = [(Segment.open(self._store, e.segment), e.interval) for e in run]
        batch = compaction.merge(parts, bottom=bottom, expired_before=expired)
        data = encode_batch(batch)
        temporary = f"{paths.state_directory(name)}/.merged-{secrets.token_hex(6)}.tmp"
        self._store.write(temporary, data)
        digest, rows = digest_of(data), batch.num_rows
        return Result(name, slot, run, temporary, digest, rows, len(data), bottom)

    def _expired(self, history: History, name: str) -> int:
        """Until when rows had expired already at the oldest epoch kept (C7)."""
        if not history.marks:
            return 0
        ins, wall = history.marks[0]
        node = self._topology.graph.nodes.get(name)
        by_wall = node is not None and node.shape.options.clock == "wall"
        return wall if by_wall else ins.get(name, 0)


def _still_there(result: Result, plan: Plan, ledger: Ledger) -> bool:
    """Whether the run's entries are unchanged, also under the rings of the open epoch.

    An epoch that moves the ring cuts entries before it adopts: a result would then
    reach beyond its slot, and a later merge of slots would find it there.
    """
    name = result.computation
    if name in plan.rings and plan.rings[name] != ledger.rings.get(name):
        return False
    slots = ledger.slots.get(name, {})
    current = slots[result.slot].entries if result.slot in slots else ()
    return all(entry in current for entry in result.run)
