"""Background compaction: merges adjacent segments of a slot while epochs continue.

A result is written under a temporary name. It gets the number of the epoch that is open when the
result is adopted (protocol C2). If the merged segments have changed in the meantime, the result is
discarded. Compaction never blocks an epoch: if a merge fails for any reason, its segments stay as
they are and the merge is retried later. Only damage to the state itself is raised at once, because
the next reader of that segment would fail as well.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import msgspec

from headrace.engine.driver.recovery import History
from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Adoption, Plan, SegmentSlice
from headrace.plan.ledger import Ledger
from headrace.plan.ring import KeyInterval
from headrace.state import compaction
from headrace.store.store import Store

_DOUBLINGS_MAX = 6

_logger = logging.getLogger("headrace.compaction")


class MergePiece(msgspec.Struct, frozen=True):
    """One output segment of a merge: a part of the hash interval that the merged segments cover."""

    interval: KeyInterval
    temporary: str
    digest: str
    rows: int
    bytes: int


class MergeResult(msgspec.Struct, frozen=True):
    """The result of a merge, waiting to be adopted."""

    computation: str
    slot: int
    run: tuple[SegmentSlice, ...]
    pieces: tuple[MergePiece, ...]
    bottom: bool


class Compactor:
    """Chooses segments, merges them, and offers the results for adoption.

    With `background=False` it merges in the calling thread, for tests.
    """

    def __init__(
        self,
        store: Store,
        topology: Topology,
        *,
        background: bool,
        choose_run: compaction.ChooseRun | None = None,
    ) -> None:
        """`choose_run` chooses which segments of a slot to merge; default: `compaction.choose`."""
        self._store = store
        self._limits = limits = store.system.limits
        self._choose_run = choose_run or partial(
            compaction.choose, segments_min=limits.merge_segments_min
        )
        self._topology = topology
        self._pool = ThreadPoolExecutor(1, "headrace-compaction") if background else None
        self._running: dict[tuple[str, int], Future[MergeResult]] = {}
        self._not_before: dict[tuple[str, int], int] = {}
        self._failures: dict[tuple[str, int], int] = {}
        self.adopted = 0

    def consider(self, history: History) -> None:
        """Starts a merge for each slot that has accumulated enough segments."""
        for name, slots in history.ledger.slots.items():
            for slot, state in slots.items():
                place = (name, slot)
                if place in self._running:
                    continue
                if history.ledger.epoch < self._not_before.get(place, 0):
                    continue
                run = self._choose_run(state.entries)
                if run:
                    self._start(name, slot, run, state.entries, self._expired(history, name))

    def adoptions(self, plan: Plan, ledger: Ledger) -> list[Adoption]:
        """Finished merges whose inputs are unchanged, named for the open epoch."""
        found: list[Adoption] = []
        for place, future in list(self._running.items()):
            if not future.done():
                continue
            del self._running[place]
            try:
                result = future.result()
                if _still_there(result, plan, ledger):
                    found += self._adopt(plan.epoch, result)
                    self.adopted += 1
                    self._failures.pop(place, None)
                else:
                    for piece in result.pieces:
                        self._store.delete(piece.temporary)
            except Exception as error:
                if isinstance(error, CorruptCheckpoint):
                    # A file may have been missing because the whole checkpoint was unavailable.
                    missing = isinstance(error.__context__, FileNotFoundError)
                    if place in self._failures or not missing:
                        raise
                self._failed(place, plan.epoch, error)
        return found

    def _failed(self, place: tuple[str, int], epoch: int, error: Exception) -> None:
        failures = self._failures[place] = self._failures.get(place, 0) + 1
        wait = self._limits.merge_retry_epochs << min(failures - 1, _DOUBLINGS_MAX)
        self._not_before[place] = epoch + wait
        _logger.warning(
            "computation %r, slot %d: its segments could not be merged (%s: %s); epochs continue, "
            "and the merge is retried in %d epochs",
            *place, type(error).__name__, error, wait,
        )  # fmt: skip

    def close(self) -> None:
        """Waits for running merges; collection sweeps temporary results later."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _adopt(self, epoch: int, result: MergeResult) -> list[Adoption]:
        """One adoption per piece; the first one removes the merged segments."""
        directory = paths.state_directory(result.computation)
        last = max(entry.last_epoch for entry in result.run)
        replaces = tuple(dict.fromkeys(entry.segment for entry in result.run))
        found: list[Adoption] = []
        for number, piece in enumerate(result.pieces):
            label = f"{result.computation}/{result.slot}~{number or ''}"
            file = paths.content_name(epoch, label, piece.digest, ".arrow")
            self._store.move(piece.temporary, f"{directory}/{file}")
            entry = SegmentSlice(
                f"{directory}/{file}", piece.interval, last, piece.rows, piece.bytes, result.bottom
            )
            gone = replaces if not found else ()
            found.append(Adoption(result.computation, result.slot, gone, entry))
        return found

    def _start(
        self,
        name: str,
        slot: int,
        run: Sequence[SegmentSlice],
        entries: Sequence[SegmentSlice],
        expired: int,
    ) -> None:
        bottom = compaction.is_bottom(run, entries)
        if self._pool is not None:
            future = self._pool.submit(self._merge, name, slot, tuple(run), bottom, expired)
        else:
            future = Future()
            try:
                future.set_result(self._merge(name, slot, tuple(run), bottom, expired))
            except Exception as error:
                future.set_exception(error)  # raised when the result is used
        self._running[name, slot] = future

    def _merge(
        self, name: str, slot: int, run: tuple[SegmentSlice, ...], bottom: bool, expired: int
    ) -> MergeResult:
        found: list[MergePiece] = []
        merged = compaction.merge_run(
            self._store, run, bottom=bottom, expired_before=expired, limits=self._limits
        )
        for interval, data, rows in merged:
            token = self._store.system.token_hex(6)
            temporary = f"{paths.state_directory(name)}/.merged-{token}.tmp"
            self._store.write(temporary, data)
            found.append(MergePiece(interval, temporary, digest_of(data), rows, len(data)))
        return MergeResult(name, slot, run, tuple(found), bottom)

    def _expired(self, history: History, name: str) -> int:
        """The time before which rows had already expired at the oldest retained epoch (C7)."""
        if not history.marks:
            return 0
        ins, wall = history.marks[0]
        node = self._topology.graph.nodes.get(name)
        by_wall = node is not None and node.shape.options.clock == "wall"
        return wall if by_wall else ins.get(name, 0)


def _still_there(result: MergeResult, plan: Plan, ledger: Ledger) -> bool:
    """Whether the merged entries are unchanged, also under the rings of the open epoch.

    An epoch that changes the ring cuts entries before it adopts merges. The result would then
    extend beyond its slot, and a later merge of slots would find it there.
    """
    name = result.computation
    if name in plan.rings and plan.rings[name] != ledger.rings.get(name):
        return False
    slots = ledger.slots.get(name, {})
    current = slots[result.slot].entries if result.slot in slots else ()
    return all(entry in current for entry in result.run)
