"""Large work orders are sent in parts: whoever puts them together has what the driver has."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.unit.rings import changes_in, lead, plan_of, ring_of, to

from headrace.engine.jobs.order_parts import PartsReader, PartsWriter, SentOrder
from headrace.errors import CorruptCheckpoint
from headrace.limits import Limits
from headrace.plan.counters import Counters
from headrace.plan.epoch import Adoption, Commit, Drop, Plan, SlotDelta, WorkOrder
from headrace.plan.interval.state import CommitInterval
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice
from headrace.store.memory import MemoryStore
from headrace.system import System

PARTS = 3
LIMITS = Limits(order_slots_min=0, order_parts=PARTS, shard_slots=1, chains_kept=4)
SLOTS = 5


class Leader:
    """A ledger that commits, and the orders that follow from it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.store = MemoryStore(System(limits=limits))
        self.ledger = Ledger()
        self.writer = PartsWriter(self.store)
        self.plan = plan_of(self.ledger, SLOTS)

    def commit(
        self, slots: list[int], adoptions: list[Adoption] = (), *, written: bool = False
    ) -> None:
        """The commit of the open plan: these slots have a delta."""
        epoch = self.plan.epoch
        ring = [*self.ledger.bases(self.plan, changes_in(self.ledger, self.plan))["C"]]
        deltas = {
            slot: SlotDelta(
                f"s{epoch}.{slot}" if slot in slots else None,
                1,
                10,
                rides=slot == 1,
                written=written,
            )
            for slot in ring
        }
        given = Commit(
            epoch, {}, {}, {}, self.plan.rings, {"C": deltas}, [], [], Counters(), 0,
            adoptions=list(adoptions),
        )  # fmt: skip
        lead(self.ledger, given, 10 * epoch, plan=self.plan, limits=self.limits)
        self.plan = plan_of(self.ledger)

    def order(self, plan: Plan | None = None) -> WorkOrder:
        plan = plan or self.plan
        changes = changes_in(self.ledger, plan, self.limits)
        return WorkOrder(
            plan, "id", {}, {}, self.ledger.bases(plan, changes), {},
            came={name: change.came for name, change in changes.items()},
            step=self.ledger.manifests.step(changes),
        )  # fmt: skip

    def send(self) -> tuple[WorkOrder, SentOrder]:
        """The order of the open plan, and what travels of it."""
        order = self.order()
        data = msgspec.msgpack.encode(self.writer.split(order))
        return order, msgspec.msgpack.decode(data, type=SentOrder)

    def read(self, reader: PartsReader) -> None:
        """A worker puts the order together, and has what the driver has."""
        order, sent = self.send()
        found = reader.open(self.store, sent)
        assert found.bases == order.bases
        assert found == msgspec.structs.replace(order, step=None)


def led(epochs: int) -> tuple[Leader, PartsReader]:
    """A leader after some epochs, and a worker that has had every order."""
    leader, reader = Leader(), PartsReader()
    for _ in range(epochs):
        leader.read(reader)
        leader.commit([0, 1, 2])
    return leader, reader


def test_a_worker_that_had_the_last_order_reads_one_part() -> None:
    leader, reader = led(6)
    before = reader.parts_read
    leader.read(reader)
    assert reader.parts_read == before + 1
    leader.read(reader)  # the same plan again, in another attempt
    assert reader.parts_read == before + 1


def test_a_worker_that_has_nothing_or_is_behind_has_every_slot_after_one_order() -> None:
    leader, behind = led(6)
    for _ in range(2):
        leader.send()
        leader.commit([0, 3])
    new = PartsReader()
    leader.read(new)
    assert new.parts_read == PARTS
    before = behind.parts_read
    leader.read(behind)
    assert behind.parts_read == before + 3
    for _ in range(PARTS + 2):
        leader.commit([4])
        leader.send()
    leader.read(behind)


def test_fragments_that_an_entry_of_its_own_adopts_reach_a_worker() -> None:
    """Also in the middle of an epoch, where the same plan is tried again after a repair (M3)."""
    leader, reader = led(6)
    leader.read(reader)
    run = leader.ledger.slots["C"][2].entries[:3]
    made = SegmentSlice("fragment", run[0].last_epoch, 3, 30)
    adoption = Adoption("C", 2, tuple((each.segment, each.of) for each in run), made)
    leader.ledger.kept(CommitInterval(checkpoint=run[0].last_epoch), [adoption], 99)
    assert leader.ledger.slots["C"][2].entries[0] == made
    leader.read(reader)
    leader.read(PartsReader())


def test_what_is_only_written_is_so_for_workers_too() -> None:
    leader, reader = led(3)
    leader.commit([0, 3], written=True)
    leader.read(reader)
    base = leader.order().bases["C"][3]
    assert [entry.written for entry in base.entries] == [True]


