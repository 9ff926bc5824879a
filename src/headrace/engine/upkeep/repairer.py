"""Repairs: makes deltas again that were only written and are lost (M5).

1. The log gives the plan, the commit and the ledger of every epoch since the last checkpoint.
2. Pure code says which units of work run again, in which epochs (`plan/interval/repairs`).
3. Each epoch runs as it was planned, over the state of that time, and only with those units. They
   write their deltas and nothing else: no delivery, no call (answers come from the log), no commit.
4. Each unit must make the output that the commit names. Otherwise the run stops (rule G): outputs
   that follow from the lost state are published, and other state must not replace it silently.

A repair changes no entry of the log, so any driver may make one at any time, also one that was
overtaken: what it writes has the names that the log knows.

Where deltas lie on executors' disks (`held`), tasks say what is lost. A task of a repair may then
miss a delta that was thought to be there: it is lost, too, and 2 begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headrace.engine.history.adopted import adopt, fragments_of
from headrace.engine.history.epoch_at import Past, past_epoch
from headrace.engine.history.orders import work_order_of
from headrace.engine.history.recovery import History
from headrace.engine.history.rings import changes_of
from headrace.engine.upkeep.held import HeldDeltas
from headrace.errors import (
    CorruptCheckpoint,
    DeltaMissing,
    EpochFailed,
    HeadraceError,
    IncompatibleState,
    NondeterministicCode,
    SourceError,
    StoreError,
    by_name,
)
from headrace.failpoints import reach
from headrace.log.content import map_named, verify
from headrace.log.entry import DROP
from headrace.log.epochlog import EpochLog
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Drop, Report, WorkOrder
from headrace.plan.interval.repairs import NotMadeAgain, Place, repairs_of
from headrace.plan.ledger import Ledger
from headrace.plan.listener import Listeners
from headrace.plan.rings.classes import SegmentSlice
from headrace.plan.units import TORN, labels_of, slot_label
from headrace.store.store import Store

_TRIES = 4
_logger = logging.getLogger("headrace.repairs")


class Repairer:
    """Makes lost deltas again, on the substrate of the driver that leads."""

    def __init__(
        self,
        topology: Topology,
        log: EpochLog,
        store: Store,
        checkpoint: str,
        fingerprint: str,
        run: Callable[[WorkOrder], Sequence[Report]],
        listeners: Listeners,
        *,
        accepts: bool = False,
        held: HeldDeltas | None = None,
    ) -> None:
        """`checkpoint` is the id of the checkpoint; `run` runs a job and returns its reports.

        With `accepts`, a person has decided that other state may replace what is lost. `held`: the
        disks of executors, if what is only written lies there.
        """
        self._held = held
        self._log, self._accepts = log, accepts
        self._gone: frozenset[str] = frozenset()
        """The deltas that are known to be lost."""
        self._other: dict[str, SegmentSlice] = {}
        """Delta that is lost -> the other one that was accepted in its place."""
        self._topology, self._store, self._checkpoint = topology, store, checkpoint
        self._fingerprint, self._run, self._listeners = fingerprint, run, listeners
        self.repaired = 0
        """How many units of work have run again."""

    def repair(self, history: History, lost: Iterable[str]) -> bool:
        """Makes these deltas again, and all that this takes; returns whether manifests changed."""
        ledger = history.ledger
        known = self._known(ledger, lost)
        first = ledger.interval.durable(ledger.epoch) + 1
        past = self._past(first, ledger.epoch)
        for each in past.values():
            self._require_same_wiring(each)
        orders = {epoch: self._order(each) for epoch, each in past.items()}
        made_by: dict[str, Place] = {}
        for epoch, each in past.items():
            for name, deltas in each.commit.deltas.items():
                for slot, delta in deltas.items():
                    if delta.segment is not None and delta.written:
                        made_by[delta.segment] = (epoch, slot_label(name, slot))
        hosts = {
            epoch: {
                label: host
                for host in (*self._topology.graph.injectors, *self._topology.keyed)
                for label in labels_of(self._topology, order, host)
            }
            for epoch, order in orders.items()
        }

        def feeds(epoch: int, label: str) -> list[str]:
            host = hosts[epoch][label]
            if host not in self._topology.keyed:
                return []
            feeders = self._topology.feeders(self._topology.keyed[host])
            return [x for f in feeders for x in labels_of(self._topology, orders[epoch], f)]

        def base(epoch: int, label: str) -> list[str]:
            host = hosts[epoch][label]
            if host not in self._topology.keyed:
                return []
            found = orders[epoch].bases[host][int(label.rpartition("/")[2])]
            return [entry.segment for entry in found.entries if entry.written]

        def is_reachable(segment: str) -> bool:
            if segment not in known:
                known[segment] = self._is_whole(segment)
            return known[segment]

        self._other = {}
        gone: list[str] = []
        for _ in range(len(made_by) + _TRIES):  # each time at least one more delta is missed
            gone = sorted(segment for segment, whole in known.items() if not whole)
            self._gone = frozenset(gone)
            try:
                todo = repairs_of(gone, made_by, feeds=feeds, base=base, is_reachable=is_reachable)
            except NotMadeAgain as error:
                raise CorruptCheckpoint(
                    f"{self._store.where(error.segment)} is missing or damaged, and no epoch since "
                    f"the last checkpoint (of epoch {first - 1}) has made it: restore the file "
                    "from a copy"
                ) from None
            units = sum(len(labels) for _, labels in todo)
            self._listeners.notice(
                "repair",
                f"{len(gone)} changes of state that were not durable yet are lost; they are made "
                f"again from epoch {todo[0][0]} on ({units} units of work in {len(todo)} epochs)",
            )
            try:
                for epoch, labels in todo:
                    reach("before-repair")
                    order = _over(orders[epoch], self._other)
                    self._repair(past[epoch], msgspec.structs.replace(order, repairs=labels))
                    self.repaired += len(labels)
                    again = {(epoch, label) for label in labels}
                    known.update((s, True) for s, place in made_by.items() if place in again)
                return self._accept(ledger) if self._other else False
            except DeltaMissing as error:
                known.update(dict.fromkeys(error.segments, False))
        raise EpochFailed(
            f"{self._store.where()} does not show what has just been written there: "
            f"{', '.join(gone[:3])} was made again and is missing. Nothing was changed: start "
            "again when the store is well"
        )

    def _known(self, ledger: Ledger, lost: Iterable[str]) -> dict[str, bool]:
        """Delta that was only written -> whether it can be reached: what one loss took, others find
        missing, too."""
        known = dict.fromkeys(lost, False)
        asked: dict[int, list[str]] = {}
        for slots in ledger.slots.values():
            for slot, state in slots.items():
                names = [e.segment for e in state.entries if e.written and e.segment not in known]
                if names:
                    asked.setdefault(slot, []).extend(names)
        if self._held is None:
            names = [name for each in asked.values() for name in each]
            return known | {name: self._is_whole(name) for name in names}
        try:
            gone = self._held.missing(asked) if asked else set()
        except StoreError as error:
            _logger.warning("lost state is looked for as it is needed: %s", error)
            gone = set()
        return known | {name: name not in gone for each in asked.values() for name in each}

    def _accept(self, ledger: Ledger) -> bool:
        """Logs that other state stands in the place of what was lost (G)."""
        for name, slots in list(ledger.slots.items()):
            changed = {
                slot: tuple(_instead(entry, self._other) for entry in state.entries)
                for slot, state in slots.items()
                if any(entry.segment in self._other for entry in state.entries)
            }
            if changed:
                drop = Drop(name, changed, "lost state was made again, with another result")
                self._log.append(DROP, drop)
                ledger.dropped(drop, self._log.position)
        self._listeners.notice(
            "repair",
            f"{len(self._other)} changes of state have another result than the committed one, and "
            "that was accepted (accept_repairs=True); rows that were delivered stay",
        )
        return True

    def _require_same_wiring(self, past: Past) -> None:
        """Refuses code that cannot run an epoch of the time before it."""
        now, then = set(self._topology.keyed), set(past.plan.rings)
        streams = {read.stream for task in past.plan.reads for read in task}
        if now != then or not streams <= set(self._topology.graph.injectors):
            raise IncompatibleState(
                f"state of epoch {past.epoch} that was not durable yet is lost, and this code has "
                "other computations or sources than the code that ran it: start the code of that "
                "time once, until it has caught up, and then this one"
            )

    def _past(self, first: int, last: int) -> dict[int, Past]:
        """The epochs since the last checkpoint, each over the state that can still be opened.

        The fragments of that checkpoint were adopted some epochs after it. The deltas that they
        replaced may be lost or collected since, so they stand in the ledgers before that, too.
        """
        found = {epoch: past_epoch(self._store, epoch) for epoch in range(first, last + 1)}
        adopted, position = fragments_of(self._store, first - 1)
        for past in found.values():
            if past.position <= position:
                adopt(past.ledger, adopted, position)
        return found

    def _order(self, past: Past) -> WorkOrder:
        ledger, plan, answers = past.ledger, past.plan, past.commit.determinants
        changes = changes_of(self._store, ledger, plan)
        return work_order_of(ledger, plan, changes, self._checkpoint, answers)

    def _is_whole(self, segment: str) -> bool:
        try:
            verify(segment, map_named(self._store, segment))
        except CorruptCheckpoint:
            return False
        return True

    def _repair(self, past: Past, order: WorkOrder) -> None:
        """Runs some units of a past epoch again, until each has made what its commit names."""
        labels = set(order.repairs or ())
        reason = ""
        for _ in range(_TRIES):
            try:
                reports = [report for report in self._run(order) if report.label in labels]
            except HeadraceError:
                raise
            except Exception as error:  # Spark gave up
                reason = f"{type(error).__name__}: {error}"
                continue
            missing = {segment for report in reports for segment in report.missing}
            if missing:
                raise DeltaMissing(", ".join(sorted(missing)))
            for report in reports:
                self._check(past, report)
            done = {report.label for report in reports if report.error is None}
            if done == labels:
                return
            failed = (report.message for report in reports if report.error is not None)
            reason = next(failed, "a report is missing")
        raise EpochFailed(
            f"epoch {past.epoch} could not be run again to make lost state: {reason[:2000]}. "
            "Nothing was changed: start again when the cause is fixed, or restore a savepoint"
        )

    def _check(self, past: Past, report: Report) -> None:
        if report.error == TORN:
            return
        if report.error is not None:
            raise by_name(report.error)(
                f"epoch {past.epoch} is run again, because state that was not durable yet is lost; "
                f"{report.label}: {report.message}"
            )
        if report.input != past.commit.inputs.get(report.label, report.input):
            raise SourceError(
                f"epoch {past.epoch} is run again, because state that was not durable yet is lost, "
                f"but what {report.label} reads has changed since. Put the old input back"
            )
        if report.digest == past.commit.digests[report.label]:
            return
        if not self._accepts:
            raise differs(past, report, same=past.plan.fingerprint == self._fingerprint)
        made = past.commit.deltas.get(report.host, {}).get(
            -1 if report.slot is None else report.slot
        )
        if made is not None and made.written and made.segment is not None:
            self._note_other(past, made.segment, report)

    def _note_other(self, past: Past, segment: str, report: Report) -> None:
        """A unit has made another delta; it counts only where the committed one is lost."""
        is_there = segment not in self._gone if self._held else self._is_whole(segment)
        if is_there:
            return
        if report.delta is None or report.delta.segment is None or report.delta.rides:
            raise CorruptCheckpoint(
                f"epoch {past.epoch}, {report.label}: what is made now in the place of lost state "
                "is empty or too small for a file of its own; go back to a savepoint "
                "(headrace restore)"
            )
        delta = report.delta
        self._other[segment] = SegmentSlice(str(delta.segment), past.epoch, delta.rows, delta.bytes)


def differs(past: Past, report: Report, *, same: bool) -> NondeterministicCode:
    """The error of a repair that gives another result than the one that was published (G)."""
    why = (
        "It depends on something that is not logged: take ctx.random, ctx.now, ctx.uuid, ctx.http "
        "or ctx.call in its place"
        if same
        else "The code has changed since: start the code of that time once"
    )
    return NondeterministicCode(
        f"computation {report.host!r}: epoch {past.epoch} was run again, because state that was "
        f"not durable yet is lost, and {report.label} made another result than the one that is "
        f"committed, and perhaps delivered. {why}. Two ways out for this checkpoint: accept the "
        "new state from that epoch on, while rows that were delivered stay "
        "(accept_repairs=True, headrace run --accept-repairs); or go back to a savepoint "
        "(headrace restore)"
    )


def _instead(entry: SegmentSlice, other: Mapping[str, SegmentSlice]) -> SegmentSlice:
    """An entry, or the one that was accepted in its place, in the same classes."""
    found = other.get(entry.segment)
    return entry if found is None else msgspec.structs.replace(found, of=entry.of)


def _over(order: WorkOrder, other: Mapping[str, SegmentSlice]) -> WorkOrder:
    """A work order over state that was accepted in the place of what was lost."""
    if not other:
        return order
    bases = {
        name: {
            slot: msgspec.structs.replace(
                base, entries=tuple(_instead(entry, other) for entry in base.entries)
            )
            for slot, base in slots.items()
        }
        for name, slots in order.bases.items()
    }
    return msgspec.structs.replace(order, bases=bases)
