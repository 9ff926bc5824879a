"""Background compaction: merges adjacent segments of a slot while epochs continue.

1. A merge writes its result as `merged/<epoch>-<token>`. No commit ever names such a file.
2. While the job of an epoch runs, a finished result is copied to the content name of that epoch
   (protocol C2): collection never deletes a file whose epoch is open.
3. The commit of that epoch adopts the copy, if it was complete in time and the merged segments are
   unchanged. A ring change does not cancel a merge: what left took the segments with it, and what
   came is in a later class, where the result does not count (J5). A copy that is late is made again
   for a later epoch, each time with more epochs ahead, so that results are adopted however short
   the epochs are.
4. The first file is deleted when its result is adopted or discarded. What a crash leaves in
   `merged/` is swept by collection, up to the epoch in which the oldest merge here began.

A small result has no file: it rides in the commit that adopts it (M1).

Compaction never blocks an epoch: if a merge or a copy fails for any reason, its segments stay as
they are and the merge is retried later. Only damage to the state itself is raised at once, because
the next reader of that segment would fail as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from headrace.engine.history.recovery import History
from headrace.errors import CorruptCheckpoint, StoreError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Adoption, Commit, Plan
from headrace.plan.rings.classes import SegmentSlice, SlotClass, SlotLedger, is_split
from headrace.plan.rings.manifest import adopts
from headrace.plan.rings.ring import Ring, SlotRecords
from headrace.state import compaction
from headrace.store.counts import MERGES, counted_as
from headrace.store.store import Store
from headrace.worker.garbage import seldom_collecting

_DOUBLINGS_MAX = 6
_COPIES = 2
"""How many results are copied at once."""

_Given = TypeVar("_Given")
_logger = logging.getLogger("headrace.compaction")

SlotsOfPlan = Callable[[str, int], SlotLedger | None]
"""The manifest of a slot under the rings of the open plan, before its commit."""


def changed_slots(commit: Commit) -> Iterator[tuple[str, int]]:
    """The slots whose segments a commit has changed; there may be many, so no list is made."""
    for name, deltas in commit.deltas.items():
        for slot, delta in deltas.items():
            if delta.segment is not None:
                yield name, slot
    for name, slot in dict.fromkeys((each.computation, each.slot) for each in commit.adoptions):
        beside = commit.deltas.get(name, {}).get(slot)
        if beside is None or beside.segment is None:
            yield name, slot


class MergePiece(msgspec.Struct, frozen=True, gc=False):
    """One output segment of a merge: a part of the key space."""

    file: str
    """The file in `merged/`; "" if it rides in the commit that adopts it."""
    digest: str
    rows: int
    size: int
    data: bytes = b""
    """Its bytes, if it rides (M1)."""


class MergeResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a merge, waiting to be adopted."""

    computation: str
    slot: int
    run: tuple[SegmentSlice, ...]
    pieces: tuple[MergePiece, ...]
    bottom: bool
    classes: tuple[int, ...] = ()
    """Later classes in which a segment of the run counted."""
    applied: int | None = None
    """The log's mark, if there is a state store (O)."""

    @property
    def cut(self) -> bool:
        """Whether something was dropped that a worker's cache would have to see to catch up."""
        return self.bottom or compaction.drops_applied(self.run, self.applied)


@dataclass
class _Merge:
    """A merge from its start to its adoption."""

    began: int
    """The epoch that was open when it began; its files in `merged/` have this number."""
    merging: Future[MergeResult]
    target: int = 0
    """The epoch that is to adopt the copy; 0 while there is no copy."""
    copying: Future[None] | None = None
    ahead: int = 0
    """How many epochs after the open one the next copy is made for."""


