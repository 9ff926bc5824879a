"""Random ring changes over the real ledger, segments, compaction, cache, outbox and shards.

One schedule: in each epoch the ring may change, plans may be voided, attempts may be dropped;
merges are in flight over several epochs; each slot runs on one of two workers; pieces are
prefetched; and after every commit a driver recovers each shard from its own snapshot. A plain dict
says what each key holds. `Broken` says which promise was not kept.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tests.unit.rings import ring_of
from tests.unit.systems import limited

from headrace.engine.history import recovery
from headrace.engine.history.shards import fold_shards
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.entry import COMMIT, PLAN, LogEntry
from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.rows import Rows
from headrace.model.values.time import END
from headrace.plan.counters import Counters
from headrace.plan.entries import CommitBody
from headrace.plan.epoch import Adoption, Commit, OutboxFile, Plan, SlotDelta, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.parcel import Parcel
from headrace.plan.rings import changes as ring_changes
from headrace.plan.rings import manifest, towards
from headrace.plan.rings.changes import RingChange
from headrace.plan.rings.classes import SegmentSlice
from headrace.plan.rings.refs import RingStep
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.wanted import Move
from headrace.state import compaction
from headrace.state.cache import WorkerCache
from headrace.state.segment import FIELD, TIMER, Cell, encode_batch, encode_segment
from headrace.state.slots import OpenSlot
from headrace.store.memory import MemoryStore
from headrace.worker.exchange import outbox

NAME = "C"
KEYS = sorted((encode_key(f"key {i}") for i in range(14)), key=hash_key)
HASHES = [hash_key(key) for key in KEYS]
ALL = np.array(HASHES, np.uint64)
EPOCHS = 30


class Broken(Exception):
    """A promise was not kept."""


class Merge(NamedTuple):
    """A merge in flight."""

    slot: int
    run: tuple[SegmentSlice, ...]
    entry: SegmentSlice
    classes: tuple[int, ...]
    ready: int


class Schedule:
    """One random history of one computation."""

    def __init__(self, seed: int, *, net: bool = True) -> None:
        """Without `net`, each move of an epoch is carried out by itself."""
        self.random = random.Random(seed)
        self.net = net
        shard = self.random.choice((1, 2))
        # Of every other history, most timers are found in the segments.
        memory = {"cached_cells_max": 2, "window_cells": 1} if seed % 2 else {}
        system = limited(snapshot_every_epochs=3, shard_slots=shard, chains_kept=5, **memory)
        self.limits = system.limits
        self.store = MemoryStore(system)
        self.ledger = Ledger()
        self.slots = self.random.randrange(1, 4)
        self.truth: dict[int, int | None] = {}
        self.workers = [WorkerCache(), WorkerCache()]
        self.merges: list[Merge] = []
        self.files: list[OutboxFile] = []
        self.posted: dict[str, list[str]] = {}
        self.entries: list[tuple[int, LogEntry]] = []
        self.goals: list[list[int]] = []
        """Key -> slot, in some earlier epochs."""
        self.clock = 0
        self.turned = self.adopted = 0

    def run(self) -> None:
        """Raises Broken where a promise was not kept."""
        for _ in range(EPOCHS):
            self._epoch()

    # One epoch ------------------------------------------------------------

    def _epoch(self) -> None:
        dice, epoch = self.random, self.ledger.epoch + 1
        if self.ledger.rings and dice.random() < 0.3:
            self._prefetch()
        while True:
            plan, changes = self._plan(epoch)
            bases = self.ledger.bases(plan, changes)[NAME]
            ring = self._ring_under(plan, changes)
            order = WorkOrder(
                plan, "id", {}, {}, {NAME: bases}, {NAME: self.files},
                self.ledger.refs(plan, changes) if self.net else {},
                {name: change.came for name, change in changes.items()},
            )  # fmt: skip
            self._deliver(order, ring)
            for _ in range(dice.randrange(1, 3)):  # attempts; only the last one may count
                made = {slot: self._attempt(order, ring, slot, epoch) for slot in sorted(bases)}
            if dice.random() >= 0.15:
                break  # otherwise the plan is voided: its ring and its deltas never were
        self._commit(plan, changes, made, ring)
        if dice.random() < 0.7:
            self._begin_merge()

    def _plan(self, epoch: int) -> tuple[Plan, dict[str, RingChange]]:
        self.clock += 1
        if not self.ledger.rings:
            bases = {NAME: f"even/{self.slots}"}
            return Plan(1, self.clock, 0, "", [], {}, {NAME: 1}, ring_bases=bases), {}
        raw = self._moves() if self.random.random() < 0.45 else []
        known = self.ledger.rings[NAME]
        ring = ring_of(self.ledger, NAME)
        net = towards.net_moves(ring, raw) if raw else ()
        version = known.version + bool(net)
        moves = {NAME: net} if net else {}
        plan = Plan(epoch, self.clock, 0, "", [], {}, {NAME: version}, moves=moves)
        if not net:
            return plan, {}
        if not self.net:
            return plan, {NAME: self._one_by_one(raw, epoch)}
        kept = self.limits.chains_kept
        change = ring_changes.change_ring(known, ring, self.ledger.slots[NAME], net, epoch, kept)
        return plan, {NAME: change}

    def _moves(self) -> list[Move]:
        """A whole slot goes, a part of the ring moves or splits off, or goes back; once or twice.

        What goes back meets the segments that its slot has kept.
        """
        dice, found = self.random, []
        slots = list(self.ledger.slots[NAME])
        goal = ring_of(self.ledger, NAME).place(ALL).tolist()
        self.goals.append(list(goal))
        for _ in range(dice.randrange(1, 3)):
            kind = dice.random()
            if kind < 0.35 and self.goals:
                back = dice.choice(self.goals[-4:])
                to = dice.choice(back)
                places = [i for i, slot in enumerate(back) if slot == to]
            elif kind < 0.55:
                gone, to = dice.choice(sorted(set(goal))), dice.choice(sorted(set(goal)))
                places = [i for i, slot in enumerate(goal) if slot == gone]
            else:
                first = dice.randrange(len(KEYS))
                places = list(range(first, dice.randrange(first, len(KEYS)) + 1))
                to = dice.choice([*sorted(set(goal)), max([*goal, *slots]) + 1])
            for i in places:
                goal[i] = to
                low = HASHES[i] if i else 0
                last = HASHES[i + 1] - 1 if i + 1 < len(KEYS) else 2**64 - 1
                found.append(Move(low, last, to))
        return found

    def _one_by_one(self, moves: list[Move], epoch: int) -> RingChange:
        """What happens where moves are not net: a class comes from a slot that never ran it."""
        ref, ring = self.ledger.rings[NAME], ring_of(self.ledger, NAME)
        slots = dict(self.ledger.slots[NAME])
        touched: dict[int, Any] = {}
        came: dict[int, tuple[Any, ...]] = {}
        for move in moves:
            net = towards.net_moves(ring, [move])
            if not net:
                continue
            last = ring_changes.change_ring(ref, ring, slots, net, epoch, self.limits.chains_kept)
            touched.update(last.slots)
            slots = {s: t for s, t in {**slots, **last.slots}.items() if t is not None}
            came.update(last.came)
            ref, ring = ref.then(last.step), last.ring
        first = ring_of(self.ledger, NAME)
        net = towards.net_moves(first, moves)
        whole, goes = first.cut(net)
        now = ring.classes[np.searchsorted(ring.lows, whole.lows, side="right") - 1]
        made = {
            (int(to), int(old)): int(new)
            for to, slot, old, new in zip(goes, whole.owners, whole.classes, now, strict=True)
            if to != slot
        }
        step = RingStep(net, tuple((to, old, new) for (to, old), new in made.items()))
        return RingChange(step, step.apply(first), touched, came)

    def _ring_under(self, plan: Plan, changes: dict[str, RingChange]) -> Ring:
        if not self.ledger.rings:
            return Ring.even(self.slots)
        return changes[NAME].ring if changes else ring_of(self.ledger, NAME)

    # What tasks do --------------------------------------------------------

    def _attempt(
        self, order: WorkOrder, ring: Ring, slot: int, epoch: int
    ) -> tuple[str | None, int, dict[int, int | None]]:
        dice = self.random
        worker = dice.choice(self.workers)
        records = ring.records(slot)
        opened = worker.open(self.store, "id", NAME, slot, order.base(NAME, slot), records)
        owned = np.flatnonzero(ring.place(ALL) == slot).tolist()
        self._check(opened, slot, owned, epoch)
        changes: dict[int, int | None] = {}
        for i in owned:
            if dice.random() < 0.25:
                self.clock += 1
                changes[i] = None if dice.random() < 0.4 else self.clock
        segment, size = self._write(changes, f"{NAME}/{slot}", epoch)
        timers = {
            (KEYS[i], "event", b"t"): None if at is None else (at, at) for i, at in changes.items()
        }
        objects = [(KEYS[i], at, False) for i, at in changes.items()]
        opened.leave(segment, {"event": timers}, objects)
        return segment, size, changes

    def _check(self, opened: OpenSlot, slot: int, owned: list[int], epoch: int) -> None:
        """Segments and cache say what a plain dict says, and nothing about other slots' keys."""
        index = opened.indexes["event"]
        stored = opened.view.fetch(KEYS, ALL, maps=False)
        for i, key in enumerate(KEYS):
            want = self.truth.get(i) if i in owned else None
            cell = stored[i].fields.get("n")
            found = None if cell is None else int(cell[0])
            where = f"epoch {epoch}, slot {slot}, key {i}"
            if found != want:
                raise Broken(f"{where}: segments say {found}, and it is {want}")
            timed = index.get((key, "event", b"t"))
            if (None if timed is None else timed[0]) != want:
                raise Broken(f"{where}: the cache says {timed}, and it is {want}")
            warm, _ = opened.objects.take(key)
            if warm is not None and warm != want:
                raise Broken(f"{where}: a cached object says {warm}, and it is {want}")
        live = sum(self.truth.get(i) is not None for i in owned)
        fire = [at for at, _ in index.due(END)]
        if len(index) != live or fire != sorted(
            at for i in owned if (at := self.truth.get(i)) is not None
        ):
            raise Broken(f"epoch {epoch}, slot {slot}: timers fire that are not there, or not")

    def _write(
        self, changes: dict[int, int | None], label: str, epoch: int
    ) -> tuple[str | None, int]:
        if not changes:
            return None, 0
        cells = []
        for i, at in changes.items():
            value = b"" if at is None else b"%d" % at
            gone = at is None
            cells.append(Cell(HASHES[i], KEYS[i], FIELD, "n", b"", value, 0, tombstone=gone))
            time = at or 0
            cells.append(Cell(HASHES[i], KEYS[i], TIMER, "event", b"t", b"", time, time, 1, gone))
        return self._put(encode_segment(cells), label, epoch)

    def _put(self, data: bytes, label: str, epoch: int) -> tuple[str, int]:
        name = paths.content_name(epoch, label, digest_of(data), ".arrow")
        full = f"{paths.state_directory(NAME)}/{name}"
        self.store.write(full, data)
        return full, len(data)

    def _prefetch(self) -> None:
        """A worker builds a piece of some slot, which may be asked for later, or never."""
        slot = self.random.choice(sorted(self.ledger.slots[NAME]))
        base = self.ledger.slots[NAME][slot].base()
        records = ring_of(self.ledger, NAME).records(slot)
        self.random.choice(self.workers).prefetch(self.store, "id", NAME, slot, base, records)

    # What the driver does -------------------------------------------------

    def _commit(
        self,
        plan: Plan,
        changes: dict[str, RingChange],
        made: dict[int, tuple[str | None, int, dict[int, int | None]]],
        ring: Ring,
    ) -> None:
        epoch = plan.epoch
        deltas = {slot: SlotDelta(each[0], 1, each[1]) for slot, each in made.items()}
        steps = {name: change.step.classes for name, change in changes.items()}
        self.files = self._post(ring, epoch)
        commit = Commit(
            epoch, {}, {}, {}, plan.rings, {NAME: deltas}, self.files, [], Counters(), 0,
            self._adoptions(changes, epoch), steps=steps,
        )  # fmt: skip
        position = 2 * epoch
        self.ledger.planned(plan)
        self.ledger.committed(commit, position, self.limits, changes)
        shards = self.ledger.carried(commit, changes, self.limits)
        self.ledger.carries(shards, position)
        for _, _, delta in made.values():
            self.truth.update(delta)
        self.turned += bool(changes)
        body = CommitBody(commit, shards=shards)
        for at, kind, content in ((position - 1, PLAN, plan), (position, COMMIT, body)):
            raw = msgspec.Raw(msgspec.json.encode(content))
            self.entries.append((at, LogEntry(kind, 1, "", raw)))
        if self.net:
            self._recover()

    def _recover(self) -> None:
        """Another driver folds each shard from its own snapshot, and the rest from the start."""
        index = self.ledger.shards
        first = min(at for of_name in index.values() for at in of_name.values())
        tail = [(at, entry) for at, entry in self.entries if at >= first]
        found = fold_shards(tail, index, self.limits)
        if found != self.ledger.slots:
            raise Broken(f"epoch {self.ledger.epoch}: recovery has another manifest")
        if self.ledger.epoch == EPOCHS:
            history = recovery.History(1, self.limits)
            for at, entry in self.entries:
                history.fold(at, entry)
            history.ledger.generation = self.ledger.generation
            if history.ledger != self.ledger or history.files() < self.ledger.segments():
                raise Broken("the fold of the whole log is another ledger")

    def _begin_merge(self) -> None:
        """Any permitted run of any slot, merged as the slot is now, adopted later.

        Two merges may overlap, as those of a driver and of its predecessor would.
        """
        dice, ring = self.random, ring_of(self.ledger, NAME)
        slot = dice.choice(sorted(self.ledger.slots[NAME]))
        state = self.ledger.slots[NAME][slot]
        epochs = sorted({e.last_epoch for e in state.entries}, reverse=True)
        if len(epochs) < 2:
            return
        start = dice.randrange(len(epochs) - 1)
        end = len(epochs) if dice.random() < 0.6 else dice.randrange(start + 2, len(epochs) + 1)
        chosen = epochs[start:end]
        run = tuple(e for e in state.entries if e.last_epoch in chosen)
        bottom = compaction.is_bottom(run, state.entries)
        parts = compaction.parts_of(self.store, run, ring.records(slot), state.classes)
        batch = compaction.merge(parts, bottom=bottom, expired_before=0)
        label = f"{NAME}/{slot}~{len(self.entries)}"
        name, size = self._put(encode_batch(batch), label, self.ledger.epoch + 1)
        entry = SegmentSlice(name, max(chosen), batch.num_rows, size, bottom)
        later = compaction.later_classes(run, state.classes)
        ready = self.ledger.epoch + 1 + dice.choice((0, 0, 1, 2, 4))
        self.merges.append(Merge(slot, run, entry, later, ready))

    def _adoptions(self, changes: dict[str, RingChange], epoch: int) -> list[Adoption]:
        found = []
        for merge in [merge for merge in self.merges if merge.ready <= epoch]:
            self.merges.remove(merge)
            known = self.ledger.slots[NAME].get(merge.slot)
            state = changes[NAME].slots.get(merge.slot, known) if changes else known
            if any(each.slot == merge.slot for each in found):
                continue  # the other one has changed the entries
            if state is None or not manifest.adopts(merge.run, state):
                continue
            replaces = tuple((e.segment, e.of) for e in merge.run)
            found.append(Adoption(NAME, merge.slot, replaces, merge.entry, False, merge.classes))
            self.adopted += 1
        return found

    # Feedback -------------------------------------------------------------

    def _post(self, ring: Ring, epoch: int) -> list[OutboxFile]:
        """Files of this epoch, under its ring, for the next one."""
        dice, files = self.random, []
        self.posted = {}
        for slot in ring.slots:
            places = [dice.randrange(len(KEYS)) for _ in range(dice.randrange(4))]
            if not places:
                continue
            told = [f"{epoch}.{slot}.{n}" for n in range(len(places))]
            rows = Rows.of(told, [0] * len(told))
            data, slots = outbox.encode_outbox(Parcel(KEYS, np.array(places, np.int32), rows), ring)
            name = paths.content_name(epoch, f"{NAME}/{slot}>", digest_of(data), ".arrow")
            self.store.write(f"{paths.OUTBOX}/{name}", data)
            files.append(OutboxFile(name, NAME, "s", f"{NAME}/{slot}", 0, len(told), slots=slots))
            self.posted[name] = [f"{n} for {KEYS[i]!r}" for n, i in zip(told, places, strict=True)]
        return files

    def _deliver(self, order: WorkOrder, ring: Ring) -> None:
        """Each row of each file reaches the slot of its key, once."""
        if not self.net:
            return
        found: list[str] = []
        places = dict(zip(KEYS, ring.place(ALL).tolist(), strict=True))
        for slot in sorted(order.bases[NAME]):
            for file in outbox.files_for(order, NAME, slot):
                for parcel in outbox.read_outbox(self.store, order, file, slot):
                    keys = [parcel.keys[code] for code in parcel.codes.tolist()]
                    for told, key in zip(parcel.rows.values(), keys, strict=True):
                        found.append(f"{told} for {key!r}" if places[key] == slot else "foreign")
        if sorted(found) != sorted(row for rows in self.posted.values() for row in rows):
            raise Broken(f"epoch {order.plan.epoch}: feedback did not reach the slots of its keys")


def complaint(seed: int, *, net: bool = True) -> str | None:
    """Which promise a schedule breaks; None if it keeps all."""
    try:
        Schedule(seed, net=net).run()
    except Broken as broken:
        return str(broken)
    except KeyError as error:
        if net:
            raise
        return f"the ring names a class that its slot does not have: {error}"
    return None
