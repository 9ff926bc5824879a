"""A driver that balances and scales: what commits say, what a takeover finds, and what notes do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from tests.unit.engine.support import Clock, Local, counting

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.engine.history.recovery import recover
from headrace.engine.history.shards import decode_body
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.log.entry import COMMIT
from headrace.log.epochlog import EpochLog
from headrace.plan.decisions.next_step import Run
from headrace.plan.elastic.load import SlotNote
from headrace.plan.elastic.settings import Scale
from headrace.plan.entries import CommitBody
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.listener import NoticeCallback
from headrace.plan.options import Options
from headrace.store.memory import MemoryStore

Fate = Callable[[list[SlotNote]], Sequence[SlotNote]]
VALUES = [f"{n % 97}" for n in range(4000)]


class Led:
    """A checkpoint, and the driver that leads it."""

    def __init__(self, measure: Fate, **options: object) -> None:
        self.topology = counting(VALUES)
        self.store = MemoryStore()
        self.substrate = Local(self.topology, self.store)
        self.substrate.measure = measure
        self.substrate.disturb = self._time_passes
        self.clock = Clock()
        self.reports: list[Report] = []
        self.options = Options(slots=4, epoch_records=100, **options)  # type: ignore[arg-type]
        self.driver = self.start()

    def start(self) -> Driver:
        setup = Setup(
            self.topology,
            fingerprint(self.topology.graph),
            self.store,
            self.substrate,
            self.options,
            clock=self.clock,
            seeds=lambda: 1,
        )
        self.driver = Follower(setup).take_over()
        return self.driver

    def _time_passes(self, order: WorkOrder, reports: list[Report]) -> Sequence[Report]:
        """An epoch takes a second."""
        self.clock.now += 1_000_000
        self.reports += reports
        return reports

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            assert isinstance(self.driver.step(), Run)

    def commits(self) -> list[CommitBody]:
        found = []
        for position, entry in EpochLog(self.store).backwards():
            if entry.kind == COMMIT:
                found.append(decode_body(position, entry, CommitBody))
        return found[::-1]


def as_measured(notes: list[SlotNote]) -> Sequence[SlotNote]:
    return [msgspec.structs.replace(note, wall_us=100) for note in notes]


def hot(slot: int) -> Fate:
    """One slot is busy for most of the time."""

    def fate(notes: list[SlotNote]) -> Sequence[SlotNote]:
        return [
            msgspec.structs.replace(n, wall_us=900_000 if n.label.endswith(f"/{slot}") else 50_000)
            for n in notes
        ]

    return fate


def test_only_report_epochs_say_something_of_load() -> None:
    led = Led(as_measured, balance="even")
    led.run(8)
    bodies = led.commits()
    assert [body.commit.epoch for body in bodies if body.load is not None] == [2, 4, 6, 8]
    assert all((order.plan.epoch % 2 == 0) == order.plan.sketch for order in led.substrate.tasks)


def test_nothing_is_reported_where_nothing_is_decided() -> None:
    led = Led(as_measured)
    led.run(6)
    assert all(body.load is None and body.decided is None for body in led.commits())
    assert not any(order.plan.sketch for order in led.substrate.tasks)


def test_a_slot_reports_records_bytes_keys_and_a_sketch() -> None:
    led = Led(as_measured, balance="even")
    led.run(2)
    loads = [r.load for r in led.reports if r.load is not None]
    assert sum(load.records for load in loads) == 100
    assert sum(load.keys for load in loads) == 97
    assert all(load.sketch.total == load.records for load in loads)
    assert all((load.bytes_in > 0) == (load.records > 0) for load in loads)
    assert all((load.bytes > 0) == (load.rows > 0) for load in loads)


FATES: dict[str, Fate] = {
    "lost": lambda notes: [],
    "doubled": lambda notes: [
        *as_measured(notes),
        *(msgspec.structs.replace(note, wall_us=10_000) for note in notes),
    ],
    "of other epochs": lambda notes: [
        msgspec.structs.replace(note, epoch=note.epoch + shift, wall_us=100)
        for note in notes
        for shift in (-50, -1, 50)
    ],
    "of nothing": lambda notes: [SlotNote(1, "Count/99", 5), SlotNote(1, "values/a#00000", 5)],
}


@pytest.mark.parametrize("fate", FATES)
def test_what_becomes_of_notes_changes_no_digest_and_no_plan(fate: str) -> None:
    honest, other = Led(as_measured, balance="even"), Led(FATES[fate], balance="even")
    honest.run(10)
    other.run(10)
    for one, two in zip(honest.commits(), other.commits(), strict=True):
        assert one.commit.digests == two.commit.digests
        assert one.next == two.next


def test_a_decision_stands_in_its_commit_with_its_reason() -> None:
    led = Led(hot(1), balance="even")
    led.run(4)
    assert [body.commit.epoch for body in led.commits() if body.decided is not None] == [4]
    [decision] = led.driver.ledger.load.decisions
    assert decision.computation == "Count"
    assert "slot 1 has" in decision.reason
    assert "times its share in two reports in a row" in decision.reason


def test_a_recovered_ledger_has_the_same_load_and_decisions() -> None:
    led = Led(hot(1), balance="even", scale=Scale(), max_slots=8)
    for _ in range(12):
        led.run(1)
        again = recover(EpochLog(led.store), 2).ledger
        assert again.load == led.driver.ledger.load
        assert again.wanted == led.driver.ledger.wanted
        assert again.tasks == led.driver.ledger.tasks


def test_a_new_leader_goes_on_with_what_the_ledger_says() -> None:
    """No leader lives long enough for two reports; together they see the hot slot."""
    led = Led(hot(1), balance="even")
    for _ in range(4):
        led.run(3)
        assert not led.driver.ledger.load.decisions or led.driver.ledger.epoch > 3
        led.start()
    assert any("slot 1 has" in d.reason for d in led.driver.ledger.load.decisions)


def test_the_view_of_a_ring_is_made_once() -> None:
    led = Led(as_measured, balance="even")
    led.run(2)
    _, view = led.driver._elastic._views["Count"]
    led.run(4)
    assert led.driver._elastic._views["Count"][1] is view
    led.substrate.measure = hot(1)
    led.run(8)
    ref = led.driver.ledger.rings["Count"]
    assert ref.version > view.version
    digest, later = led.driver._elastic._views["Count"]
    assert (digest, later.version) == (ref.digest, ref.version)


def test_an_epoch_reports_early_where_the_last_report_asks_for_it() -> None:
    led = Led(as_measured, balance="even")
    led.run(2)
    ledger = led.driver.ledger
    ledger.load = msgspec.structs.replace(ledger.load, soon=True)
    led.driver.stop()
    led.run(1)
    led.driver.stop()
    led.run(5)
    reports = [order.plan.epoch for order in led.substrate.tasks if order.plan.sketch]
    assert set(reports) >= {2, 4, 6, 8}
    assert len(set(reports)) == 5


def test_listeners_hear_what_was_decided() -> None:
    heard = []
    led = Led(hot(1), balance="even", listeners=(NoticeCallback(heard.append),))
    led.run(4)
    assert [notice.kind for notice in heard] == ["balancer"]
    assert "Count:" in heard[0].text


def test_a_balancer_that_fails_does_not_stop_the_pipeline() -> None:
    heard = []
    led = Led(hot(1), balance="even", listeners=(NoticeCallback(heard.append),))
    broken = msgspec.structs.replace(led.driver._elastic.settings, uneven="much")
    led.driver._elastic.settings = broken
    led.run(8)
    assert [notice.kind for notice in heard] == ["doubt"]
    assert "rings stay as they are" in heard[0].text


def final_state(led: Led) -> dict[object, object]:
    return dict(Checkpoint(led.store).scan("Count"))


@pytest.mark.parametrize("balance", ["even", "ring"])
def test_rings_that_move_while_it_runs_change_no_state(balance: str) -> None:
    """Another slot is hot every six epochs, slots come and leave, and drivers take over."""
    still = Led(as_measured)
    still.run(39)
    moving = Led(as_measured, balance=balance, scale=Scale(cooldown="2s"), max_slots=8)
    versions = set()
    for epoch in range(39):
        moving.substrate.measure = hot(epoch // 6 % 4)
        moving.run(1)
        versions.add(moving.driver.ledger.rings["Count"].version)
        if epoch % 7 == 6:
            moving.start()
    assert len(versions) >= 3
    assert final_state(moving) == final_state(still)


def test_more_load_gets_more_slots_and_less_load_fewer() -> None:
    def busy(records_us: int) -> Fate:
        return lambda notes: [
            msgspec.structs.replace(n, wall_us=records_us + 20_000, records_us=records_us)
            for n in notes
        ]

    scale = Scale(cooldown="2s", drain="10s")
    led = Led(busy(950_000), balance="even", scale=scale, max_slots=16)
    led.run(8)
    assert len(led.driver.ledger.slots["Count"]) > 4
    led.substrate.measure = busy(5_000)
    led.run(14)
    assert len(led.driver.ledger.slots["Count"]) == 1
    led.start()
    led.run(4)
    assert len(led.driver.ledger.slots["Count"]) == 1, "a takeover takes nothing back"
    reasons = [decision.reason for decision in led.driver.ledger.load.decisions]
    assert any("above 80%" in reason for reason in reasons)
    assert any("below 50%" in reason for reason in reasons)


def test_a_note_says_what_records_took_apart_from_the_rest() -> None:
    seen: list[SlotNote] = []

    def keep(notes: list[SlotNote]) -> Sequence[SlotNote]:
        seen.extend(notes)
        return notes

    led = Led(keep, balance="even")
    led.run(3)
    assert len(seen) == 3 * 4
    assert all(0 < note.records_us < note.wall_us for note in seen)


def test_commits_say_what_waits_to_be_read() -> None:
    led = Led(as_measured, balance="even", scale=Scale(cooldown="1h"), max_slots=4)
    led.run(6)
    loads = [body.load for body in led.commits() if body.load is not None]
    demands = [load.demand["Count"] for load in loads if "Count" in load.demand]
    waiting = [demand.waiting for demand in demands]
    assert None not in waiting
    assert any(waiting), "the source has much more than one epoch reads"
    assert all(load.overhead > 0 for load in loads if load.demand)