class Compactor:
    """Chooses segments, merges them, and offers the results for adoption.

    With `background=False` it merges in the calling thread, for tests.
    """

    def __init__(
        self,
        store: Store,
        topology: Topology,
        ring_of: Callable[[str], Ring],
        *,
        background: bool,
        choose_run: compaction.ChooseRun | None = None,
    ) -> None:
        """`choose_run` chooses which segments of a slot to merge; default: `compaction.choose`.

        `ring_of` gives the ring that a computation has now.
        """
        self._ring_of = ring_of
        self._store = store
        self._limits = limits = store.system.limits
        self._choose_run = choose_run or partial(
            compaction.choose, segments_min=limits.merge_segments_min
        )
        self._topology = topology
        self._pool = store.system.executor("headrace-compaction") if background else None
        # A pool of its own: a copy must not wait for all merges that have begun before it.
        self._copies = store.system.executor("headrace-adoption", _COPIES) if background else None
        self._merges: dict[tuple[str, int], _Merge] = {}
        self._not_before: dict[tuple[str, int], int] = {}
        self._failures: dict[tuple[str, int], int] = {}
        self.adopted = 0
        self.riders: dict[str, bytes] = {}
        """Results of the last adoptions that are to ride in the commit: name -> bytes."""

    @seldom_collecting()
    def consider(self, history: History, places: Iterable[tuple[str, int]]) -> None:
        """Starts a merge for each of these slots that has accumulated enough segments.

        All slots are looked at where a segment has been riding for too long, or where a request
        asks for one segment per slot.
        """
        ledger = history.ledger
        before = ledger.commit_position - self._limits.ride_entries_max
        riding = ledger.tally.rides_from()
        old_riders = riding is not None and riding < before
        whole = ledger.control.compact
        if old_riders or whole:
            places = [(name, slot) for name, slots in ledger.slots.items() for slot in slots]
        for place in places:
            name, slot = place
            if place in self._merges:
                continue
            if self._not_before and ledger.epoch < self._not_before.get(place, 0):
                continue
            state = ledger.slots[name].get(slot)
            if state is None or not state.entries:
                continue
            entries = state.entries
            if not ledger.interval.is_durable:  # others belong to the next checkpoint (M3)
                entries = tuple(e for e in entries if e.last_epoch <= ledger.interval.checkpoint)
            run = compaction.choose_old_riders(entries, before) if old_riders else ()
            if whole and is_split(entries, whole.get(name, 0)):
                run = entries
            run = run or self._choose_run(entries)
            if run:
                self._start(place, history, tuple(run), state)

    @seldom_collecting()
    def begin(self, plan: Plan, slots: SlotsOfPlan) -> None:
        """Starts to copy finished results to their names, as the job of this epoch begins."""
        for place, merge in list(self._merges.items()):
            if merge.target >= plan.epoch or not merge.merging.done():
                continue
            try:
                result = merge.merging.result()
                if not _still_there(result, slots):
                    self._end(place, result)
                    continue
            except Exception as error:
                self._failed(place, plan.epoch, error)
                continue
            merge.target = plan.epoch + merge.ahead
            merge.copying = _run(self._copies, partial(self._copy, result, merge.target))

    @seldom_collecting()
    def adoptions(self, plan: Plan, slots: SlotsOfPlan) -> list[Adoption]:
        """Results that were copied in time and whose inputs are unchanged, for this commit."""
        found: list[Adoption] = []
        self.riders = {}
        for place, merge in list(self._merges.items()):
            if merge.target != plan.epoch or merge.copying is None:
                continue
            if not merge.copying.done():
                merge.ahead = max(1, 2 * merge.ahead)
                continue
            result = merge.merging.result()
            try:
                merge.copying.result()
            except Exception as error:
                self._failed(place, plan.epoch, error)
                continue
            if _still_there(result, slots):
                found += _adopted(result, plan.epoch)
                self.riders.update(_riding(result, plan.epoch))
                self.adopted += 1
                self._failures.pop(place, None)
            self._end(place, result)
        return found

    def merging_since(self, closed: int) -> int:
        """The epoch in which the oldest merge here began: files before it have no owner."""
        return min((merge.began for merge in self._merges.values()), default=closed + 1)

    def _failed(self, place: tuple[str, int], epoch: int, error: Exception) -> None:
        """Gives a merge up, for a while. Its files are swept later."""
        del self._merges[place]
        if isinstance(error, CorruptCheckpoint):
            raise error
        failures = self._failures[place] = self._failures.get(place, 0) + 1
        wait = self._limits.merge_retry_epochs << min(failures - 1, _DOUBLINGS_MAX)
        self._not_before[place] = epoch + wait
        _logger.warning(
            "computation %r, slot %d: its segments could not be merged (%s: %s); epochs continue, "
            "and the merge is retried in %d epochs",
            *place, type(error).__name__, error, wait,
        )  # fmt: skip

    def _end(self, place: tuple[str, int], result: MergeResult) -> None:
        """Deletes the first files of a result, which was adopted or is of no use any more."""
        del self._merges[place]
        _run(self._copies, partial(self._delete, result))

    def close(self) -> None:
        """Waits for running merges; collection sweeps results that were not adopted."""
        for pool in (self._pool, self._copies):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)

    def _start(
        self,
        place: tuple[str, int],
        history: History,
        run: tuple[SegmentSlice, ...],
        state: SlotLedger,
    ) -> None:
        began = history.ledger.epoch + 1
        name, slot = place
        given = MergeResult(
            name,
            slot,
            run,
            (),
            compaction.is_bottom(run, state.entries),
            compaction.later_classes(run, state.classes),
            history.ledger.applied.epoch if history.ledger.applied.copies else None,
        )
        records = self._ring_of(name).records(slot)
        expired = self._expired(history, place[0])
        slots = sum(len(each) for each in history.ledger.slots.values())
        room = min(self._limits.ride_bytes_max, self._limits.ride_total_max // slots)
        merge = partial(self._merge, given, records, state.classes, began, expired, room)
        merging = _run(self._pool, merge)
        self._merges[place] = _Merge(began, merging)

    # What runs beside the epochs ------------------------------------------

    def _merge(
        self,
        given: MergeResult,
        records: SlotRecords,
        classes: tuple[SlotClass, ...],
        began: int,
        expired: int,
        room: int,
    ) -> MergeResult:
        found: list[MergePiece] = []
        parts = compaction.parts_of(self._store, given.run, records, classes)
        merged = compaction.merge_run(
            parts,
            bottom=given.bottom,
            expired_before=expired,
            applied=given.applied,
            limits=self._limits,
        )
        for data, rows in merged:
            size, digest = len(data), digest_of(data)
            if size <= room:
                room -= size
                found.append(MergePiece("", digest, rows, size, data))
                continue
            file = paths.merged(began, self._store.system.token_hex(6))
            self._store.write(file, data)
            found.append(MergePiece(file, digest, rows, size))
        self._store.system.give_back_memory()
        reach("after-merge-write")
        return msgspec.structs.replace(given, pieces=tuple(found))

    def _copy(self, result: MergeResult, epoch: int) -> None:
        for piece, name in zip(result.pieces, _names(result, epoch), strict=True):
            if piece.file:
                self._store.copy(piece.file, name)
                reach("after-merge-copy")

    def _delete(self, result: MergeResult) -> None:
        try:
            for piece in result.pieces:
                if piece.file:
                    self._store.delete(piece.file)
        except (OSError, StoreError):
            pass  # collection sweeps them

    def _expired(self, history: History, name: str) -> int:
        """The time before which rows had already expired at the oldest retained epoch (C7)."""
        if not history.marks:
            return 0
        ins, wall = history.marks[0]
        node = self._topology.graph.nodes.get(name)
        by_wall = node is not None and node.shape.options.clock == "wall"
        return wall if by_wall else ins.get(name, 0)


def _run(pool: Executor | None, act: Callable[[], _Given]) -> Future[_Given]:
    """Runs `act` in a pool; without one, at once. Its error is raised when the result is used."""
    if pool is not None:
        return pool.submit(_counted, act)
    future: Future[_Given] = Future()
    try:
        future.set_result(_counted(act))
    except Exception as error:
        future.set_exception(error)
    return future


def _counted(act: Callable[[], _Given]) -> _Given:
    with counted_as(MERGES):
        return act()


def _names(result: MergeResult, epoch: int) -> list[str]:
    """The content names of a result's pieces in an epoch."""
    directory = paths.state_directory(result.computation)
    found: list[str] = []
    for number, piece in enumerate(result.pieces):
        label = f"{result.computation}/{result.slot}~{number or ''}"
        found.append(f"{directory}/{paths.content_name(epoch, label, piece.digest, '.arrow')}")
    return found


def _adopted(result: MergeResult, epoch: int) -> list[Adoption]:
    """One adoption per piece; the first one removes the merged segments."""
    last = max(entry.last_epoch for entry in result.run)
    replaces = tuple((entry.segment, entry.of) for entry in result.run)
    found: list[Adoption] = []
    for piece, name in zip(result.pieces, _names(result, epoch), strict=True):
        entry = SegmentSlice(name, last, piece.rows, piece.size, result.cut)
        place = (result.computation, result.slot)
        found.append(Adoption(*place, replaces, entry, not piece.file, result.classes))
        replaces = ()
    return found


def _riding(result: MergeResult, epoch: int) -> dict[str, bytes]:
    """The pieces of a result that have no file: name -> bytes."""
    named = zip(_names(result, epoch), result.pieces, strict=True)
    return {name: piece.data for name, piece in named if not piece.file}


def _still_there(result: MergeResult, slots: SlotsOfPlan) -> bool:
    """Whether the merged entries are unchanged under the rings of the open epoch (J5)."""
    state = slots(result.computation, result.slot)
    return state is not None and adopts(result.run, state)
