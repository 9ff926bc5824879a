"""Work orders with many slots: what slots start from is sent in parts, of which tasks keep the sum.

A task must know what its slots start from: segments, chains and classes. With ten thousand slots
that is tens of megabytes, and almost all of it was in the last order too. So a large order does not
list its slots. The driver writes a *part* for each commit: the deltas of the commit, which tasks
fold as the driver does, the slots that changed in another way, and, in turn, a share of all slots
as they are. An order names the last parts. A worker that has the sum of the part before the last
reads one; one that has nothing reads them all, and has every slot then.

Invariants:
- A part is named by its content, which names the part before it: equal names mean equal sums.
- Parts describe the ledger of the last commit. What a plan's own ring change makes of some slots
  is in the order, as that plan may be voided.
- The parts of an order are of consecutive epochs; collection keeps as many (`order_parts`).
- Nothing depends on parts of another driver: the first part of each driver has every slot.
"""

from __future__ import annotations

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.limits import Limits
from headrace.log import paths
from headrace.log.content import digest_of, verify
from headrace.plan.epoch import SlotDelta, SlotsStep, WorkOrder
from headrace.plan.rings.classes import SlotLedger
from headrace.plan.rings.manifest import fold_deltas
from headrace.plan.rings.shards import shard_content, shard_of
from headrace.store.store import Store

Slots = dict[str, dict[int, SlotLedger]]


class OrderPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one commit has changed in the manifests, and a share of all slots as they are."""

    before: str
    """The part before it; "" if this one has every slot."""
    epoch: int
    """The epoch of the commit."""
    position: int
    chains_kept: int
    deltas: dict[str, dict[int, SlotDelta]] = {}
    slots: Slots = {}
    """Slots as they are after the commit, whatever was known of them."""
    gone: dict[str, list[int]] = {}


class SentOrder(msgspec.Struct, frozen=True):
    """A work order as it is sent: whole, or with the names of parts in place of its slots."""

    order: WorkOrder
    parts: tuple[str, ...] = ()
    """The newest last; () if the order is whole."""
    counts: dict[str, int] = {}
    """Computation -> how many slots the parts have in sum."""
    moved: dict[str, dict[int, SlotLedger | None]] = {}
    """Computation -> slots that this plan's ring change gives something else to start from."""


class PartsWriter:
    """The driver's side: makes parts, and names them in orders."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self._store = store
        self._limits = limits or store.system.limits
        self._state = (0, 0)
        """Of which manifests, and after how many changes, the last part is."""
        self._parts: tuple[str, ...] = ()
        self.bytes = 0
        """The size of the last part."""

    def split(self, order: WorkOrder) -> SentOrder:
        """The order as it is sent. Writes a part if a commit came since the last order."""
        step = order.step
        few = sum(map(len, order.bases.values())) < self._limits.order_slots_min
        if step is None or few or not order.bases.keys() <= step.slots.keys():
            self.reset()
            return SentOrder(msgspec.structs.replace(order, step=None))
        if step.state != self._state or not self._parts:
            self._write(order.plan.epoch, step)
        moved = {
            name: {slot: order.bases[name].get(slot) for slot in slots}
            for name, slots in step.moved.items()
        }
        counts = {name: len(step.slots[name]) for name in order.bases}
        small = msgspec.structs.replace(order, bases={}, step=None)
        return SentOrder(small, self._parts, counts, moved)

    def reset(self) -> None:
        """The next large order begins with every slot: perhaps a part got lost."""
        self._state, self._parts, self.bytes = (0, 0), (), 0

    def _write(self, epoch: int, step: SlotsStep) -> None:
        manifests, number = step.state
        follows = bool(self._parts) and self._state == (manifests, number - 1)
        limits = self._limits
        if not follows or step.changed is None:
            part = OrderPart("", step.epoch, 0, step.chains_kept, slots=step.slots)
            self._parts = ()
        else:
            slots: Slots = {}
            for name, known in step.slots.items():
                last = shard_of(max(known, default=0), limits)
                slots[name] = {}
                for shard in range(number % limits.order_parts, last + 1, limits.order_parts):
                    slots[name].update(shard_content(known, shard, limits))
            gone: dict[str, list[int]] = {}
            for name, changed in step.changed.items():
                known = step.slots[name]
                slots[name].update({slot: known[slot] for slot in changed if slot in known})
                gone[name] = sorted(slot for slot in changed if slot not in known)
            part = OrderPart(
                self._parts[-1],
                step.epoch,
                step.position,
                step.chains_kept,
                step.deltas,
                slots,
                gone,
            )
        data = msgspec.msgpack.encode(part)
        name = f"{paths.WORK}/{paths.content_name(epoch, paths.ORDER_PART, digest_of(data))}"
        self._store.write_volatile(name, data)
        self._parts = (*self._parts, name)[-limits.order_parts :]
        self._state, self.bytes = step.state, len(data)


_decoder = msgspec.msgpack.Decoder(OrderPart)


class PartsReader:
    """A worker's side: the sum of all parts up to one."""

    def __init__(self) -> None:
        self._last = ""
        self._slots: Slots = {}
        self.parts_read = 0

    def open(self, store: Store, sent: SentOrder) -> WorkOrder:
        """The whole work order."""
        if not sent.parts:
            return sent.order
        known = self._last in sent.parts
        first = sent.parts.index(self._last) + 1 if known else 0
        slots = {name: each.copy() for name, each in self._slots.items()} if known else {}
        for name in sent.parts[first:]:
            data = store.read(name)
            verify(name, data)
            _add(slots, _decoder.decode(data))
            self.parts_read += 1
        found = {name: len(slots.get(name, {})) for name in sent.counts}
        if found != sent.counts:
            raise CorruptCheckpoint(
                f"the parts of the work order of epoch {sent.order.plan.epoch} have {found} slots "
                f"and not {sent.counts}: start the pipeline again, and please report it"
            )
        self._last, self._slots = sent.parts[-1], slots
        bases = {name: slots[name] for name in sent.counts}
        for name, moved in sent.moved.items():
            under_ring: dict[int, SlotLedger | None] = {**bases[name], **moved}
            bases[name] = {s: state for s, state in sorted(under_ring.items()) if state is not None}
        return msgspec.structs.replace(sent.order, bases=bases)


def _add(slots: Slots, part: OrderPart) -> None:
    """Adds a part. A slot that is not known yet comes as a whole, in this part or a later one."""
    for name, deltas in part.deltas.items():
        known = slots.setdefault(name, {})
        if not deltas.keys() <= known.keys():
            deltas = {slot: delta for slot, delta in deltas.items() if slot in known}
        fold_deltas(known, deltas, part.epoch, part.position, part.chains_kept)
    for name, whole in part.slots.items():
        slots.setdefault(name, {}).update(whole)
    for name, gone in part.gone.items():
        for slot in gone:
            slots.setdefault(name, {}).pop(slot, None)
