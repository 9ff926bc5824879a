"""The simulated disk forgets exactly what was not synced; the engine's files rely on no more."""

from collections.abc import Callable
from random import Random

import pytest

from headrace.errors import StoreError
from headrace.limits import LIMITS
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.model.sink import Opening
from headrace.model.values.rows import Rows
from headrace.sinks.files import FileSink
from headrace.sinks.row_format import RowFormat
from headrace.store import files
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import Directory, File, SimulatedDisk
from headrace.testing.simulator.machine.syscalls import Fault, Syscalls
from headrace.testing.simulator.machine.world import SimulatedSystem


class Unlucky(Random):
    """Nothing that can be lost survives."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a


class Machine:
    """A disk, and the faults that its next calls meet: (call, part of the path) -> fault."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.faults: dict[tuple[str, str], Fault] = {}
        self.files = Syscalls(self.disk, self.gate, lambda: 0.0)
        self.system = SimulatedSystem(self.files, Chance(1, faults=False), lambda: 0.0)

    def gate(self, call: str, path: str) -> Fault | None:
        for (name, part), fault in self.faults.items():
            if name == call and part in path:
                del self.faults[name, part]
                return fault
        return None


def test_an_unsynced_file_is_torn_and_an_unsynced_name_is_gone() -> None:
    disk = SimulatedDisk()
    synced, torn, nameless = File(0), File(0), File(0)
    for file in (synced, torn, nameless):
        file.data = b"bytes"
    disk.put("/synced", synced)
    disk.put("/torn", torn)
    disk.sync(synced)
    disk.sync(disk.root)
    disk.put("/nameless", nameless)
    disk.sync(nameless)
    disk.lose_power(Unlucky())
    assert disk.file("/synced").data == b"bytes"
    assert disk.file("/torn").data == b""
    assert disk.find("/nameless") is None


def test_a_rename_is_one_act_also_when_the_power_fails() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        for name in ("a", "b"):
            disk.put(f"/{name}", Directory())
        disk.put("/a/file", File(0))
        for name in ("/a", "/"):
            disk.sync(disk.directory(name))
        disk.rename("/a/file", "/b/file")
        disk.lose_power(Random(seed))
        assert [disk.find("/a/file"), disk.find("/b/file")].count(None) == 1


def test_a_file_that_was_written_and_a_name_that_was_put_survive_a_power_loss() -> None:
    one = Machine()
    store = DiskStore("/checkpoint", one.system)
    store.make_directory("state")
    store.write("state/file", b"bytes")
    assert store.put_if_absent("state/name", b"mine")
    assert not store.put_if_absent("state/name", b"yours")
    one.disk.lose_power(Unlucky())
    assert (store.read("state/file"), store.read("state/name")) == (b"bytes", b"mine")
    assert store.list("state") == ["file", "name"]


@pytest.mark.parametrize(
    "fault", [("link", Fault.REPEATED), ("link", Fault.UNREPORTED), ("fsync", Fault.REFUSED)]
)
def test_an_entry_that_is_found_at_its_position_is_on_disk(fault: tuple[str, Fault]) -> None:
    """Its own nonce there tells a writer that its put was done, not that it was synced."""
    one = Machine()
    store = DiskStore("/checkpoint", one.system)
    store.make_directory("log/000000")
    call, how = fault
    one.faults[call, "log/000000" if call == "link" else "/log/000000"] = how
    log = EpochLog(store)
    assert list(log.take_over()) == []
    one.disk.lose_power(Unlucky())
    assert EpochLog(store).last_position() == 1


def test_what_a_driver_reads_when_it_takes_over_is_on_disk() -> None:
    one = Machine()
    store = DiskStore("/checkpoint", one.system)
    store.make_directory("log/000000")
    first = EpochLog(store)
    list(first.take_over())
    while (first.position + 2) % files_per_directory():
        first.append("plan", {})
    entry = first._entry("plan", first.generation, {})
    asleep_before_sync(lambda: first._put(first.position + 1, entry), one)
    second = EpochLog(store)
    list(second.take_over())
    one.disk.lose_power(Unlucky())
    log = EpochLog(store)
    assert len(list(log.backwards())) == second.position


def test_a_directory_that_another_process_has_just_made_is_on_disk() -> None:
    one = Machine()
    asleep_before_sync(lambda: files.make_directory("/checkpoint/log/000000", one.system), one)
    one.files.durable_directories.clear()  # another process knows nothing of it
    files.make_directory("/checkpoint/log/000000", one.system)
    one.disk.lose_power(Unlucky())
    assert one.disk.find("/checkpoint/log/000000") is not None


def test_two_drivers_may_begin_a_checkpoint_at_once() -> None:
    class Racing(MemoryStore):
        """Another driver writes identity and log while this one looks."""

        def list(self, directory: str) -> list[str]:
            if "IDENTITY" not in self.files:
                other = MemoryStore()
                from headrace.log.identity import claim_identity

                claim_identity(other, "p")
                self.files.update(other.files)
                self.files["log/000000/00000000000000000001"] = b""
            return super().list(directory)

    identity = read_identity(Racing())
    assert identity is not None
    assert identity.pipeline == "p"


class NoLines(RowFormat):
    suffix = ".txt"

    def encode(self, rows: Rows) -> bytes:
        return b""


def test_a_file_sink_explains_why_it_cannot_be_opened() -> None:
    one = Machine()
    sink = FileSink("/out", NoLines())
    sink.open(Opening("id", 1, 0, MemoryStore(one.system)))
    for call, part in (("list", "_claims"), ("list", "_staging"), ("list", "_high_water")):
        one.faults[call, part] = Fault.REFUSED
        with pytest.raises(StoreError):
            sink.open(Opening("id", 1, 0, MemoryStore(one.system)))


def test_marks_and_owner_of_a_file_sink_are_on_disk_once_it_is_open() -> None:
    one = Machine()
    sink = FileSink("/out", NoLines())
    asleep_before_sync(
        lambda: sink.open(Opening("id", 1, 0, MemoryStore(one.system))), one, part="/out", skip=3
    )
    one.disk.put("/out/_high_water/000000000007", File(0))
    assert "_identity" in one.disk.root.names["out"].names  # type: ignore[union-attr]
    assert "_identity" not in one.disk.root.names["out"].durable  # type: ignore[union-attr]
    sink.open(Opening("id", 1, 7, MemoryStore(one.system)))
    one.disk.lose_power(Unlucky())
    assert sink.high_water() == 7
    assert one.disk.find("/out/_identity") is not None


# How a process falls asleep.


def files_per_directory() -> int:

    return LIMITS.log_directory_entries


class Asleep(BaseException):
    """The process goes no further."""


def asleep_before_sync(
    act: Callable[[], object], one: Machine, part: str = "", skip: int = 0
) -> None:
    """Runs `act` up to its first sync of a directory, and no further."""
    gate, left = one.gate, skip

    def sleepy(call: str, path: str) -> Fault | None:
        nonlocal left
        asleep = call == "fsync" and isinstance(one.disk.find(path), Directory) and part in path
        if asleep and left == 0:
            raise Asleep
        left -= asleep
        return gate(call, path)

    one.files.gate = sleepy
    try:
        act()
    except Asleep:
        pass
    finally:
        one.files.gate = gate
