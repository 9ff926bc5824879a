"""The simulated object store: what becomes of requests, and what a client makes of it."""

from __future__ import annotations

import pytest

from headrace.errors import StoreError
from headrace.log.epochlog import EpochLog
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import SimulatedDisk
from headrace.testing.simulator.machine.objects import (
    PART_BYTES,
    ObjectServer,
    SimulatedObjectStore,
)
from headrace.testing.simulator.machine.syscalls import Fault, Syscalls
from headrace.testing.simulator.machine.world import SimulatedSystem

UNANSWERED = (Fault.REFUSED, Fault.UNREPORTED, Fault.LATE, Fault.CONFLICT, Fault.THROTTLED)
ALL = (*UNANSWERED, Fault.REPEATED, Fault.TWICE)


class Cloud:
    """An object store, and the faults that its next requests meet: call -> faults."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.faults: dict[str, list[Fault | None]] = {}
        self.asked: list[str] = []
        self.server = ObjectServer(self.disk, lambda: 0.0)
        chance = Chance(1, faults=False)
        files = Syscalls(self.disk, lambda call, path: None, lambda: 0.0)
        self.system = SimulatedSystem(files, chance, lambda: 0.0)
        self.store = self.client()

    def client(self) -> SimulatedObjectStore:
        return SimulatedObjectStore(self.server, "/checkpoint", self.system, self.gate)

    def gate(self, call: str, path: str) -> Fault | None:
        self.asked.append(f"{call} {path}")
        waiting = self.faults.get(call, [])
        return waiting.pop(0) if waiting else None

    def land(self) -> None:
        while self.server.late:
            self.server.late.pop(0)[1]()


@pytest.mark.parametrize("first", ALL)
@pytest.mark.parametrize("second", [None, *ALL])
def test_a_put_knows_its_outcome_whatever_becomes_of_its_requests(
    first: Fault, second: Fault | None
) -> None:
    one = Cloud()
    one.faults["put"] = [first, second]
    assert one.store.put_if_absent("d/a", b"1")
    one.land()
    assert one.store.read("d/a") == b"1"
    one.faults["put"] = [first, second]
    assert not one.client().put_if_absent("d/a", b"2")
    one.land()
    assert one.store.read("d/a") == b"1"


def test_a_put_that_lands_late_loses_against_whoever_was_first() -> None:
    one = Cloud()
    one.faults["put"] = [Fault.LATE] * 5
    with pytest.raises(StoreError, match="whether it was written is not known"):
        one.store.put_if_absent("d/a", b"late")
    assert one.store.list("d") == []
    assert one.client().put_if_absent("d/a", b"first")
    one.land()
    assert one.store.read("d/a") == b"first"


def test_a_put_that_was_given_up_may_still_land() -> None:
    one = Cloud()
    one.faults["put"] = [Fault.LATE] * 5
    with pytest.raises(StoreError):
        one.store.put_if_absent("d/a", b"late")
    one.land()
    assert one.store.read("d/a") == b"late"


def test_a_name_that_was_freed_is_taken_again_by_a_late_request() -> None:
    """So names that may be deleted must never be used again (N3)."""
    one = Cloud()
    one.faults["put"] = [Fault.TWICE]
    assert one.store.put_if_absent("d/a", b"1")
    one.store.delete("d/a")
    one.land()
    assert one.store.read("d/a") == b"1"


def test_a_delete_that_lands_late_takes_what_was_put_since() -> None:
    one = Cloud()
    one.store.write("d/a", b"1")
    one.faults["delete"] = [Fault.LATE]
    with pytest.raises(StoreError, match="cannot delete .*: timed out"):
        one.store.delete("d/a")
    one.store.write("d/a", b"2")
    one.land()
    assert one.store.list("d") == []


def test_an_overwrite_that_lands_late_brings_the_old_object_back() -> None:
    one = Cloud()
    one.faults["overwrite"] = [Fault.LATE]
    with pytest.raises(StoreError):
        one.store.write("LEASE", b"1")
    one.store.write("LEASE", b"2")
    one.land()
    assert one.store.read("LEASE") == b"1"


def test_a_copy_is_of_what_is_there_when_it_lands() -> None:
    one = Cloud()
    one.store.write("d/a", b"1")
    one.store.copy("d/a", "e/b")
    assert one.store.read("e/b") == one.store.read("d/a") == b"1"
    with pytest.raises(FileNotFoundError):
        one.store.copy("d/none", "e/c")
    one.faults["copy"] = [Fault.LATE]
    with pytest.raises(StoreError):
        one.store.copy("d/a", "e/c")
    one.store.delete("d/a")
    one.land()
    assert one.store.list("e") == ["b"]


def test_there_are_no_directories() -> None:
    one = Cloud()
    one.store.make_directory("d/deep")
    assert one.store.list("") == []
    assert one.store.put_if_absent("d/deep/a", b"")
    assert one.store.list("d") == ["deep"]
    one.store.delete("d/deep/a")
    assert one.store.list("") == []
    assert one.store.put_if_absent("d/deep/b", b""), "nothing remembers a directory"


def test_parts_of_a_large_object_are_not_seen_before_it_is_complete() -> None:
    one = Cloud()
    data = bytes(range(256)) * (PART_BYTES // 64)
    one.faults["part"] = [None, Fault.REFUSED]
    with pytest.raises(StoreError, match="cannot send a part"):
        one.store.write("d/a", data)
    assert one.store.list("") == []
    assert [len(parts) for parts in one.server.parts.values()] == [1]
    one.store.write("d/a", data)
    assert one.store.read("d/a") == data
    assert one.asked.count("part /checkpoint/d/a") > 4


def test_what_cannot_be_read_or_listed_is_not_taken_for_missing() -> None:
    one = Cloud()
    one.faults = {"read": [Fault.REFUSED], "list": [Fault.THROTTLED]}
    with pytest.raises(StoreError):
        one.store.read("d/a")
    with pytest.raises(StoreError):
        one.store.list("d")


@pytest.mark.parametrize("fault", ALL)
def test_an_entry_of_the_log_is_its_writers_whatever_becomes_of_its_put(fault: Fault) -> None:
    one = Cloud()
    log = EpochLog(one.store)
    one.faults["put"] = [fault]
    assert list(log.take_over()) == []
    one.faults["put"] = [fault]
    log.append("plan", {})
    one.land()
    assert [entry.kind for _, entry in EpochLog(one.store).backwards()] == ["plan", "generation"]