def test_a_part_does_not_list_all_slots() -> None:
    leader, _ = led(8)
    _, sent = leader.send()
    assert not sent.order.bases and len(sent.parts) == PARTS
    part = msgspec.msgpack.decode(leader.store.read(sent.parts[-1]))
    assert len(part["slots"]["C"]) <= -(-SLOTS // PARTS)


def test_what_changed_otherwise_than_by_a_delta_is_sent_as_it_is() -> None:
    leader, reader = led(6)
    entries = leader.ledger.slots["C"][0].entries
    run = tuple((entry.segment, entry.of) for entry in entries[1:4])
    merged = SegmentSlice("merged", entries[1].last_epoch, 3, 30)
    leader.commit([0, 1], [Adoption("C", 0, run, merged)])
    leader.read(reader)
    assert "merged" in [entry.segment for entry in leader.ledger.slots["C"][0].entries]
    leader.ledger.dropped(Drop("C", {1: ()}), 1000)
    leader.read(reader)


def test_a_ring_change_of_a_plan_that_is_voided_leaves_no_trace() -> None:
    leader, reader = led(6)
    leader.read(reader)
    plain = leader.plan
    low, last = 0, 2**60
    leader.plan = plan_of(leader.ledger, moves=to(leader.ledger, {(low, last): 7}))
    before = reader.parts_read
    leader.read(reader)
    assert 7 in leader.order().bases["C"] and leader.order().came["C"][7]
    leader.plan = plain
    leader.read(reader)
    assert reader.parts_read == before
    leader.plan = plan_of(leader.ledger, moves=to(leader.ledger, {(low, last): 7}))
    leader.commit([7])
    leader.read(reader)
    everything = {(low, last): 0 for slot in (7,) for low, last in owned(leader, slot)}
    leader.plan = plan_of(leader.ledger, moves=to(leader.ledger, everything))
    leader.read(reader)
    leader.commit([0])
    assert 7 not in leader.ledger.slots["C"]
    leader.read(reader)
    leader.read(PartsReader())


def owned(leader: Leader, slot: int) -> list[tuple[int, int]]:
    found = ring_of(leader.ledger).records(slot)
    return list(zip(found.lows.tolist(), found.lasts.tolist(), strict=True))


def test_orders_of_another_driver_begin_with_every_slot() -> None:
    """A worker may have parts of a driver that was fenced, with an equal number of changes."""
    one, reader = led(6)
    one.read(reader)
    other, _ = led(5)
    other.commit([3])
    other.store = one.store
    other.writer = PartsWriter(one.store)
    other.read(reader)
    one.read(reader)


def test_a_part_that_was_lost_is_noticed_and_a_reset_sends_every_slot() -> None:
    leader, _ = led(6)
    _, sent = leader.send()
    leader.store.delete(sent.parts[0])
    with pytest.raises(FileNotFoundError):
        PartsReader().open(leader.store, sent)
    shorter = msgspec.structs.replace(sent, parts=sent.parts[1:])
    with pytest.raises(CorruptCheckpoint, match="epoch 7"):
        PartsReader().open(leader.store, shorter)
    leader.writer.reset()
    leader.read(PartsReader())


def test_an_order_of_few_slots_is_whole() -> None:
    leader = Leader(msgspec.structs.replace(LIMITS, order_slots_min=SLOTS + 1))
    leader.commit([0])
    order, sent = leader.send()
    assert sent.parts == () and sent.order.bases == order.bases and sent.order.step is None
    assert leader.store.list("work") == []


@pytest.mark.parametrize("seed", range(40))
def test_workers_that_miss_orders_have_what_the_driver_has(seed: int) -> None:
    dice, leader = random.Random(seed), Leader()
    readers = [PartsReader() for _ in range(3)]
    for _ in range(25):
        if leader.ledger.rings and dice.random() < 0.4:
            low = dice.randrange(2**64 - 2)
            span = (low, dice.randrange(low, 2**64 - 1))
            moves = to(leader.ledger, {span: dice.randrange(8)})
            leader.plan = plan_of(leader.ledger, moves=moves)
        order, sent = leader.send()
        for reader in readers:
            if dice.random() < 0.5:
                assert reader.open(leader.store, sent).bases == order.bases
        if dice.random() < 0.2:
            readers[dice.randrange(3)] = PartsReader()
        if dice.random() < 0.2:  # voided, and planned again
            leader.plan = plan_of(leader.ledger, SLOTS)
            continue
        adoptions = []
        for slot, state in leader.ledger.slots.get("C", {}).items():
            own = [entry for entry in state.entries if entry.of is None]
            if len(own) > 2 and slot not in order.plan.moves and dice.random() < 0.3:
                run = tuple((entry.segment, None) for entry in own[:2])
                merged = SegmentSlice(f"m{order.plan.epoch}.{slot}", own[0].last_epoch, 1, 10)
                adoptions.append(Adoption("C", slot, run, merged))
        if order.plan.moves:
            adoptions = []
        leader.commit(dice.sample(range(8), 4), adoptions)
